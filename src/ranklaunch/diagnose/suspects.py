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
    culprit: Culprit
    node: NodeEnds
    known: Known
    exception: Explanation | None = None
    error: KnownError | None = None

    @property
    def suspect(self) -> Suspect:
        """The failure without a reason."""
        return Suspect(self.culprit.node, self.failed.at, "failed", self.failed.job_code, "", self.culprit)

    @property
    def text(self) -> str:
        return self.exception.text if self.exception else self.failed.output


def diagnose(node: NodeEnds, known: Known) -> list[Suspect]:
    """Return the suspects of a node, whoever is to blame first."""
    exceptions = _exceptions(node, known)
    found = [*_own(node), *_daemons(node)]
    for failed in failures.failed(node):
        culprit = _culprit(failed, node)
        evidence = Evidence(failed, culprit, node, known, *next((each for end, *each in exceptions if _is_of(culprit, end)), ()))
        suspect = next(filter(None, (rule(evidence) for rule in REASONS)), None)
        if suspect:  # else it may have been told to end, and names no cause
            found += [_of_named(suspect, evidence), *waited_for(suspect, evidence)]
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
            code, at = end.exit_code or 0, end.at or 0.0
            culprit = _culprit(Failed(end.node, None, end.pid, end.name, code, end.signal, at, code), node)
            yield Suspect(end.node, at, "failed", code, "", culprit)


# Reasons


def by_exception(of: Evidence) -> Suspect | None:
    """The process recorded an exception that tells why it ended. The time of the failure is the time of the exception."""
    return None if not of.error or _distance(of.error) else _recorded(of)


def by_output(of: Evidence) -> Suspect | None:
    """A known error stands in the last lines of the process. A recorded exception about another failure gives way to a cause alone.

    Words of a lost peer in an output of several ranks are another's if the launcher names this rank as the first, and it ended as nobody
    does for another.
    """
    failed, error = of.failed, _in_output(of.failed, of.known)
    if not error or (failed.only_known and not error.meaning) or (error.kind not in blame.OF_NO_OTHER and (failed.only_cause or of.error)):
        return None
    if failed.shared and failed.rank is not None and failed.exit_code not in _OF_PEERS and not blame.tells_why(error):
        return _among_all(of, _shown(error).line)
    return _with_report(of, error, failed.at)


def by_exception_about_another(of: Evidence) -> Suspect | None:
    """The process recorded an exception that only tells of another failure: of a peer, a worker, or a command."""
    return None if of.failed.only_cause else _recorded(of)


def by_exit_status(of: Evidence) -> Suspect | None:
    """Nothing else is known: the exit code or the signal alone tells of the failure."""
    if of.failed.only_cause:
        return None
    if of.failed.shared and of.failed.launcher:
        return _among_all(of, showing.printable(showing.last_line(last_lines(of.failed.output))).strip())
    return of.suspect


REASONS: tuple[Callable[[Evidence], Suspect | None], ...] = (by_exception, by_output, by_exception_about_another, by_exit_status)


def _recorded(of: Evidence) -> Suspect | None:
    if not of.exception or not of.error:
        return None
    at = min(of.failed.at, of.exception.at) if of.exception.sure else of.failed.at
    return replace(_with_report(of, of.error, at), because=(of.exception.because,))


def _among_all(of: Evidence, line: str) -> Suspect:
    """Return a suspect with a line that may be another rank's, since all write into one output."""
    words = blame.sentence(replace(of.culprit, last_lines=()))
    return replace(of.suspect, reason=f"{words}{_OF_ALL}{line[: blame.SEEN]}" if line else words)


def _with_report(of: Evidence, error: KnownError, at: float) -> Suspect:
    """Return a suspect with an error; for a consequence, with the report of a launcher that the program has started itself."""
    is_report = error.kind == blame.CONSEQUENCE and blame.TIMEOUT not in error.name
    report = outputs.inner_report(of.failed.output) if is_report else ""
    reason = f"{blame.sentence(replace(of.culprit, last_lines=()))}: {report}" if report else ""
    return replace(of.suspect, at=at, reason=reason, culprit=_with_error(of.culprit, error, at))


def waited_for(suspect: Suspect, of: Evidence) -> Iterator[Suspect]:
    """The last message of a failed rank names a rank that did not answer. That rank counts if no other failure names a cause."""
    culprit = suspect.culprit
    if not culprit or not culprit.error or culprit.error.kind != blame.CONSEQUENCE:
        return
    line = culprit.error.line[: blame.SEEN]
    because = Because(blame.WAITED_FOR, line, Of(suspect.node, culprit.rank))
    for peer in filter(None, (_named(culprit, rank, of.node) for rank in of.known.peers(of.text, blame.CONSEQUENCE))):
        reason = f"{blame.name(peer)} on {blame.place(peer.node, peer.host)} did not answer: {line}"
        silent = replace(peer, error=None, last_lines=())
        yield replace(
            suspect, node=peer.node, at=suspect.at - AFTER_S, reason=reason, culprit=silent, late=True, because=(because,)
        )  # fmt: skip


def _of_named(suspect: Suspect, of: Evidence) -> Suspect:
    """Return the failed rank that a cause names, where all ranks raise the same exception; else the suspect itself."""
    culprit = suspect.culprit
    is_cause = culprit and culprit.error and culprit.error.kind == blame.CAUSE
    for rank in of.known.peers(of.text, blame.CAUSE)[:1] if culprit and is_cause else ():
        peer = culprit and _named(culprit, rank, of.node)
        return replace(suspect, node=peer.node, culprit=peer) if peer else suspect
    return suspect


def _named(culprit: Culprit, rank: int, node: NodeEnds) -> Culprit | None:
    """Return a culprit as another rank; None for itself, and for no rank of the job."""
    if culprit.rank == rank or rank >= sum(each.slots for each in node.job.nodes):
        return None
    index = node_of(rank, node)
    return replace(culprit, node=index, rank=rank, pid=None, name=f"rank {rank}", host=host_of(index, node))


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


def _is_of(culprit: Culprit | None, end: RankEnd) -> bool:
    """True if a culprit is this process; a rank whose process was never seen is known by its number."""
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
        known = any(_is_of(each.culprit, end) for each in found)
        counts = exception.sure and (blame.tells_why(error) or blame.TIMEOUT in error.name)
        if known or not counts or exception.at > _told_at(end, first):
            continue
        failed = Failed(end.node, end.rank, end.pid, end.name, UNCAUGHT, 0, exception.at, UNCAUGHT, lines=exception.text)
        culprit = _with_error(_culprit(failed, node), error, exception.at)
        yield Suspect(culprit.node, exception.at, "failed", UNCAUGHT, "", culprit, because=(exception.because,))


def _told_at(end: RankEnd, first: float) -> float:
    """Return the time of the first signal to a process, or of its end without one. first: time of the first failure, used for a rank of a
    launcher: nobody sees the launcher's signals."""
    if end.by_itself is False:
        return first
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times, default=end.at if end.at is not None else first)


def _silent_last(found: Sequence[Suspect]) -> list[Suspect]:
    """Order a launcher without a rank and without an error behind its ranks with an error."""
    known = (each.at for each in found if each.culprit and each.culprit.rank is not None and each.culprit.error)
    after = max(known, default=0.0) + AFTER_S
    return [replace(each, at=max(each.at, after)) if each.culprit and _is_silent(each.culprit) else each for each in found]


def _is_silent(culprit: Culprit) -> bool:
    return culprit.rank is None and not culprit.error and not culprit.signal


def _with_memory(found: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Mark as many killed processes as the kernel counts kills for memory, the earliest first. A rank that lost a process of its own
    counts as one."""
    kills, result = node.memory.kills, []
    for suspect in sorted(found, key=attrgetter("at")):
        culprit, lately = suspect.culprit, min(kills, node.memory.lately(suspect.at))
        if culprit and ((lately and culprit.exit_code == _KILLED) or (kills and _lost_a_process(culprit))):
            kills -= 1
            culprit = replace(culprit, out_of_memory=True)
            suspect = replace(suspect, culprit=culprit, reason=f"{blame.sentence(culprit)}{node.memory.described}", because=())
        elif culprit and not lately and _may_be_for_memory(culprit, node):
            reason = f"{suspect.reason or blame.sentence(culprit)}; the kernel killed nothing here for memory"
            suspect = replace(suspect, reason=f"{reason} then" if node.memory.kills else reason)
        result.append(suspect)
    return [*result, *(_unseen(node) if kills and not found else ())]


def _may_be_for_memory(culprit: Culprit, node: NodeEnds) -> bool:
    is_here = culprit.node == node.job.node_index and culprit.exit_code == _KILLED
    return is_here and node.memory.counted and (not culprit.error or culprit.error.name == KILLED)


def _lost_a_process(culprit: Culprit) -> bool:
    return culprit.signal is None and bool(culprit.error and culprit.error.name == KILLED)


def _unseen(node: NodeEnds) -> Iterator[Suspect]:
    """Yield a rank that another node has started here: its end is seen there, the kernel's count here."""
    if not any(end.role in ("rank", "launcher") for end in node.ends):
        at, index = node.ending.at, node.job.node_index
        culprit = Culprit(index, None, None, _KILLED, "SIGKILL", True, (), "a process", host_of(index, node), blame.iso(at))
        yield Suspect(index, at, "failed", _KILLED, f"{blame.sentence(culprit)}{node.memory.described}", culprit)


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


def _culprit(failed: Failed, node: NodeEnds) -> Culprit:
    index = failed.node if failed.node is not None else node_of(failed.rank, node)
    return Culprit(
        index, failed.rank, failed.pid, failed.exit_code, name_of(failed.signal) if failed.signal else None, False,
        errors.quoted(last_lines(failed.lines)), failed.name, host_of(index, node), blame.iso(failed.at),
    )  # fmt: skip


def node_of(rank: int | None, node: NodeEnds) -> int:
    """Return the node of a rank, which may be another one; None: this node."""
    own = node.job.node_index
    return own if rank is None else next((n.index for n in node.job.nodes if n.first_rank <= rank < n.first_rank + n.slots), own)


def host_of(index: int, node: NodeEnds) -> str:
    """Return the host of a node, "" on a job of one node."""
    everyone = (*node.job.nodes, *node.job.idle)
    return next((each.host for each in everyone if each.index == index), "") if len(everyone) > 1 else ""


def _with_error(culprit: Culprit, error: KnownError, at: float) -> Culprit:
    return replace(culprit, error=_shown(error), time=blame.iso(at))


def _shown(error: KnownError) -> KnownError:
    return replace(error, line=showing.printable(errors.quoted((error.line,))[0]))
