"""Suspects of one node: the failed processes, each with the evidence for its end. Pure.

REASONS are tried in their order for each failure; the first fitting rule explains the failure. The kernel's count of
kills for memory comes last and wins: it needs all failures of the node, in the order of time.
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
_OF_PEERS = (1, 134, 143)  # exit codes of a rank that has lost another one
_OF_ALL = "; among the last lines of all ranks: "


class Known(Protocol):
    """The catalogue of known errors."""

    def __call__(self, output: str, *, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
        """Return the known error in the last lines of an output, None for none.

        by_itself: nobody had told the process to end. shared: several ranks write into the output.
        code: exit code of the process, None where nobody knows it.
        """

    def peers(self, output: str, kind: str) -> tuple[int, ...]:
        """Return the ranks named by the last message of this kind. A consequence names silent
        ranks, a cause names failed ranks."""


class Evidence(NamedTuple):
    """Evidence for a failure. exception, error: the exception that the process recorded, and the
    catalogue's entry for it."""

    failed: Failed
    node: NodeEnds
    known: Known
    exception: Explanation | None = None
    error: KnownError | None = None

    @property
    def text(self) -> str:
        return self.exception.text if self.exception else self.failed.output


def diagnose(node: NodeEnds, known: Known) -> list[Suspect]:
    """Return the suspects of a node, whoever is to blame first."""
    exceptions = _exceptions(node, known)
    suspects = [*_own(node), *_daemons(node)]
    for failed in failures.failed(node):
        evidence = Evidence(failed, node, known, *next((each for end, *each in exceptions if _is_of(failed.culprit, end)), ()))
        suspect = next(filter(None, (rule(evidence) for rule in REASONS)), None)
        if suspect:  # else it may have been told to end, and names no cause
            suspects += [_of_named(suspect, evidence), *waited_for(suspect, evidence)]
    suspects += _raised_first(suspects, exceptions, node)
    suspects = _with_memory(_silent_last(suspects), node)
    return blame.ordered(_without_stopped(suspects, node) if node.stop else suspects)


# Failures that no process of a rank tells


def _own(node: NodeEnds) -> Iterator[Suspect]:
    """Yield ranklaunch's own end: a stop request, a wait in vain, a kill."""
    ending, index = node.ending, node.job.node_index
    if ending.pid is None and not ending.from_elsewhere:
        own = blame.suspect_of(ending, index, ending.at)
        several = len(node.job.nodes) + len(node.job.idle) > 1
        yield blame.of_ranklaunch(own, failures.host_of(index, node), several=several, killed=ending.killed, hung=ending.hung)


def _daemons(node: NodeEnds) -> Iterator[Suspect]:
    """Yield killed daemons that carried another node's ranks. The launcher on that node cannot know
    the reason."""
    for end in node.ends:
        if end.role == DAEMON and (end.at or 0.0) < node.ending.at:
            yield failures.suspect_of(end, node, end.at or 0.0)


# Reasons


def by_exception(of: Evidence) -> Suspect | None:
    """The process recorded an exception that tells why it ended. The time of the failure is the
    time of the exception."""
    return None if not of.error or _distance(of.error) else _recorded(of)


def by_output(of: Evidence) -> Suspect | None:
    """A known error stands in the last lines of the process. A recorded exception about another
    failure gives way to a cause alone.

    Words of a lost peer in an output of several ranks are another's if the launcher names this rank
    as the first, and it ended as nobody does for another.
    """
    failed, error = of.failed, _in_output(of.failed, of.known)
    if not error or (failed.only_known and not error.meaning):
        return None
    if error.kind not in blame.OF_NO_OTHER and (failed.only_cause or of.error):
        return None
    if failed.shared and not blame.tells_why(error) and _ended_alone(failed.culprit):
        return _among_all(of, _shown(error).line)
    return _with_report(of, error, failed.suspect.at)


def _ended_alone(culprit: Culprit) -> bool:
    """True for an end of a rank that the loss of a peer does not produce."""
    return culprit.rank is not None and culprit.exit_code not in _OF_PEERS


def by_exception_about_another(of: Evidence) -> Suspect | None:
    """The process recorded an exception that only tells of another failure: of a peer, a worker, or
    a command."""
    return None if of.failed.only_cause else _recorded(of)


def by_exit_status(of: Evidence) -> Suspect | None:
    """Nothing else is known: the exit code or the signal alone tells of the failure."""
    if of.failed.only_cause:
        return None
    if of.failed.shared and of.failed.launcher:
        return _among_all(of, showing.printable(showing.last_line(failures.last_lines(of.failed.output))).strip())
    return of.failed.suspect


REASONS: tuple[Callable[[Evidence], Suspect | None], ...] = (by_exception, by_output, by_exception_about_another, by_exit_status)


def _recorded(of: Evidence) -> Suspect | None:
    if not of.exception or not of.error:
        return None
    ended_at = of.failed.suspect.at
    at = min(ended_at, of.exception.at) if of.exception.sure else ended_at
    return replace(_with_report(of, of.error, at), because=(of.exception.because,))


def _among_all(of: Evidence, line: str) -> Suspect:
    """Return a suspect with a line of the shared output, maybe written by another rank."""
    words = blame.sentence(replace(of.failed.culprit, last_lines=()))
    return replace(of.failed.suspect, reason=f"{words}{_OF_ALL}{line[: blame.SEEN]}" if line else words)


def _with_report(of: Evidence, error: KnownError, at: float) -> Suspect:
    """Return a suspect with an error; for a consequence, with the report of a launcher started by
    the program."""
    is_report = error.kind == blame.CONSEQUENCE and blame.TIMEOUT not in error.name
    report = failures.inner_report(of.failed.output) if is_report else ""
    reason = f"{blame.sentence(replace(of.failed.culprit, last_lines=()))}: {report}" if report else ""
    return replace(of.failed.suspect, at=at, reason=reason, culprit=_with_error(of.failed.culprit, error, at))


def waited_for(suspect: Suspect, of: Evidence) -> Iterator[Suspect]:
    """The last message of a failed rank names a rank that did not answer. The silent rank is named if
    no other failure has a cause."""
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
    """Return the failed rank named by a cause, if all ranks raise the same exception; else the
    suspect itself."""
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
    index = failures.node_of(rank, node)
    return replace(culprit, node=index, rank=rank, pid=None, name=f"rank {rank}", host=failures.host_of(index, node))


def _in_output(failed: Failed, known: Known) -> KnownError | None:
    """Return the known error in a rank's output, or else a cause in the launcher's report, such as
    a wrong call of MPI."""
    output = failed.output
    error = known(output, by_itself=failed.by_itself, shared=failed.shared, code=failed.culprit.exit_code) if output else None
    if error or not failed.launcher or failed.culprit.signal:
        return error
    error = known(failures.words_of(failed.launcher).removeprefix(output))
    return error if error and error.kind == blame.CAUSE and error.meaning else None


def _exceptions(node: NodeEnds, known: Known) -> list[tuple[RankEnd, Explanation, KnownError]]:
    """Return the recorded exception behind each end, with its known error. The exception nearest to
    the reason wins."""
    explained = []
    for end, fitting in explanations(node) if node.ending.outcome == "failed" else ():
        errors_of = [(each, _of_exception(each, known)) for each in fitting]
        explained.append((end, *min(errors_of, key=lambda each: _distance(each[1]))))
    return explained


def _distance(error: KnownError) -> int:
    """Return how far an exception is from the reason. 0: it is the reason. 1: a process or a
    command of the rank failed. 2: another rank failed."""
    if error.kind == blame.CAUSE and error.name not in blame.LOST_CHILDREN:
        return 0
    return 1 if blame.tells_why(error) else 2


def _of_exception(explanation: Explanation, known: Known) -> KnownError:
    """Return the catalogue's entry for an exception, with the exception as the line."""
    usual = KnownError("python-uncaught-exception", blame.CAUSE, "", "", "", "")
    error = known(explanation.text, code=UNCAUGHT)
    return replace(error if error and error.kind != blame.UNKNOWN else usual, line=explanation.line)


def _is_of(culprit: Culprit | None, end: RankEnd) -> bool:
    """True if a culprit is this process. A rank without a seen process is known by its number."""
    if not culprit or culprit.node != end.node:
        return False
    if culprit.pid is not None and end.pid is not None:
        return culprit.pid == end.pid
    return culprit.rank is not None and culprit.rank == end.rank


def _raised_first(
    suspects: Sequence[Suspect], exceptions: Sequence[tuple[RankEnd, Explanation, KnownError]], node: NodeEnds
) -> Iterator[Suspect]:
    """Yield ranks with an uncaught exception before any signal. Their exit code is 1, whatever
    signal followed. A time-out counts too: the peers fail when this rank leaves."""
    first = min((each.at for each in suspects if each.culprit), default=0.0)
    for end, exception, error in exceptions:
        known = any(_is_of(each.culprit, end) for each in suspects)
        counts = exception.sure and (blame.tells_why(error) or blame.TIMEOUT in error.name)
        if known or not counts or exception.at > _told_at(end, first):
            continue
        suspect = failures.suspect_of(replace(end, exit_code=UNCAUGHT, signal=0), node, exception.at, exception.text)
        culprit = suspect.culprit and _with_error(suspect.culprit, error, exception.at)
        yield replace(suspect, culprit=culprit, because=(exception.because,))


def _told_at(end: RankEnd, first: float) -> float:
    """Return the time of the first signal to a process, or of its end without one. first: time of
    the first failure, used for a rank of a launcher: nobody sees the launcher's signals."""
    if end.by_itself is False:
        return first
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times, default=end.at if end.at is not None else first)


def _silent_last(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Order a launcher without a rank and without an error behind its ranks with an error."""
    known = (each.at for each in suspects if each.culprit and each.culprit.rank is not None and each.culprit.error)
    after = max(known, default=0.0) + AFTER_S
    return [replace(each, at=max(each.at, after)) if each.culprit and _is_silent(each.culprit) else each for each in suspects]


def _is_silent(culprit: Culprit) -> bool:
    return culprit.rank is None and not culprit.error and not culprit.signal


def _with_memory(suspects: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Mark as many killed processes as the kernel counts kills for memory, the earliest first."""
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
    return [*result, *(_unseen(node) if kills and not suspects else ())]


def _is_counted(culprit: Culprit, kills: int, lately: int) -> bool:
    """True for a killed process, and for a rank that lost a process of its own. kills: remaining
    ones of the kernel's count. lately: those at the time of this end."""
    if lately and culprit.exit_code == _KILLED:
        return True
    return kills > 0 and _lost_a_process(culprit)


def _killed_for_memory(suspect: Suspect, culprit: Culprit, node: NodeEnds) -> Suspect:
    culprit = replace(culprit, out_of_memory=True)
    reason = f"{blame.sentence(culprit)}{node.memory.described}"
    return replace(suspect, culprit=culprit, reason=reason, because=())


def _killed_for_another_reason(suspect: Suspect, culprit: Culprit, node: NodeEnds) -> Suspect:
    reason = f"{suspect.reason or blame.sentence(culprit)}; the kernel killed nothing here for memory"
    return replace(suspect, reason=f"{reason} then" if node.memory.kills else reason)


def _may_be_for_memory(culprit: Culprit, node: NodeEnds) -> bool:
    is_here = culprit.node == node.job.node_index and culprit.exit_code == _KILLED
    return is_here and node.memory.counted and (not culprit.error or culprit.error.name == KILLED)


def _lost_a_process(culprit: Culprit) -> bool:
    return culprit.signal is None and bool(culprit.error and culprit.error.name == KILLED)


def _unseen(node: NodeEnds) -> Iterator[Suspect]:
    """Yield a rank that another node started here: its end is seen there, the kernel's count here."""
    if not any(end.role in ("rank", "launcher") for end in node.ends):
        at, index = node.ending.at, node.job.node_index
        culprit = Culprit(index, None, None, _KILLED, "SIGKILL", True, (), "a process", failures.host_of(index, node), blame.iso(at))
        yield Suspect(index, at, "failed", _KILLED, f"{blame.sentence(culprit)}{node.memory.described}", culprit)


def _without_stopped(suspects: Sequence[Suspect], node: NodeEnds) -> list[Suspect]:
    """Replace ranks that died of the stop request's signal, at its time, by the stop request.
    Slurm, for one, signals ranks as well."""
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
# RECORD_RULES are tried in their order. The first that finds an exception decides; an exception
# about another failure gives way to one that a later rule finds. A record alone proves nothing: the
# exit status must fit, and the exception must be the last one of its process. The time of the
# failure is the time of the exception.

SOON_S = 10.0  # from an exception to the end of its process, where the exit status alone does not say that the exception ended it
CLOCK_S = 0.05  # that a record may seem to be later than the end of its process: each time is turned into node 0's by itself
CHILD_S = 5.0  # from the exception of a child to the end of its rank
UNCAUGHT = 1  # exit code of Python after an exception that nobody caught


@dataclass(frozen=True)
class Explanation:
    """An exception behind the end of a process. at: seconds since 1970 by node 0's clock. line:
    type and message. text: the traceback as Python prints it. sure: the exception alone ends its
    process, whatever follows."""

    at: float
    line: str
    text: str
    because: Because
    sure: bool = True


class Ended(NamedTuple):
    """A process that ended, and the other processes of its node with records. alone: the only
    program of the node."""

    end: RankEnd
    others: Sequence[OtherProcess]
    alone: bool = False

    def soon(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process ended, or was signalled, within so many seconds after it;
        also if the time of the end is unknown."""
        gone = min((sent.at for sent in self.end.sent if sent.at is not None), default=self.end.at)
        return record if record and (gone is None or -CLOCK_S < gone - record.at < seconds) else None

    def soon_by_itself(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process ended within so many seconds, and by no signal."""
        return None if self.end.signal else self.soon(record, seconds)


RecordRule = Callable[[Ended], Optional[Record]]


def in_main_thread(of: Ended) -> Record | None:
    """The main thread of the rank raised an exception that nobody caught.

    Such an exception ends a Python program with code 1, or with a signal that came while Python was
    ending. If the program chose another exit code, it must exit within seconds. An interactive
    console can continue after an exception.
    """
    record = last_exception(of.end.records, "main")
    return record if of.end.signal or of.end.exit_code == UNCAUGHT else of.soon(record, SOON_S)


def in_program_of_shell(of: Ended) -> Record | None:
    """A Python program in the rank's shell script raised an exception that nobody caught. The script
    ended within seconds."""
    return of.soon(last_exception(_records(_programs(of)), "main"), SOON_S)


def in_other_thread(of: Ended) -> Record | None:
    """Another thread of the rank raised an exception, and the rank exited by itself within seconds.
    For example, the thread called os._exit, or the main thread noticed the failure."""
    return of.soon_by_itself(last_exception(of.end.records, "thread"), SOON_S)


def in_child(of: Ended) -> Record | None:
    """A process that the rank had started (a worker, or Python in a shell) raised an exception, and
    the rank exited by itself within seconds."""
    return of.soon_by_itself(last_exception(_records(_processes_below(of)), "main", "process"), CHILD_S)


def in_nested_rank(of: Ended) -> Record | None:
    """The rank had started a launcher. A rank of this launcher raised an exception, and the outer
    rank exited by itself within seconds."""
    raised = filter(None, (last_exception(process.records, "main") for process in _nested(of)))
    return of.soon_by_itself(min(raised, key=attrgetter("at"), default=None), CHILD_S)


RECORD_RULES: tuple[RecordRule, ...] = (in_main_thread, in_program_of_shell, in_other_thread, in_child, in_nested_rank)


def explanations(node: NodeEnds) -> Iterator[tuple[RankEnd, list[Explanation]]]:
    """Yield the ends of ranks and programs with a recorded exception, in the order of their ends,
    and their exceptions in the order of the rules."""
    alone = sum(end.rank is not None or not end.launcher for end in node.ends) == 1
    for end in node.ends:
        fitting = [] if end.launcher or end.exit_code == 0 else [*_fitting(end, node, alone=alone)]
        if fitting:
            yield end, fitting


def despite_success(node: NodeEnds) -> Iterator[tuple[int, str]]:
    """Yield ranks that ended with 0 after an uncaught exception of their program: the rank, and the
    exception with its place."""
    for end in node.ends:
        if end.rank is not None and end.exit_code == 0 and not end.launcher:
            programs = (process.records for process in _programs(Ended(end, node.others)))
            record = next(filter(None, (last_exception(written, "main") for written in (end.records, *programs))), None)
            if record:
                yield end.rank, exceptions.shown(exceptions.line_of(record.chain))


def _fitting(end: RankEnd, node: NodeEnds, *, alone: bool) -> Iterator[Explanation]:
    """Yield the exceptions that fit an end, in the order of the rules. alone: the only program of
    its node."""
    for rule in RECORD_RULES:
        record = rule(Ended(end, node.others, alone))
        if record and not after_stop(record, end):
            yield _explanation(record, rule, end, node.job.node_index)


def _explanation(record: Record, rule: RecordRule, end: RankEnd, node: int) -> Explanation:
    chain = record.chain
    says = exceptions.shown(exceptions.line_of(chain))
    frame = chain[0].frames[-1] if chain[0].frames else None
    of = Of(node, end.rank, frame.file if frame else "", frame.line if frame else 0)
    name = rule.__name__.replace("_", "-")
    line = exceptions.shown(exceptions.bare_line_of(chain))
    return Explanation(
        record.at,
        line,
        exceptions.traceback(chain),
        Because(f"exception-{name}", says, of),
        rule in (in_main_thread, in_program_of_shell),
    )


def last_exception(written: Iterable[Record], *sources: str) -> Record | None:
    """Return the last exception record from main, thread or process, as `sources` name them."""
    raised = [each for each in written if each.kind == EXCEPTION and each.chain and each.where in sources]
    return raised[-1] if raised else None


def _records(processes: Iterable[OtherProcess]) -> list[Record]:
    return [record for process in processes for record in process.records]


def _processes_below(of: Ended) -> Iterator[OtherProcess]:
    """Yield the processes of a rank besides its own: their records name the rank's process as their
    top.

    Without a top, the rank number of their variables decides; without a number, they belong to the
    only program of a node.
    """
    for process in of.others:
        if any(each.kind == LAUNCHER for each in process.records):
            continue
        is_named = of.alone if process.rank is None else process.rank == of.end.rank
        if any(_is_top(of.end, each) for each in process.records) or (is_named and not any(each.top for each in process.records)):
            yield process


def _programs(of: Ended) -> Iterator[OtherProcess]:
    """Yield the heads of a rank whose own process is a shell."""
    yield from (each for each in of.others if any(record.kind == RANK and _is_top(of.end, record) for record in each.records))


def _is_top(end: RankEnd, record: Record) -> bool:
    return record.top is not None and record.top.key == (end.pid, end.start)


def _nested(of: Ended) -> Iterator[OtherProcess]:
    """Yield the heads of ranks that a launcher below a rank has started. The launcher's own
    exception names the top of the rank."""
    launchers = {(process.pid, process.start) for process in of.others if any(_is_top(of.end, record) for record in process.records)}
    for process in of.others:
        if any(each.kind == RANK and each.parent and each.parent.key in launchers for each in process.records):
            yield process


def after_stop(record: Record, end: RankEnd) -> bool:
    """True if the process was signalled before the exception, by ranklaunch or by its launcher."""
    by_launcher = end.by_itself is False and bool(record.signal)
    return by_launcher or any(sent.at is not None and sent.at < record.at for sent in end.sent)


# Ranks that failed during the stop, or had failed without ending when it came
#
# The failure that decided came before. So these ranks are victims, but they did not do what a rank
# does then, such as saving its work.

MOST_WAITING = 4  # ranks that had said something before


def notes_of_stop(
    node: NodeEnds, suspects: Sequence[Suspect], known: Known, handles: Callable[[RankEnd], bool], log_of: Callable[[int], str]
) -> list[Note]:
    """Return a note for each such rank.

    suspects: of this node, the one to blame first. handles: True for a process with a handler for
    the signal; without one, an exit code of its own is from before the signal. log_of: name of a
    rank's log.
    """
    first = None if node.ending.from_elsewhere or not suspects else suspects[0]
    ends = [end for end in node.ends if _was_signalled(end) and not _is_first(end, first, node)]
    codes = {end.rank or 0: _own_code(end, known) for end in ends if end.signal or end.role == BELOW or handles(end)}
    failed = (Note(_failed_text(rank, code, node, log_of(rank)), LATE, rank) for rank, code in sorted(codes.items()) if code)
    remaining = [end for end in ends if not codes.get(end.rank or 0)]
    return blame.few([*failed, *_notes_of_waiting(remaining, first, node, known)])


def _notes_of_waiting(ends: Sequence[RankEnd], first: Suspect | None, node: NodeEnds, known: Known) -> Iterator[Note]:
    """Yield notes of ranks that had failed without ending, if this may have ended the job."""
    asked = node.ending.outcome == "stopped"
    if asked or node.ending.from_elsewhere or (first and first.is_consequence):
        texts = ((end.rank, _before(end, node, known, asked=asked)) for end in ends)
        notes = (Note(_still_there(rank, node, text), WAITING, rank) for rank, text in texts if text)
        yield from islice(notes, MOST_WAITING)


def _was_signalled(end: RankEnd) -> bool:
    """True for a rank with a signal from ranklaunch or from its launcher."""
    is_signalled = end.by_itself is False if end.role == BELOW else end.role == failures.RANK and bool(end.sent)
    return is_signalled and end.rank is not None


def _is_first(end: RankEnd, first: Suspect | None, node: NodeEnds) -> bool:
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


def _before(end: RankEnd, node: NodeEnds, known: Known, *, asked: bool) -> str:
    """Return the failure of a rank before the stop, "" for none: a recorded exception, or an error
    in its output, maybe caught."""
    for record in end.records:
        if record.kind == EXCEPTION and record.at < node.ending.at and not after_stop(record, end):
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
    index = failures.node_of(rank, node)
    return f" on {blame.place(index, failures.host_of(index, node))}"


def _failed_text(rank: int, code: int, node: NodeEnds, log: str) -> str:
    return f"rank {rank}{_place(rank, node)} failed with exit code {code} while it was being stopped: see {log}"


def _still_there(rank: int | None, node: NodeEnds, what: str) -> str:
    return f"rank {rank}{_place(rank, node)} had not ended when it was told to, but {what}"
