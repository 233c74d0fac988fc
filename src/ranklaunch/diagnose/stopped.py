"""Ranks that failed while they were being stopped, and ranks that had failed without ending when the stop came. Pure.

The failure that decided came before. So these ranks are victims, but they did not do what a rank does then, such as saving its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from ranklaunch.diagnose import failures, raised
from ranklaunch.diagnose.suspects import Known, host_of, node_of
from ranklaunch.ends import exceptions, records
from ranklaunch.ends.model import BELOW, NodeEnds, RankEnd
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import LATE, WAITING, Note

MOST = 4  # ranks that had said something before


def notes(
    node: NodeEnds, suspects: Sequence[Suspect], known: Known, heard: Callable[[RankEnd], bool], log_of: Callable[[int], str]
) -> list[Note]:
    """Return a note for each such rank.

    suspects: those of this node, whoever is to blame first. heard: True for a process that had a handler for the signal; another process
    that ended with a code of its own had done so before the signal came. log_of: name of the log of a rank.
    """
    asked, elsewhere = node.ending.outcome == "stopped", node.ending.from_elsewhere
    first = None if elsewhere or not suspects else suspects[0]
    ends = [end for end in node.ends if _was_told(end) and not _is_first(end, first, node)]
    failed = {end.rank or 0: _own_code(end, known) for end in ends if end.signal or end.role == BELOW or heard(end)}
    found = [Note(_failed(rank, code, node, log_of(rank)), LATE, rank) for rank, code in sorted(failed.items()) if code]
    if asked or elsewhere or (first and first.is_consequence):
        before = ((end, _before(end, node, known, asked=asked)) for end in ends if not failed.get(end.rank or 0))
        told = (Note(_still_there(end.rank, node, text), WAITING, end.rank) for end, text in before if text)
        found += islice(told, MOST)
    return blame.few(found)


def _was_told(end: RankEnd) -> bool:
    """True for a rank that was told to end."""
    was_told = end.by_itself is False if end.role == BELOW else end.role == failures.RANK and bool(end.sent)
    return was_told and end.rank is not None


def _is_first(end: RankEnd, first: Suspect | None, node: NodeEnds) -> bool:
    culprit = first.culprit if first else None
    return bool(culprit and (culprit.node, culprit.rank) == (node.job.node_index, end.rank))


def _own_code(end: RankEnd, known: Known) -> int:
    """Return the exit code of a rank that failed by an error of its own, 0 for none."""
    code = end.exit_code or 0
    if not code or end.signal or code in failures.OF_SIGNALS:
        return 0
    record = raised.last(end.records, "main")
    error = known(exceptions.traceback(record.chain) if record else end.output or "", code=code)
    return code if not error or blame.tells_why(error) else 0


def _before(end: RankEnd, node: NodeEnds, known: Known, *, asked: bool) -> str:
    """Return what a rank that had not ended had failed of by then, "" for nothing: an exception that it recorded; an error in its output
    that it may have caught."""
    for record in end.records:
        if record.kind == records.EXCEPTION and record.at < node.ending.at and not raised.after_stop(record, end):
            line = exceptions.shown(exceptions.bare_line_of(record.chain))
            thread = record.thread or "without a name"
            return f"its thread {thread} had failed: {line}" if record.where == "thread" else f"it had raised: {line}"
    if asked:
        return ""
    error = known(failures.at_stop(end))
    return f"it had said: {error.line[: blame.SEEN]}" if error and error.kind in blame.OF_NO_OTHER else ""


def _place(rank: int | None, node: NodeEnds) -> str:
    """Return the node of a rank, with a blank before it; "" on a job of one node."""
    if len(node.job.nodes) + len(node.job.idle) < 2:
        return ""
    index = node_of(rank, node)
    return f" on {blame.place(index, host_of(index, node))}"


def _failed(rank: int, code: int, node: NodeEnds, log: str) -> str:
    return f"rank {rank}{_place(rank, node)} failed with exit code {code} while it was being stopped: see {log}"


def _still_there(rank: int | None, node: NodeEnds, what: str) -> str:
    return f"rank {rank}{_place(rank, node)} had not ended when it was told to, but {what}"
