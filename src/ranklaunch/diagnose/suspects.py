"""Suspects of one node: the failed processes, each with the evidence for its end. Pure.

For each failure, REASONS are tried in their order; the first rule that fits explains the failure. The kernel's count of
kills for memory is applied last and overrides: it needs all failures of the node, in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Optional, Protocol

from ranklaunch import errors, showing
from ranklaunch.diagnose import failures
from ranklaunch.diagnose.failures import AFTER_S, Failed
from ranklaunch.ends import exceptions
from ranklaunch.ends.model import (
    BELOW,
    DAEMON,
    EXCEPTION,
    LAUNCHER,
    RANK,
    NodeEnds,
    OtherProcess,
    RankEnd,
    Record,
)
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import KILLED, LATE, WAITING, Because, Culprit, KnownError, Note, Of

_KILLED = 137  # exit code after SIGKILL, also of a shell whose program it was
_CODES_AFTER_LOST_PEER = (1, 134, 143)  # exit codes of a rank that has lost another one
_SHARED_OUTPUT = "; among the last lines of all ranks: "


class Known(Protocol):
    """Search in the catalogue of known errors."""

    def __call__(self, output: str, *, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
        """Return the known error in the last lines of an output, None for none.

        by_itself: the process was not signalled before. shared: several ranks write into the
        output. code: exit code of the process, None if unknown.
        """

    def peers(self, output: str, kind: str) -> tuple[int, ...]:
        """Return the ranks named by the last message of this kind. A consequence names silent
        ranks, a cause names failed ranks."""


class Evidence(NamedTuple):
    """Evidence for a failure. exception: recorded by the process. error: the catalogue's entry for
    this exception."""

    failed: Failed
    node: NodeEnds
    known: Known
    exception: Explanation | None = None
    error: KnownError | None = None

    @property
    def text(self) -> str:
        return self.exception.text if self.exception else self.failed.output


def diagnose(node: NodeEnds, known: Known) -> list[Suspect]:
    """Return the suspects of a node, the one to blame first."""
    explained = _exceptions(node, known)
    suspects = [*_end_of_ranklaunch(node), *_killed_daemons(node)]
    for failed in failures.failed(node):
        evidence = Evidence(failed, node, known, *next((each for end, *each in explained if _is_same_process(failed.culprit, end)), ()))
        suspect = next(filter(None, (rule(evidence) for rule in REASONS)), None)
        if suspect:  # None for a process that may have been signalled and names no cause
            suspects += [_with_named_rank(suspect, evidence), *waited_for(suspect, evidence)]
    suspects += _exceptions_before_signal(suspects, explained, node)
    suspects = _with_memory(_silent_last(suspects), node)
    return blame.ordered(_without_stopped(suspects, node) if node.stop else suspects)


# Failures besides those of ranks and launchers


def _end_of_ranklaunch(node: NodeEnds) -> Iterator[Suspect]:
    """Yield ranklaunch's own end, if that decided: a stop request, a time-out, a kill."""
    ending, index = node.ending, node.job.node_index
    if ending.pid is None and not ending.from_elsewhere:
        suspect = blame.suspect_of(ending, index, ending.at)
        several = len(node.job.nodes) + len(node.job.idle) > 1
        yield blame.of_ranklaunch(suspect, failures.host_of(index, node), several=several, killed=ending.killed, hung=ending.hung)


def _killed_daemons(node: NodeEnds) -> Iterator[Suspect]:
    """Yield killed daemons that carried another node's ranks. The launcher on that node cannot know
    the reason."""
    for end in node.ends:
        if end.role == DAEMON and (end.at or 0.0) < node.ending.at:
            yield failures.suspect_of(end, node, end.at or 0.0)


# Reasons


def by_exception(evidence: Evidence) -> Suspect | None:
    """The process recorded an exception that explains its end. The time of the failure is the time
    of the exception."""
    return None if not evidence.error or _distance(evidence.error) else _recorded(evidence)


def by_output(evidence: Evidence) -> Suspect | None:
    """The last lines of the process contain a known error. A recorded exception about another
    failure is overridden only by a cause.

    In an output that ranks share, a line about a lost peer comes from another rank, if this rank is
    the first in the launcher's report and its exit code is none that the loss of a peer produces.
    """
    failed, error = evidence.failed, _in_output(evidence.failed, evidence.known)
    if not error or (failed.only_known and not error.meaning):
        return None
    if error.kind not in blame.OF_NO_OTHER and (failed.only_cause or evidence.error):
        return None
    if failed.shared and not blame.tells_why(error) and _ended_alone(failed.culprit):
        return _with_shared_line(evidence, _shown(error).line)
    return _with_report(evidence, error, failed.suspect.at)


def _ended_alone(culprit: Culprit) -> bool:
    """True for a rank with an exit code that the loss of a peer does not produce."""
    return culprit.rank is not None and culprit.exit_code not in _CODES_AFTER_LOST_PEER


def by_exception_about_another(evidence: Evidence) -> Suspect | None:
    """The process recorded an exception about another failure: of a peer, a worker, or a command."""
    return None if evidence.failed.only_cause else _recorded(evidence)


def by_exit_status(evidence: Evidence) -> Suspect | None:
    """Only the exit code or the signal shows the failure; nothing else is known."""
    if evidence.failed.only_cause:
        return None
    if evidence.failed.shared and evidence.failed.launcher:
        return _with_shared_line(evidence, showing.printable(showing.last_line(failures.last_lines(evidence.failed.output))).strip())
    return evidence.failed.suspect


REASONS: tuple[Callable[[Evidence], Suspect | None], ...] = (by_exception, by_output, by_exception_about_another, by_exit_status)


def _recorded(evidence: Evidence) -> Suspect | None:
    if not evidence.exception or not evidence.error:
        return None
    ended_at = evidence.failed.suspect.at
    at = min(ended_at, evidence.exception.at) if evidence.exception.sure else ended_at
    return replace(_with_report(evidence, evidence.error, at), because=(evidence.exception.because,))


def _with_shared_line(evidence: Evidence, line: str) -> Suspect:
    """Return a suspect whose reason quotes a line of the shared output. Another rank may have
    written this line."""
    words = blame.sentence(replace(evidence.failed.culprit, last_lines=()))
    return replace(evidence.failed.suspect, reason=f"{words}{_SHARED_OUTPUT}{line[: blame.ERROR_LINE]}" if line else words)


def _with_report(evidence: Evidence, error: KnownError, at: float) -> Suspect:
    """Return a suspect with an error. The reason of a consequence quotes the report of a launcher
    that the program started, if there is one."""
    is_report = error.kind == blame.CONSEQUENCE and blame.TIMEOUT not in error.name
    report = failures.inner_report(evidence.failed.output) if is_report else ""
    reason = f"{blame.sentence(replace(evidence.failed.culprit, last_lines=()))}: {report}" if report else ""
    return replace(evidence.failed.suspect, at=at, reason=reason, culprit=_with_error(evidence.failed.culprit, error, at))


def waited_for(suspect: Suspect, evidence: Evidence) -> Iterator[Suspect]:
    """The last message of a failed rank names a rank that did not answer. This silent rank becomes
    the culprit if no other failure has a cause."""
    culprit = suspect.culprit
    if not culprit or not culprit.error or culprit.error.kind != blame.CONSEQUENCE:
        return
    line = culprit.error.line[: blame.ERROR_LINE]
    because = Because(blame.WAITED_FOR, line, Of(suspect.node, culprit.rank))
    ranks = evidence.known.peers(evidence.text, blame.CONSEQUENCE)
    for peer in filter(None, (_as_other_rank(culprit, rank, evidence.node) for rank in ranks)):
        reason = f"{blame.name(peer)} on {blame.place(peer.node, peer.host)} did not answer: {line}"
        silent = replace(peer, error=None, last_lines=())
        yield replace(
            suspect, node=peer.node, at=suspect.at - AFTER_S, reason=reason, culprit=silent, late=True, because=(because,)
        )  # fmt: skip


def _with_named_rank(suspect: Suspect, evidence: Evidence) -> Suspect:
    """Return a suspect with the rank that the error names, for exceptions that all ranks raise alike;
    else the suspect unchanged."""
    culprit = suspect.culprit
    is_cause = culprit and culprit.error and culprit.error.kind == blame.CAUSE
    for rank in evidence.known.peers(evidence.text, blame.CAUSE)[:1] if culprit and is_cause else ():
        peer = culprit and _as_other_rank(culprit, rank, evidence.node)
        return replace(suspect, node=peer.node, culprit=peer) if peer else suspect
    return suspect


def _as_other_rank(culprit: Culprit, rank: int, node: NodeEnds) -> Culprit | None:
    """Return a culprit with another rank in its place; None for the culprit's own rank and for a
    number beyond the job's ranks."""
    if culprit.rank == rank or rank >= sum(each.slots for each in node.job.nodes):
        return None
    index = failures.node_of(rank, node)
    return replace(culprit, node=index, rank=rank, pid=None, name=f"rank {rank}", host=failures.host_of(index, node))


def _in_output(failed: Failed, known: Known) -> KnownError | None:
    """Return the known error in a rank's output, or a cause in the rest of the launcher's output,
    for example a wrong MPI call."""
    output = failed.output
    error = known(output, by_itself=failed.by_itself, shared=failed.shared, code=failed.culprit.exit_code) if output else None
    if error or not failed.launcher or failed.culprit.signal:
        return error
    error = known(failures.launcher_output(failed.launcher).removeprefix(output))
    return error if error and error.kind == blame.CAUSE and error.meaning else None


def _exceptions(node: NodeEnds, known: Known) -> list[tuple[RankEnd, Explanation, KnownError]]:
    """Return the recorded exception behind each end, with its known error. Of several exceptions,
    take the one with the smallest _distance."""
    explained = []
    for end, fitting in explanations(node) if node.ending.outcome == "failed" else ():
        errors_of = [(each, _error_of_exception(each, known)) for each in fitting]
        explained.append((end, *min(errors_of, key=lambda each: _distance(each[1]))))
    return explained


def _distance(error: KnownError) -> int:
    """Return the distance of an exception from the cause: 0 for the cause itself, 1 if a child process
    or a command of the rank failed, 2 if another rank failed."""
    if error.kind == blame.CAUSE and error.name not in blame.LOST_CHILDREN:
        return 0
    return 1 if blame.tells_why(error) else 2


def _error_of_exception(explanation: Explanation, known: Known) -> KnownError:
    """Return the catalogue's entry for an exception, with the exception as the line."""
    usual = KnownError("python-uncaught-exception", blame.CAUSE, "", "", "", "")
    error = known(explanation.text, code=UNCAUGHT)
    return replace(error if error and error.kind != blame.UNKNOWN else usual, line=explanation.line)


def _is_same_process(culprit: Culprit | None, end: RankEnd) -> bool:
    """True if a culprit is the process of this end: the same pid, or the same rank if a pid is
    unknown."""
    if not culprit or culprit.node != end.node:
        return False
    if culprit.pid is not None and end.pid is not None:
        return culprit.pid == end.pid
    return culprit.rank is not None and culprit.rank == end.rank


def _exceptions_before_signal(
    suspects: Sequence[Suspect], exceptions: Sequence[tuple[RankEnd, Explanation, KnownError]], node: NodeEnds
) -> Iterator[Suspect]:
    """Yield ranks with an uncaught exception before any signal, if no suspect names them yet.

    Their exit code is 1, whatever signal followed. A time-out counts like a cause: the peers fail
    when this rank leaves.
    """
    first = min((each.at for each in suspects if each.culprit), default=0.0)
    for end, exception, error in exceptions:
        known = any(_is_same_process(each.culprit, end) for each in suspects)
        counts = exception.sure and (blame.tells_why(error) or blame.TIMEOUT in error.name)
        if known or not counts or exception.at > _signalled_at(end, first):
            continue
        suspect = failures.suspect_of(replace(end, exit_code=UNCAUGHT, signal=0), node, exception.at, exception.text)
        culprit = suspect.culprit and _with_error(suspect.culprit, error, exception.at)
        yield replace(suspect, culprit=culprit, because=(exception.because,))


def _signalled_at(end: RankEnd, first: float) -> float:
    """Return the time of the first signal to a process, or of its end if there was none.

    first: time of the first failure. It stands for the time of a launcher's signal to its rank, which
    ranklaunch cannot see.
    """
    if end.by_itself is False:
        return first
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times, default=end.at if end.at is not None else first)


def _silent_last(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Move a launcher without a failed rank and without an error behind the ranks with an error."""
    known = (each.at for each in suspects if each.culprit and each.culprit.rank is not None and each.culprit.error)
    after = max(known, default=0.0) + AFTER_S
    return [replace(each, at=max(each.at, after)) if each.culprit and _is_silent(each.culprit) else each for each in suspects]


def _is_silent(culprit: Culprit) -> bool:
    return culprit.rank is None and not culprit.error and not culprit.signal


def _with_memory(suspects: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Mark killed processes as killed for memory, the earliest first, up to the kernel's count."""
    kills, result = node.memory.kills, []
    for suspect in sorted(suspects, key=attrgetter("at")):
        culprit, lately = suspect.culprit, min(kills, node.memory.lately(suspect.at))
        if culprit and _is_counted(culprit, kills, lately):
            kills -= 1
            result.append(_killed_for_memory(suspect, culprit, node))
        elif culprit and not lately and _may_be_for_memory(culprit, node):
            result.append(_killed_for_another_reason(suspect, culprit, node))
        else:
            result.append(suspect)
    return [*result, *(_rank_of_another_node(node) if kills and not suspects else ())]


def _is_counted(culprit: Culprit, kills: int, lately: int) -> bool:
    """True for a killed process, and for a rank that lost a child process. kills: kills in the
    kernel's count that are not yet assigned. lately: kills at the time of this end."""
    if lately and culprit.exit_code == _KILLED:
        return True
    return kills > 0 and _lost_a_process(culprit)


def _killed_for_memory(suspect: Suspect, culprit: Culprit, node: NodeEnds) -> Suspect:
    culprit = replace(culprit, out_of_memory=True)
    reason = f"{blame.sentence(culprit)}{node.memory.described}"
    return replace(suspect, culprit=culprit, reason=reason, because=())


def _killed_for_another_reason(suspect: Suspect, culprit: Culprit, node: NodeEnds) -> Suspect:
    reason = f"{suspect.reason or blame.sentence(culprit)}; the kernel killed nothing here for memory"
    return replace(suspect, reason=f"{reason} at that time" if node.memory.kills else reason)


def _may_be_for_memory(culprit: Culprit, node: NodeEnds) -> bool:
    is_here = culprit.node == node.job.node_index and culprit.exit_code == _KILLED
    return is_here and node.memory.counted and (not culprit.error or culprit.error.name == KILLED)


def _lost_a_process(culprit: Culprit) -> bool:
    return culprit.signal is None and bool(culprit.error and culprit.error.name == KILLED)


def _rank_of_another_node(node: NodeEnds) -> Iterator[Suspect]:
    """Yield a rank that another node's launcher started here. That node sees the end of the rank,
    this node the kernel's count."""
    if not any(end.role in ("rank", "launcher") for end in node.ends):
        at, index = node.ending.at, node.job.node_index
        culprit = Culprit(index, None, None, _KILLED, "SIGKILL", True, (), "a process", failures.host_of(index, node), blame.iso(at))
        yield Suspect(index, at, "failed", _KILLED, f"{blame.sentence(culprit)}{node.memory.described}", culprit)


def _without_stopped(suspects: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Replace ranks that died of the stop request's signal, at its time, by the stop request. Some
    senders, such as Slurm, signal the ranks too."""
    assert node.stop
    name, at = name_of(node.stop.signal), node.stop.at
    stopped = [each for each in suspects if each.culprit and each.culprit.signal == name and abs(each.at - at) < blame.OF_A_STOP_S]
    if not stopped:
        return [*suspects]
    first = min(at, *(each.at for each in stopped))
    request = Suspect(node.job.node_index, first, "stopped", 128 + node.stop.signal, f"stopped by {name}")
    return [request, *(each for each in suspects if each not in stopped and each.outcome != "stopped")]


# Values


def _with_error(culprit: Culprit, error: KnownError, at: float) -> Culprit:
    return replace(culprit, error=_shown(error), time=blame.iso(at))


def _shown(error: KnownError) -> KnownError:
    return replace(error, line=showing.printable(errors.quoted((error.line,))[0]))


# Exceptions that processes recorded (ranklaunch.rankside)
#
# RECORD_RULES are tried in their order. The first rule with an exception decides, unless its
# exception is about another failure and a later rule has a better one. A record alone proves
# nothing: the exit status must fit, and the exception must be the last one of its process. The time
# of the failure is the time of the exception.

SOON_S = 10.0  # from an exception to the end of its process, at most, if the exit status does not prove that the exception ended it
CLOCK_S = 0.05  # by which a record may seem later than the end of its process: both times are converted to node 0's clock separately
CHILD_S = 5.0  # from the exception of a child to the end of its rank, at most
UNCAUGHT = 1  # exit code of Python after an uncaught exception


@dataclass(frozen=True)
class Explanation:
    """Exception that explains the end of a process. at: seconds since 1970 by node 0's clock. line:
    type and message. text: the traceback as Python prints it. sure: the exception ends its process,
    whatever follows."""

    at: float
    line: str
    text: str
    because: Because
    sure: bool = True


class Ended(NamedTuple):
    """Process that ended, with the other processes of its node with records. alone: the process is
    the node's only program."""

    end: RankEnd
    others: Sequence[OtherProcess]
    alone: bool = False

    def soon(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process ended or was signalled at most `seconds` later, or if the
        time of the end is unknown."""
        ended_at = min((sent.at for sent in self.end.sent if sent.at is not None), default=self.end.at)
        return record if record and (ended_at is None or -CLOCK_S < ended_at - record.at < seconds) else None

    def soon_by_itself(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process exited, not by a signal, at most `seconds` later."""
        return None if self.end.signal else self.soon(record, seconds)


RecordRule = Callable[[Ended], Optional[Record]]


def in_main_thread(ended: Ended) -> Record | None:
    """The main thread of the rank raised an exception that was not caught.

    Such an exception ends a Python program with code 1, or with a signal that came while Python was
    ending. If the program chose another exit code, it must exit within seconds. An interactive
    console can continue after an exception.
    """
    record = last_exception(ended.end.records, "main")
    return record if ended.end.signal or ended.end.exit_code == UNCAUGHT else ended.soon(record, SOON_S)


def in_program_of_shell(ended: Ended) -> Record | None:
    """A Python program in the rank's shell script raised an exception that was not caught. The script
    ended within seconds."""
    return ended.soon(last_exception(_records(_programs(ended)), "main"), SOON_S)


def in_other_thread(ended: Ended) -> Record | None:
    """Another thread of the rank raised an exception, and the rank exited by itself within seconds.
    For example, the thread called os._exit, or the main thread noticed the failure."""
    return ended.soon_by_itself(last_exception(ended.end.records, "thread"), SOON_S)


def in_child(ended: Ended) -> Record | None:
    """A process that the rank had started (a worker, or Python in a shell) raised an exception, and
    the rank exited by itself within seconds."""
    return ended.soon_by_itself(last_exception(_records(_processes_below(ended)), "main", "process"), CHILD_S)


def in_nested_rank(ended: Ended) -> Record | None:
    """The rank had started a launcher. A rank of this launcher raised an exception, and the outer
    rank exited by itself within seconds."""
    raised = filter(None, (last_exception(process.records, "main") for process in _nested(ended)))
    return ended.soon_by_itself(min(raised, key=attrgetter("at"), default=None), CHILD_S)


RECORD_RULES: tuple[RecordRule, ...] = (in_main_thread, in_program_of_shell, in_other_thread, in_child, in_nested_rank)


def explanations(node: NodeEnds) -> Iterator[tuple[RankEnd, list[Explanation]]]:
    """Yield each end of a rank or program with recorded exceptions, in the order of the ends, and
    these exceptions in the order of the rules."""
    alone = sum(end.rank is not None or not end.launcher for end in node.ends) == 1
    for end in node.ends:
        fitting = [] if end.launcher or end.exit_code == 0 else [*_fitting(end, node, alone=alone)]
        if fitting:
            yield end, fitting


def despite_success(node: NodeEnds) -> Iterator[tuple[int, str]]:
    """Yield the ranks that ended with 0 despite an uncaught exception in their program, with the
    exception and its place."""
    for end in node.ends:
        if end.rank is not None and end.exit_code == 0 and not end.launcher:
            programs = (process.records for process in _programs(Ended(end, node.others)))
            record = next(filter(None, (last_exception(written, "main") for written in (end.records, *programs))), None)
            if record:
                yield end.rank, exceptions.shown(exceptions.line_of(record.chain))


def _fitting(end: RankEnd, node: NodeEnds, *, alone: bool) -> Iterator[Explanation]:
    """Yield the exceptions that fit an end, in the order of the rules. alone: the process is the
    node's only program."""
    for rule in RECORD_RULES:
        record = rule(Ended(end, node.others, alone))
        if record and not after_stop(record, end):
            yield _explanation(record, rule, end, node.job.node_index)


def _explanation(record: Record, rule: RecordRule, end: RankEnd, node: int) -> Explanation:
    chain = record.chain
    description = exceptions.shown(exceptions.line_of(chain))
    frame = chain[0].frames[-1] if chain[0].frames else None
    of = Of(node, end.rank, frame.file if frame else "", frame.line if frame else 0)
    name = rule.__name__.replace("_", "-")
    line = exceptions.shown(exceptions.bare_line_of(chain))
    return Explanation(
        record.at,
        line,
        exceptions.traceback(chain),
        Because(f"exception-{name}", description, of),
        rule in (in_main_thread, in_program_of_shell),
    )


def last_exception(written: Iterable[Record], *sources: str) -> Record | None:
    """Return the last record of an exception. sources: the accepted values of Record.where."""
    raised = [each for each in written if each.kind == EXCEPTION and each.chain and each.where in sources]
    return raised[-1] if raised else None


def _records(processes: Iterable[OtherProcess]) -> list[Record]:
    return [record for process in processes for record in process.records]


def _processes_below(ended: Ended) -> Iterator[OtherProcess]:
    """Yield the processes below a rank's own process.

    A process belongs to the rank that its records name as top. Without a top, the rank number in its
    variables decides. Without a number, a process belongs to the node's only program.
    """
    for process in ended.others:
        if any(each.kind == LAUNCHER for each in process.records):
            continue
        is_same_rank = ended.alone if process.rank is None else process.rank == ended.end.rank
        if any(_is_top(ended.end, each) for each in process.records) or (is_same_rank and not any(each.top for each in process.records)):
            yield process


def _programs(ended: Ended) -> Iterator[OtherProcess]:
    """Yield the programs that a rank's shell script started."""
    yield from (each for each in ended.others if any(record.kind == RANK and _is_top(ended.end, record) for record in each.records))


def _is_top(end: RankEnd, record: Record) -> bool:
    return record.top is not None and record.top.key == (end.pid, end.start)


def _nested(ended: Ended) -> Iterator[OtherProcess]:
    """Yield the topmost processes of ranks that a launcher below this rank started. A record of the
    launcher names this rank's process as top."""
    launchers = {(process.pid, process.start) for process in ended.others if any(_is_top(ended.end, record) for record in process.records)}
    for process in ended.others:
        if any(each.kind == RANK and each.parent and each.parent.key in launchers for each in process.records):
            yield process


def after_stop(record: Record, end: RankEnd) -> bool:
    """True if the process was signalled before the exception, by ranklaunch or by its launcher."""
    by_launcher = end.by_itself is False and bool(record.signal)
    return by_launcher or any(sent.at is not None and sent.at < record.at for sent in end.sent)


# Ranks that failed during the stop, or that had failed earlier but had not exited when the stop came
#
# Another failure had decided before. So these ranks are victims, but they did not use the stop as
# they should, for example to save their work.

MOST_WAITING = 4  # notes of ranks that had failed without exiting


def notes_of_stop(
    node: NodeEnds, suspects: Sequence[Suspect], known: Known, handles: Callable[[RankEnd], bool], log_of: Callable[[int], str]
) -> list[Note]:
    """Return notes about ranks that failed during the stop, or earlier without exiting.

    suspects: of this node, the one to blame first. handles: True for a process with a handler for
    the signal. Without a handler, an exit code of its own was chosen before the signal. log_of: name
    of a rank's log.
    """
    first = None if node.ending.from_elsewhere or not suspects else suspects[0]
    ends = [end for end in node.ends if _was_signalled(end) and not _is_first_culprit(end, first, node)]
    codes = {end.rank or 0: _own_code(end, known) for end in ends if end.signal or end.role == BELOW or handles(end)}
    failed = (Note(_failed_in_stop_text(rank, code, node, log_of(rank)), LATE, rank) for rank, code in sorted(codes.items()) if code)
    remaining = [end for end in ends if not codes.get(end.rank or 0)]
    return blame.few([*failed, *_notes_of_unended(remaining, first, node, known)])


def _notes_of_unended(ends: Sequence[RankEnd], first: Suspect | None, node: NodeEnds, known: Known) -> Iterator[Note]:
    """Yield notes of ranks that had failed without exiting, if such a rank may have ended the job."""
    stopped = node.ending.outcome == "stopped"
    if stopped or node.ending.from_elsewhere or (first and first.is_consequence):
        texts = ((end.rank, _failure_before_stop(end, node, known, stopped=stopped)) for end in ends)
        notes = (Note(_unended_text(rank, node, text), WAITING, rank) for rank, text in texts if text)
        yield from islice(notes, MOST_WAITING)


def _was_signalled(end: RankEnd) -> bool:
    """True for a rank that ranklaunch or its launcher signalled."""
    is_signalled = end.by_itself is False if end.role == BELOW else end.role == failures.RANK and bool(end.sent)
    return is_signalled and end.rank is not None


def _is_first_culprit(end: RankEnd, first: Suspect | None, node: NodeEnds) -> bool:
    culprit = first.culprit if first else None
    return bool(culprit and (culprit.node, culprit.rank) == (node.job.node_index, end.rank))


def _own_code(end: RankEnd, known: Known) -> int:
    """Return the exit code of a rank with an error of its own, 0 for none."""
    code = end.exit_code or 0
    if not code or end.signal or code in failures.OF_SIGNALS:
        return 0
    record = last_exception(end.records, "main")
    error = known(exceptions.traceback(record.chain) if record else end.output or "", code=code)
    return code if not error or blame.tells_why(error) else 0


def _failure_before_stop(end: RankEnd, node: NodeEnds, known: Known, *, stopped: bool) -> str:
    """Return the failure of a rank before the stop, "" for none: a recorded exception, or an error
    in its output. The rank may have caught it."""
    for record in end.records:
        if record.kind == EXCEPTION and record.at < node.ending.at and not after_stop(record, end):
            line = exceptions.shown(exceptions.bare_line_of(record.chain))
            thread = record.thread or "without a name"
            return f"its thread {thread} had failed: {line}" if record.where == "thread" else f"it had raised: {line}"
    if stopped:
        return ""
    error = known(failures.output_at_stop(end))
    return f"its output had an error: {error.line[: blame.ERROR_LINE]}" if error and error.kind in blame.OF_NO_OTHER else ""


def _on_node(rank: int | None, node: NodeEnds) -> str:
    """Return " on node ..." for a rank; "" in a job of one node."""
    if len(node.job.nodes) + len(node.job.idle) < 2:
        return ""
    index = failures.node_of(rank, node)
    return f" on {blame.place(index, failures.host_of(index, node))}"


def _failed_in_stop_text(rank: int, code: int, node: NodeEnds, log: str) -> str:
    return f"rank {rank}{_on_node(rank, node)} failed with exit code {code} while it was being stopped: see {log}"


def _unended_text(rank: int | None, node: NodeEnds, failure: str) -> str:
    return f"rank {rank}{_on_node(rank, node)} was still running when it was stopped, but {failure}"
