"""Suspects of one node: the processes that failed, each with the evidence that explains its end. Pure.

REASONS are tried in their order for each failure, and the first that fits explains it. The kernel's count of kills for memory comes last
and wins: it needs all failures of the node, in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple, Protocol

from ranklaunch import errors, showing
from ranklaunch.diagnose import failures, outputs, raised
from ranklaunch.diagnose.excerpt import last_lines
from ranklaunch.diagnose.failures import AFTER_S, Failed
from ranklaunch.diagnose.raised import UNCAUGHT, Explanation
from ranklaunch.ends.model import DAEMON, NodeEnds, RankEnd
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import KILLED, Because, Culprit, KnownError, Of

_KILLED = 137  # exit code after SIGKILL, also of a shell whose program it was
_OF_PEERS = (1, 134, 143)  # exit codes of a rank that has lost another one
_OF_ALL = "; among the last lines of all ranks: "


class Known(Protocol):
    """The catalogue of known errors."""

    def __call__(self, output: str, *, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
        """Return the known error in the last lines of an output, None for none.

        by_itself: nobody had told the process to end. shared: several ranks write into the output. code: exit code of the process, None
        where nobody knows it.
        """

    def peers(self, output: str, kind: str) -> tuple[int, ...]:
        """Return the ranks named by the last message of this kind. A consequence names ranks that did not answer, a cause ranks that
        failed."""


class Evidence(NamedTuple):
    """What explains a failure. exception, error: the exception that the process recorded, and the catalogue's word of it."""

    failed: Failed
    known: Known
    exception: Explanation | None = None
    error: KnownError | None = None


def diagnose(node: NodeEnds, known: Known) -> list[Suspect]:
    """Return the suspects of a node, whoever is to blame first."""
    exceptions = _exceptions(node, known)
    found = [*_own(node), *_daemons(node)]
    for failed in failures.failed(node):
        suspect = _suspect(failed, node)
        own = next((each for end, *each in exceptions if _is_of(suspect, end)), (None, None))
        evidence = Evidence(failed, known, *own)
        explained = _explained(suspect, evidence)
        found += [_of_named(explained, evidence, node), *waited_for(explained, evidence, node)] if explained else []
    found += _raised_first(found, exceptions, node)
    found = _with_memory(_silent_last(found), node)
    return blame.ordered(_without_stopped(found, node) if node.stop else found)


# Failures that no process of a rank tells


def _own(node: NodeEnds) -> Iterator[Suspect]:
    """Yield ranklaunch's own end: asked to stop, in vain waiting, killed."""
    ending, index = node.ending, node.job.node_index
    if ending.pid is None and not ending.from_elsewhere:
        own = Suspect(index, ending.at, ending.outcome, ending.exit_code, ending.reason, ending.culprit, because=ending.because)
        several = len(node.job.nodes) + len(node.job.idle) > 1
        yield blame.of_ranklaunch(own, host_of(index, node), several=several, killed=ending.killed, hung=ending.hung)


def _daemons(node: NodeEnds) -> Iterator[Suspect]:
    """Yield daemons here that carried another node's ranks and were killed. The launcher on that node cannot know why."""
    for end in node.ends:
        if end.role == DAEMON and (end.at or 0.0) < node.ending.at:
            code = end.exit_code or 0
            yield _suspect(Failed(end.node, None, end.pid, end.name, code, end.signal, end.at or 0.0, code), node)


# Reasons


def by_exception(suspect: Suspect, of: Evidence) -> Suspect | None:
    """The process recorded an exception that tells why it ended. The time of the failure is the time of the exception."""
    return None if not of.error or _distance(of.error) else _recorded(suspect, of)


def by_output(suspect: Suspect, of: Evidence) -> Suspect | None:
    """A known error stands in the last lines of the process. A recorded exception about another failure gives way to a cause alone.

    Words of a lost peer in an output of several ranks are another's if the launcher names this rank as the first, and it ended as nobody
    does for another.
    """
    failed = of.failed
    assert suspect.culprit
    error = _in_output(failed, of.known)
    if not error or (failed.only_known and not error.meaning) or (error.kind not in blame.OF_NO_OTHER and (failed.only_cause or of.error)):
        return None
    if failed.shared and failed.rank is not None and failed.exit_code not in _OF_PEERS and not blame.tells_why(error):
        return _among_all(suspect, _shown(error).line)
    return _with_report(suspect, error, failed)


def by_exception_about_another(suspect: Suspect, of: Evidence) -> Suspect | None:
    """The process recorded an exception that only tells of another failure: of a peer, a worker, or a command."""
    return None if of.failed.only_cause else _recorded(suspect, of)


def by_exit_status(suspect: Suspect, of: Evidence) -> Suspect | None:
    """Nothing else is known: the exit code or the signal alone tells of the failure."""
    if of.failed.shared and of.failed.launcher and not of.failed.only_cause:
        return _among_all(suspect, showing.printable(showing.last_line(last_lines(of.failed.output))).strip())
    return None if of.failed.only_cause else suspect


def _recorded(suspect: Suspect, of: Evidence) -> Suspect | None:
    if not of.exception or not of.error:
        return None
    at = min(suspect.at, of.exception.at) if of.exception.sure else suspect.at
    return replace(_with_report(replace(suspect, at=at), of.error, of.failed), because=(of.exception.because,))


def _among_all(suspect: Suspect, line: str) -> Suspect:
    """Return a suspect with a line that may be another rank's, since all write into one output."""
    assert suspect.culprit
    said = blame.sentence(replace(suspect.culprit, last_lines=()))
    return replace(suspect, reason=f"{said}{_OF_ALL}{line[: blame.SEEN]}" if line else said)


REASONS: tuple[Callable[[Suspect, Evidence], Suspect | None], ...] = (by_exception, by_output, by_exception_about_another, by_exit_status)


def _explained(suspect: Suspect, of: Evidence) -> Suspect | None:
    """Return a suspect with its reason; None for a process that may have been told to end, and names no cause."""
    return next((found for rule in REASONS if (found := rule(suspect, of))), None)


def waited_for(suspect: Suspect, of: Evidence, node: NodeEnds) -> Iterator[Suspect]:
    """The last message of a failed rank names a rank that did not answer. That rank counts if no other failure names a cause."""
    error = suspect.culprit.error if suspect.culprit else None
    if error and error.kind == blame.CONSEQUENCE:
        for rank in of.known.peers(_text(of), blame.CONSEQUENCE):
            named = _named(suspect, rank, node)
            if named and named.culprit:
                waits = f"{blame.name(named.culprit)} on {blame.place(named.node, named.culprit.host)} did not answer"
                line = error.line[: blame.SEEN]
                because = Because(blame.WAITED_FOR, line, Of(suspect.node, suspect.culprit.rank if suspect.culprit else None))
                culprit = replace(named.culprit, error=None, last_lines=())
                yield replace(named, at=suspect.at - AFTER_S, reason=f"{waits}: {line}", culprit=culprit, late=True, because=(because,))


def _of_named(suspect: Suspect, of: Evidence, node: NodeEnds) -> Suspect:
    """Return the failed rank that a cause names, where all ranks raise the same exception; else the suspect itself."""
    error = suspect.culprit.error if suspect.culprit else None
    ranks = of.known.peers(_text(of), blame.CAUSE) if error and error.kind == blame.CAUSE else ()
    return (_named(suspect, ranks[0], node) if ranks else None) or suspect


def _text(of: Evidence) -> str:
    return of.exception.text if of.exception else of.failed.output


def _named(suspect: Suspect, rank: int, node: NodeEnds) -> Suspect | None:
    """Return a suspect as another rank; None for itself, and for no rank of the job."""
    culprit = suspect.culprit
    if not culprit or culprit.rank == rank or rank >= sum(each.slots for each in node.job.nodes):
        return None
    index = node_of(rank, node)
    return replace(
        suspect, node=index, culprit=replace(culprit, node=index, rank=rank, pid=None, name=f"rank {rank}", host=host_of(index, node))
    )


def _in_output(failed: Failed, known: Known) -> KnownError | None:
    """Return the known error in a rank's output, or else a cause in the launcher's report, such as a wrong call of MPI."""
    output = failed.output
    error = known(output, by_itself=failed.by_itself, shared=failed.shared, code=failed.exit_code) if output else None
    if error or not failed.launcher or failed.signal:
        return error
    error = known(failures.words_of(failed.launcher).removeprefix(output))
    return error if error and error.kind == blame.CAUSE and error.meaning else None


def _exceptions(node: NodeEnds, known: Known) -> list[tuple[RankEnd, Explanation, KnownError]]:
    """Return the recorded exception behind each end, with the known error in it. An exception nearer to the reason goes first."""
    found = []
    for end, fitting in raised.explanations(node) if node.ending.outcome == "failed" else ():
        errors_of = [(each, _of_exception(each, known)) for each in fitting]
        found.append((end, *min(errors_of, key=lambda each: _distance(each[1]))))
    return found


def _distance(error: KnownError) -> int:
    """Return how far an exception is from the reason. 0: it is the reason. 1: a process or a command of the rank failed. 2: another rank
    failed."""
    if error.kind == blame.CAUSE and error.name not in blame.LOST_CHILDREN:
        return 0
    return 1 if blame.tells_why(error) else 2


def _of_exception(explanation: Explanation, known: Known) -> KnownError:
    """Return the catalogue's entry for an exception, with the exception as the line."""
    usual = KnownError("python-uncaught-exception", blame.CAUSE, "", "", "", "")
    error = known(explanation.text, code=UNCAUGHT)
    return replace(error if error and error.kind != blame.UNKNOWN else usual, line=explanation.line)


def _is_of(suspect: Suspect, end: RankEnd) -> bool:
    """True if a suspect is this process; a rank whose process was never seen is known by its number."""
    culprit = suspect.culprit
    if not culprit or culprit.node != end.node:
        return False
    if culprit.pid is not None and end.pid is not None:
        return culprit.pid == end.pid
    return culprit.rank is not None and culprit.rank == end.rank


def _raised_first(
    found: Sequence[Suspect], exceptions: Sequence[tuple[RankEnd, Explanation, KnownError]], node: NodeEnds
) -> Iterator[Suspect]:
    """Yield ranks whose uncaught exception came before any signal to them. Their exit code is 1, whatever ended them later. A rank that
    timed out counts too: its peers fail when it leaves."""
    first = min((each.at for each in found if each.culprit), default=0.0)
    for end, exception, error in exceptions:
        known = any(_is_of(each, end) for each in found)
        counts = exception.sure and (blame.tells_why(error) or blame.TIMEOUT in error.name)
        if known or not counts or exception.at > _told_at(end, first):
            continue
        failed = Failed(end.node, end.rank, end.pid, end.name, UNCAUGHT, 0, exception.at, UNCAUGHT, lines=exception.text)
        yield replace(_with_error(_suspect(failed, node), error, exception.at), because=(exception.because,))


def _told_at(end: RankEnd, first: float) -> float:
    """Return the time of the first signal to a process, or of its end without one. first: time of the first failure, used for a rank of a
    launcher: nobody sees the launcher's signals."""
    if end.by_itself is False:
        return first
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times, default=end.at if end.at is not None else first)


def _silent_last(found: Sequence[Suspect]) -> list[Suspect]:
    """Order a launcher without a rank and without an error behind its ranks with an error."""
    why = max((each.at for each in found if each.culprit and each.culprit.rank is not None and each.culprit.error), default=None)
    silent = [each for each in found if each.culprit and each.culprit.rank is None and not each.culprit.error and not each.culprit.signal]
    return [replace(each, at=max(each.at, why + AFTER_S)) if why and each in silent else each for each in found]


def _with_memory(found: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Mark as many killed processes as the kernel counts kills for memory, the earliest first. A rank that lost a process of its own
    counts as one."""
    memory, left, result = node.memory, node.memory.kills, []
    for suspect in sorted(found, key=attrgetter("at")):
        culprit = suspect.culprit
        lately = min(left, memory.lately(suspect.at))
        if culprit and ((lately and culprit.exit_code == _KILLED) or (left and _lost_a_process(culprit))):
            left -= 1
            culprit = replace(culprit, out_of_memory=True)
            suspect = replace(suspect, culprit=culprit, reason=f"{blame.sentence(culprit)}{memory.described}", because=())
        elif culprit and not lately and memory.counted and _may_be_for_memory(suspect, node):
            then = " then" if memory.kills else ""
            suspect = replace(
                suspect, reason=f"{suspect.reason or blame.sentence(culprit)}; the kernel killed nothing here for memory{then}"
            )
        result.append(suspect)
    is_elsewhere = not any(end.role in ("rank", "launcher") for end in node.ends)
    return [*result, *([_unseen(node)] if left and not found and is_elsewhere else [])]


def _may_be_for_memory(suspect: Suspect, node: NodeEnds) -> bool:
    culprit = suspect.culprit
    is_here = culprit and culprit.node == node.job.node_index and culprit.exit_code == _KILLED
    return bool(culprit and is_here and (not culprit.error or culprit.error.name == KILLED))


def _lost_a_process(culprit: Culprit) -> bool:
    return culprit.signal is None and bool(culprit.error and culprit.error.name == KILLED)


def _unseen(node: NodeEnds) -> Suspect:
    """Return a rank that another node has started here: its end is seen there, the kernel's count here."""
    at, index = node.ending.at, node.job.node_index
    culprit = Culprit(index, None, None, _KILLED, "SIGKILL", True, (), "a process", host_of(index, node), blame.iso(at))
    return Suspect(index, at, "failed", _KILLED, f"{blame.sentence(culprit)}{node.memory.described}", culprit)


def _without_stopped(found: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Replace ranks that died of the stop request's signal, at its time, by the stop request. Slurm, for one, signals ranks as well."""
    assert node.stop
    name, at = name_of(node.stop.signal), node.stop.at
    stopped = [each for each in found if each.culprit and each.culprit.signal == name and abs(each.at - at) < blame.OF_A_STOP_S]
    if not stopped:
        return [*found]
    first = min(at, *(each.at for each in stopped))
    request = Suspect(node.job.node_index, first, "stopped", 128 + node.stop.signal, f"stopped by {name}")
    return [request, *(each for each in found if each not in stopped and each.outcome != "stopped")]


# Values


def _suspect(failed: Failed, node: NodeEnds) -> Suspect:
    index = failed.node if failed.node is not None else node_of(failed.rank, node)
    culprit = Culprit(
        index, failed.rank, failed.pid, failed.exit_code, name_of(failed.signal) if failed.signal else None, False,
        errors.quoted(last_lines(failed.lines)), failed.name, host_of(index, node), blame.iso(failed.at),
    )  # fmt: skip
    return Suspect(index, failed.at, "failed", failed.job_code, "", culprit)


def node_of(rank: int | None, node: NodeEnds) -> int:
    """Return the node of a rank, which may be another one; None: this node."""
    own = node.job.node_index
    return own if rank is None else next((n.index for n in node.job.nodes if n.first_rank <= rank < n.first_rank + n.slots), own)


def host_of(index: int, node: NodeEnds) -> str:
    """Return the host of a node, "" on a job of one node."""
    everyone = (*node.job.nodes, *node.job.idle)
    return next((each.host for each in everyone if each.index == index), "") if len(everyone) > 1 else ""


def _with_error(suspect: Suspect, error: KnownError, at: float) -> Suspect:
    assert suspect.culprit
    return replace(suspect, culprit=replace(suspect.culprit, error=_shown(error), time=blame.iso(at)))


def _with_report(suspect: Suspect, error: KnownError, failed: Failed) -> Suspect:
    """Return a suspect with an error; for a consequence, with the report of a launcher that the program has started itself."""
    assert suspect.culprit
    found = _with_error(suspect, error, suspect.at)
    is_report = error.kind == blame.CONSEQUENCE and blame.TIMEOUT not in error.name
    report = outputs.inner_report(failed.output) if is_report else ""
    return replace(found, reason=f"{blame.sentence(replace(suspect.culprit, last_lines=()))}: {report}") if report else found


def _shown(error: KnownError) -> KnownError:
    return replace(error, line=showing.printable(errors.quoted((error.line,))[0]))
