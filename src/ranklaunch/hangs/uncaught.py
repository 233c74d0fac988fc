"""Uncaught exceptions of ranks that do not end.

At the exit of a rank a library may wait for the other ranks, as MPI_Finalize does, while these wait for the rank. The rank recorded the
exception when it was raised (ranklaunch.rankside).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from ranklaunch import errors
from ranklaunch.ends import exceptions
from ranklaunch.ends.model import EXCEPTION, RANK, Record
from ranklaunch.hangs.frames import MOST_OF_TRACEBACK
from ranklaunch.hangs.suspicion import Raised, Suspect
from ranklaunch.plan.model import Plan
from ranklaunch.processes.records import Records
from ranklaunch.supervise.judge import Catalogue
from ranklaunch.system.tree import Identity
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Culprit

CODE = 1  # exit code of Python after an uncaught exception
MOST_S = 0.01  # for reading records, in one call


class Uncaught:
    """Uncaught exceptions of the ranks of this node. folder: of the records of one round."""

    def __init__(self, folder: str) -> None:
        self._files = Records(folder)
        self._tops: dict[Identity, Identity] = {}  # by first Python process of a rank: topmost process of the rank
        self._raised: dict[Identity, Record] = {}  # by process

    def look(self, ranks: Mapping[int, Identity], now: float) -> list[Raised]:
        """Return the exceptions of living ranks, the newest first. ranks: processes of living ranks. now: monotonic seconds."""
        for record in self._files.new(MOST_S):
            process = Identity(*record.process)
            if record.kind == RANK and record.top:
                self._tops[process] = Identity(record.top.pid, record.top.start)
            elif record.kind == EXCEPTION and record.where in ("main", "thread"):
                before = self._raised.get(process)
                self._raised[process] = before if before and before.where == "main" and record.where == "thread" else record
        return sorted(self._raised_by(ranks, now), key=attrgetter("silent_s"))

    def _raised_by(self, ranks: Mapping[int, Identity], now: float) -> Iterator[Raised]:
        by_top = {top: self._raised[head] for head, top in self._tops.items() if head in self._raised}
        for rank, process in ranks.items():
            record = by_top.get(process)
            if record and record.chain:
                traceback = _shortened("\n".join(errors.quoted(exceptions.traceback(record.chain).split("\n"))))
                line = exceptions.shown(exceptions.bare_line_of(record.chain))
                of_thread = record.where == "thread"
                yield Raised(rank, max(0.0, now - record.monotonic), not of_thread, traceback, line, process.pid, of_thread)


def _shortened(text: str) -> str:
    """Return a traceback with at most MOST_OF_TRACEBACK characters: its first line, and its last lines. Lines stay whole: half a secret is
    hard to recognise."""
    if len(text) <= MOST_OF_TRACEBACK:
        return text
    begin, _, _ = text.partition("\n")
    _, _, rest = text[len(begin) + 1 - MOST_OF_TRACEBACK :].partition("\n")
    return f"{begin}\n{rest}"


def culprit(plan: Plan, suspect: Suspect, raised: Raised, at: float) -> Culprit:
    """Return the culprit for a rank, as if its exception had already ended it. at: seconds since 1970."""
    nodes = plan.job.everyone
    error = Catalogue(plan)(raised.traceback, code=CODE)
    return Culprit(
        node=suspect.node, rank=suspect.rank, pid=raised.pid, exit_code=CODE, signal=None, out_of_memory=False,
        last_lines=errors.quoted(raised.traceback.splitlines()[-blame.LINES :]), name=f"rank {suspect.rank}",
        host=nodes[suspect.node].host if 0 <= suspect.node < len(nodes) and len(nodes) > 1 else "",
        time=blame.iso(at), error=error and replace(error, line=raised.line),
    )  # fmt: skip
