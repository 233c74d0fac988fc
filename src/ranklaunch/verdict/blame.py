"""Choice of the suspect that decides a job, with conclusions and texts about the failure. Pure.

A suspect is an end that no stop request preceded. The earliest one decides, unless its output shows
that it is a consequence of another rank's failure: a cause always comes before a consequence,
however early ranklaunch saw the consequence.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ranklaunch import showing
from ranklaunch.verdict.model import (
    CAUSE,
    CONSEQUENCE,
    ELSEWHERE,
    LATE,
    NO,
    STOPPED,
    UNKNOWN,
    WAITING,
    WHOLE,
    YES,
    Because,
    Culprit,
    Ending,
    Finish,
    Judgement,
    KnownError,
    Note,
    Of,
    Suspect,
    tells_why,
)

__all__ = ["CAUSE", "CONSEQUENCE", "UNKNOWN", "Finish", "Judgement", "Suspect", "tells_why"]  # values of verdict.model, for callers

RETRY = {
    NO: "started as it is, the job ends the same way",
    YES: "to start the job anew may be enough",
    ELSEWHERE: "start the job on other hosts",
}
RANKLAUNCH = "ranklaunch"  # name of a culprit: ranklaunch itself
MOST_FAILURES = 8  # failures besides the culprit's, in a verdict
MOST_NOTES = 8
_MOST_EARLY = 2  # failures before a stop
MOST_NAMED = 5  # ranks that failed while they were being stopped; further ones are only counted
_AFTER_LOST_PEER = ("SIGABRT", 1, 128 + 6)  # signal and exit codes of a rank that its framework or program ends after the loss of a peer
OF_NO_OTHER = (CAUSE, UNKNOWN)  # kinds of errors that are about neither another failure nor a stop
LOST_CHILDREN = ("torch-dataloader-worker-died", "python-process-pool-broken")  # the cause stands above in the output
AFTERMATHS = ("torch-process-group-left",)  # causes that may themselves follow from another rank's failure
TIMEOUT = "timeout"  # part of the name of a known error
WAITED_FOR = "waited-for"  # rule by which a time-out message names the rank that did not answer
OF_A_STOP_S = 2.0  # from a stop request to the end of a rank that the same sender signalled, at most
ENDS_S = 2.0  # from the time-out of a rank to its end, with its traceback
# Seconds from a crash until ranklaunch sees the exit. Peers may notice the crash, and write their own
# error, within this time. SIGKILL is never a reaction to the end of a peer, so its time is longer;
# some libraries do crash when a peer ends.
_SEEN_AFTER_S = {"SIGKILL": 0.1, **dict.fromkeys(("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"), 0.05)}
LINES = 20  # of a culprit's output
LINE = 300  # characters of a line
WORD = 100  # characters of a name
HOST = 253  # characters of a host's name: the limit of DNS
SAID = 2000  # characters of a reason
ERROR_LINE = 300  # characters of the line that explains the end


def judge(suspects: Iterable[Suspect], finishes: Sequence[Finish] = (), notes: Iterable[Note] = ()) -> Judgement:
    """Return the judgement about a job with at least one suspect."""
    first, *others = ordered(_without_killed_with_ranklaunch(_with_proof(list(suspects))))
    culprit = first.culprit
    others = [other for other in others if not _is_same(other.culprit, culprit)]
    return Judgement(
        outcome=first.outcome,
        exit_code=first.exit_code,
        reason=first.reason or (sentence(culprit) if culprit else ""),
        culprit=culprit,
        failures=tuple(replace(s.culprit, last_lines=()) for s in others if s.culprit and not _only_waited_for(s))[:MOST_FAILURES],
        notes=_texts_of_notes(
            [*notes_of([first, *others], notes), *_before_stop(first, others)], tuple(_notes_of_finishes(first, finishes)), culprit
        ),
        because=rules_that_decided(first, others),
    )


def _before_stop(first: Suspect, others: Sequence[Suspect]) -> Iterable[Note]:
    """Yield notes of failures before a stop request. These ranks may have lost a peer that was
    stopped first."""
    early = [(each, each.culprit) for each in others if each.culprit and each.at < first.at]
    if first.outcome == "stopped" and not first.culprit:
        for suspect, culprit in sorted(early, key=lambda each: each[0].at)[:_MOST_EARLY]:
            yield Note(f"{first.at - suspect.at:.1f} s before the stop, {sentence(culprit)}")


def _only_waited_for(suspect: Suspect) -> bool:
    """True for a silent rank without a failure of its own: a peer waited for its answer."""
    return suspect.late and bool(suspect.culprit and not suspect.culprit.error)


def _texts_of_notes(notes: Sequence[Note], early: tuple[str, ...], culprit: Culprit | None) -> tuple[str, ...]:
    """Return the texts of notes. Notes of ranks that failed during the stop come last, in the
    remaining places."""
    texts = (*dict.fromkeys(note.text for note in notes if note.kind != LATE), *early)[:MOST_NOTES]
    late = [note for note in notes if note.kind == LATE and not (culprit and note.rank is not None and note.rank == culprit.rank)]
    return (*texts, *(note.text for note in few(late, MOST_NOTES - len(texts))))


def few(notes: Sequence[Note], room: int = MOST_NOTES) -> list[Note]:
    """Limit the notes of ranks that failed during the stop: keep the first ones, and add a note with
    the number of the rest. Notes of other kinds are kept. room: number of notes."""
    named = [note for note in notes if note.kind == LATE and not note.more]
    more = sum(note.more for note in notes)
    most = max(0, min(MOST_NAMED, room if len(named) <= room and not more else room - 1))
    more += len(named[most:])
    they = "ranks failed while they were" if more > 1 else "rank failed while it was"
    others = [note for note in notes if note.kind != LATE]
    return [*named[:most], *([Note(f"{more} more {they} being stopped", LATE, None, more)] if more and room > 0 else []), *others]


def _with_proof(suspects: list[Suspect]) -> list[Suspect]:
    """Join a node's suspect from the kernel's count with the killed rank of that node, whose end
    another node's launcher saw."""
    for proof, counted in [(s, s.culprit) for s in suspects if s.culprit and s.culprit.out_of_memory and s.culprit.pid is None]:
        killed = [(s, s.culprit) for s in suspects if s.culprit and s.culprit.node == counted.node and _is_killed(s.culprit)]
        if killed:
            seen, culprit = min(killed, key=lambda each: each[0].at)
            culprit = replace(culprit, out_of_memory=True)
            reason = sentence(culprit) + proof.reason[len(sentence(counted)) :]
            suspects = [*(s for s in suspects if s not in (proof, seen)), replace(seen, culprit=culprit, reason=reason)]
    return suspects


def _without_killed_with_ranklaunch(suspects: list[Suspect]) -> list[Suspect]:
    """Drop ranks that ended because ranklaunch on their node was killed: the guard process killed
    them, and another node's launcher reported them."""
    killed_at = {s.culprit.node: s.at for s in suspects if s.culprit and s.culprit.name == RANKLAUNCH and s.culprit.signal}
    return [s for s in suspects if not (s.culprit and _is_killed(s.culprit) and s.at >= killed_at.get(s.culprit.node, float("inf")))]


def _is_same(one: Culprit | None, other: Culprit | None) -> bool:
    """True for the same rank. One suspect may come from the process, one from the output."""
    return bool(one and other and one.rank is not None and (one.node, one.rank) == (other.node, other.rank))


def _is_killed(culprit: Culprit) -> bool:
    """True for a rank killed by SIGKILL, but not for memory by the kernel's count."""
    killed = culprit.signal == "SIGKILL" or culprit.exit_code == 128 + signal.SIGKILL  # exit code of a shell whose program was killed
    return killed and culprit.rank is not None and not culprit.out_of_memory


def ordered(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Sort suspects, the one to blame first.

    The first of several nodes' suspects is always the first suspect of one of these nodes. Suspects
    marked `late` come last if the end of the first other suspect is clear.
    """
    suspects = list(suspects)
    first = min((s for s in suspects if not s.late), key=_rank, default=None)
    clear = first is not None and _is_clear(first)
    return sorted(suspects, key=lambda s: (s.late and clear, *_rank(s)))


def _rank(suspect: Suspect) -> tuple[bool, float]:
    """Return the sort key of a suspect: consequences last, then by time.

    Times are corrected because peers may notice an end before ranklaunch sees the exit: a rank that
    timed out closes its connections before it exits, and a crash closes them at once.
    """
    culprit = suspect.culprit
    if suspect.is_consequence:
        return True, suspect.at - (ENDS_S if culprit and culprit.error and TIMEOUT in culprit.error.name else 0.0)
    rank_signal = culprit.signal if culprit and culprit.rank is not None else None  # not a launcher: maybe killed after it ended its ranks
    return False, suspect.at - _SEEN_AFTER_S.get(rank_signal or "", 0.0)


def _is_clear(suspect: Suspect) -> bool:
    """True for an end with a known cause, and for an end that the loss of a peer does not produce:
    an unusual exit code, a crash, an interrupt."""
    culprit = suspect.culprit
    if not culprit or culprit.out_of_memory:
        return True
    if culprit.error:
        return tells_why(culprit.error) and culprit.error.name not in AFTERMATHS
    return (culprit.signal or culprit.exit_code) not in _AFTER_LOST_PEER


def suspect_of(ending: Ending, node: int, at: float) -> Suspect:
    """Return the ending of a node as a suspect. at: seconds since 1970 by node 0's clock."""
    judged = ending.judgement
    return Suspect(node, at, judged.outcome, judged.exit_code, judged.reason, judged.culprit, because=judged.because)


def of_ranklaunch(own: Suspect, host: str, *, several: bool, killed: bool, hung: bool) -> Suspect:
    """Return ranklaunch's own end, with its node in the reason.

    several: the job has more than one node. killed: SIGKILL ended ranklaunch. hung: the job hung;
    the reason is then the sentence about the culprit's end.
    """
    culprit = Culprit(own.node, None, None, 137, "SIGKILL", False, (), RANKLAUNCH, host, iso(own.at)) if killed else own.culprit
    where = f"{place(own.node, host)}: " if several else ""
    return replace(
        own, node=culprit.node if culprit else own.node, reason="" if own.culprit and hung else f"{where}{own.reason}", culprit=culprit
    )


# Conclusions from the ends of several ranks

_FEWEST = 2  # ranks for a conclusion
# Errors that a collective raises in all its ranks, whichever rank differs.
OF_COLLECTIVES = (
    "horovod-ranks-differ", "nccl-collective-mismatch", "tensorflow-collectives-differ", "torch-collective-sizes-differ",
    "torch-ddp-shapes-differ",
)  # fmt: skip
_DOWN = ": its host or the network to it is down"
# Reasons about a node that is lost, or cut off from all other nodes.
SILENT = re.compile(r"node (?P<node>[0-9]{1,7})(?: \([^)]*\))? (?:does not answer: |hears none of the )")


def notes_of(suspects: Sequence[Suspect], notes: Iterable[Note]) -> Iterator[Note]:
    """Yield the notes of nodes, then conclusions from all suspects.

    A rank that failed without exiting is noted only if the first suspect may have lost this rank.
    suspects: the one to blame first.
    """
    lost, notes = suspects[0].is_consequence or suspects[0].outcome == "stopped", list(notes)
    whole = [note for note in notes if note.kind == WHOLE]
    apart = len(whole) == 1 and len({each.node for each in suspects}) == 1
    yield from (note for note in notes if (lost or note.kind != WAITING) and (apart or note.kind != WHOLE))
    yield from map(Note, () if apart else _notes_of_same_errors(suspects))
    silent = (each.reason for each in suspects[1:] if not each.culprit and SILENT.match(each.reason))
    yield from (Note(reason.replace(_DOWN, "")) for reason in silent)  # a lost node that did not decide: the network here may be down


def _notes_of_same_errors(suspects: Sequence[Suspect]) -> Iterable[str]:
    """Yield a note if all ranks ended with the same error.

    If these ranks are on several nodes, no single host is the cause. No note for errors of hosts,
    and none if the first suspect is no process, for example after a hang.
    """
    culprits = _distinct_culprits(suspects) if suspects[0].culprit else []
    texts = [_program_error(culprit) for culprit in culprits]
    if len(texts) < _FEWEST or not texts[0] or len(set(texts)) > 1:
        return
    same = f"{len(texts)} ranks ended with the same error"
    of_one_host = f"{len(texts)} ranks of one host ended with the same error"
    if texts[0].partition(": ")[0] in OF_COLLECTIVES:
        yield f"{same}, about a difference between ranks: the named rank need not be the wrong one"
    elif len({culprit.node for culprit in culprits}) > 1:
        yield f"{same}: the cause is not one rank or host, but the program or something that the ranks share"
    else:
        yield f"{of_one_host}: the cause is not one rank, but the program or the host"


def _distinct_culprits(suspects: Sequence[Suspect]) -> list[Culprit]:
    """Return the culprit of each rank once; [] if a launcher is among them, because launchers of
    several nodes may share a broken image."""
    by_rank: dict[tuple[int, int | None], Culprit] = {}
    for culprit in (suspect.culprit for suspect in suspects if suspect.culprit):
        by_rank.setdefault((culprit.node, culprit.rank), culprit)
    culprits = [*by_rank.values()]
    return [] if any(culprit.rank is None for culprit in culprits) else culprits


def of_whole_node(suspects: Sequence[Suspect], ranks: Collection[int], place: str) -> Iterable[str]:
    """Yield a text if all ranks of a node failed with an error of their own. ranks: the node's. place: the node, for people."""
    causes = (each.culprit for each in suspects if each.culprit and each.culprit.error and each.culprit.error.kind == "cause")
    failed = {culprit.rank for culprit in causes}
    if len(ranks) >= _FEWEST and failed.issuperset(ranks):
        yield f"all {len(ranks)} ranks of {place} failed with an error of their own, and no rank of another node did"


def waited_for(suspects: Sequence[Suspect], ranks: Collection[int]) -> Iterable[str]:
    """Yield a note if all ranks of a node but one failed as a consequence: they may have waited for
    the remaining rank."""
    culprits = [suspect.culprit for suspect in suspects if suspect.culprit and suspect.is_consequence and suspect.culprit.rank is not None]
    remaining = sorted(set(ranks) - {culprit.rank for culprit in culprits})
    if len(culprits) == len(suspects) >= _FEWEST and len(remaining) == 1:
        yield f"rank {remaining[0]} had not failed when the other ranks of its node did: they may have waited for it"


def _program_error(culprit: Culprit) -> str:
    """Return a culprit's error with all numbers as 0, to compare ranks; "" unless the cause is in the
    program."""
    error = culprit.error
    of_program = error and error.kind in ("cause", "unknown") and error.retry != ELSEWHERE
    return f"{error.name}: {re.sub('[0-9]+', '0', error.line)}" if error and of_program else ""


# Texts


def name(culprit: Culprit) -> str:
    return f"rank {culprit.rank}" if culprit.rank is not None else culprit.name


def place(node: int, host: str) -> str:
    return f"node {node} ({host})" if host else f"node {node}"


def sentence(culprit: Culprit) -> str:
    who = f"{name(culprit)} on {place(culprit.node, culprit.host)}"
    how = f"was killed by {culprit.signal}" if culprit.signal else f"exited with code {culprit.exit_code}"
    if culprit.out_of_memory:
        return f"{who} {how}: out of memory, by the kernel's own count"
    error = culprit.error
    if not error:
        last = showing.printable(showing.last_line(culprit.last_lines))[:ERROR_LINE].strip()
        return f"{who} {how}; its last line: {last}" if last else f"{who} {how}"
    if error.kind == STOPPED:
        return f"{who} {how}: it was told to end: {error.line[:ERROR_LINE]}"
    if not tells_why(error):
        return f"{who} {how}, which looks like the consequence of another failure that left no trace: {error.line[:ERROR_LINE]}"
    return f"{who} {how}: {error.line[:ERROR_LINE]}"


def last_words(culprit: Culprit) -> tuple[str, tuple[str, ...]]:
    """Return a heading for the console ("" for none) and the culprit's last lines."""
    if not culprit.last_lines:
        return f"{name(culprit)} wrote nothing" if culprit.rank is not None else "", ()
    return f"last lines of {name(culprit)}:", culprit.last_lines


def advice(culprit: Culprit | None) -> Iterable[str]:
    if not culprit:
        return
    text = meaning(culprit)
    if text:
        yield f"{'remedy' if culprit.out_of_memory else 'meaning'}: {text}"
    if culprit.error and not culprit.out_of_memory:
        yield from _advice(culprit.error, culprit.host)


def _advice(error: KnownError, host: str) -> Iterable[str]:
    if error.meaning:
        yield f"meaning: {error.meaning}"
        yield f"remedy: {error.remedy} ({error.source})"
    if error.retry in RETRY:
        yield f"again: {RETRY[error.retry]}{f', without {host}' if error.retry == ELSEWHERE and host else ''}"


# Meaning of exit codes and signals without a message

_OF_SIGNALS = {
    "SIGSEGV": "it accessed memory that is not its own: a defect in compiled code, or packages that do not fit each other",
    "SIGABRT": "it called abort(), as C and C++ do at a failed assertion or an uncaught exception",
    "SIGBUS": "a page of a mapped file was missing: usually /dev/shm is full, or a mapped file became shorter",
    "SIGILL": "a library uses an instruction that this processor does not have",
    "SIGFPE": "compiled code divided by zero",
    "SIGKILL": "no process can catch this signal: the kernel sent it for lack of memory, or the platform or a person did",
    "SIGTERM": "it was asked to end: by the platform, a person, or a launcher after a failure elsewhere",
    "SIGINT": "it was interrupted, as by Ctrl-C",
    "SIGHUP": "the terminal or ssh session that started it is gone",
    "SIGXCPU": "it reached its limit on processor time (ulimit -t)",
    "SIGXFSZ": "it reached its limit on the size of files (ulimit -f)",
    "SIGPIPE": "it wrote to a pipe or connection whose reader had ended",
    "SIGSYS": "a system call is forbidden here, for example by the container's seccomp profile",
}
_OF_CODES = {
    124: "the exit code of `timeout`: a command ran longer than its limit",
    126: "the exit code of a shell that cannot execute a program: check its mode and format, and that it is not a folder",
    127: "the exit code of a shell that does not find a program, or of a loader that does not find a library",
    255: "the exit code of ssh without a connection, and of a program that calls exit(-1)",
}
OF_MEMORY = "use less memory (a smaller batch, fewer data-loading workers, no data that grows), or give the container a larger limit"
_SHELL = 128  # a shell exits with 128+N if signal N ended its program


def meaning(culprit: Culprit) -> str:
    """Return the meaning of an exit code or signal, or the remedy for a process killed for memory;
    "" if there is none or the output names an error."""
    if culprit.out_of_memory:
        return OF_MEMORY
    if culprit.error:
        return ""
    code = culprit.exit_code
    name = culprit.signal or (_name_of(code - _SHELL) if code > _SHELL else "")
    return _OF_SIGNALS.get(name, "") or _OF_CODES.get(code, "")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


# Ends with 0 near the failure


def _notes_of_finishes(first: Suspect, finishes: Sequence[Finish]) -> Iterable[str]:
    """Yield notes about ranks and nodes that ended with 0 before the failure, or around its time.
    They look like successes, but their end may have caused the failure."""
    for finish in sorted(finishes, key=lambda f: f.at):
        text = _finish_text(first, first.at - finish.at, is_node=finish.rank is None)
        if text:
            yield f"{f'node {finish.node}' if finish.rank is None else f'rank {finish.rank} on node {finish.node}'} {text}"


def _finish_text(first: Suspect, seconds: float, *, is_node: bool) -> str:
    """Describe a node or a rank that ended with 0; "" for nothing of interest. seconds: from this end
    to the failure of the first suspect, negative for a later end."""
    failed = first.outcome == "failed"
    if failed and seconds > 0:
        lost = ", which looks like a consequence of that" if first.is_consequence else ""
        return f"had ended with 0, {seconds:.1f} s before the failure{lost}"
    if is_node:
        when = f"all the same, {-seconds:.1f} s after the {'failure' if failed else 'request'}"
        return f"had ended with 0, {seconds:.1f} s before the request" if seconds > 0 else f"ended with 0 {when}"
    of_failure = failed and first.is_consequence
    return f"ended with 0 by itself, {-seconds:.1f} s after the failure, and may have caused it" if of_failure else ""


def iso(at: float) -> str:
    import datetime  # only failures need it

    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat(timespec="milliseconds")


# Rules that decided, for `because` in verdict.json: EVIDENCE explains the end of the culprit, ORDER
# puts the culprit before the other suspects. In both lists the first rule that matches is named.

Evidence = Callable[[Suspect], Optional[str]]
Order = Callable[[Suspect, Sequence[Suspect]], Optional[str]]


def out_of_memory(suspect: Suspect) -> str | None:
    """The kernel counted a kill for memory at the time when this process was killed."""
    culprit = suspect.culprit
    return "the kernel's count of processes killed for memory" if culprit and culprit.out_of_memory else None


def known_error(suspect: Suspect) -> str | None:
    """An entry of the known errors matches the last output, and no recorded exception explains the
    end."""
    error = suspect.culprit.error if suspect.culprit else None
    return f"{error.name} ({error.kind}): {error.line}" if error else None


def exit_status(suspect: Suspect) -> str | None:
    """The process ended with a signal or an exit code, and neither a record nor a known error gives
    the reason."""
    culprit = suspect.culprit
    if not culprit:
        return None
    return f"killed by {culprit.signal}" if culprit.signal else f"exit code {culprit.exit_code}"


def own_decision(suspect: Suspect) -> str | None:
    """ranklaunch itself ended the job: after a stop request, a time-out, a lost node, or a hang."""
    return f"ranklaunch ended the job: {suspect.outcome}"


def only_consequences(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """Every failure looks like the consequence of another failure. The earliest is named."""
    return f"the earliest of {len(others) + 1} failures, all of them consequences" if first.is_consequence else None


def before_consequences(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """A cause always comes before a consequence, even if ranklaunch saw the consequence first."""
    early = [each for each in others if each.is_consequence and each.at < first.at]
    return f"{len(early)} earlier failures are consequences" if early else None


def first_in_time(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """There are several failures. The earliest is named."""
    return f"the earliest of {len(others) + 1} failures" if others else None


def only_failure(first: Suspect, others: Sequence[Suspect]) -> str | None:
    """ranklaunch saw no other failure."""
    return "no other failure was seen"


EVIDENCE: tuple[Evidence, ...] = (out_of_memory, known_error, exit_status, own_decision)
ORDER: tuple[Order, ...] = (only_consequences, before_consequences, first_in_time, only_failure)


def rules_that_decided(first: Suspect, others: Sequence[Suspect]) -> tuple[Because, ...]:
    """Return the rules that decided: the evidence for the end of the first suspect, then its place
    before the others."""
    culprit = first.culprit
    of = Of(culprit.node if culprit else first.node, culprit.rank if culprit else None)
    evidence = [(rule, says) for rule in EVIDENCE if (says := rule(first))]
    order = [(rule, says) for rule in ORDER if (says := rule(first, others))]
    own = () if evidence[0][0] is out_of_memory else first.because
    explained = own or (_because(*evidence[0], of),)
    return (*explained, _because(*order[0], of))


def _because(rule: Evidence | Order, says: str, of: Of) -> Because:
    return Because(rule.__name__.replace("_", "-"), says, of)


# The host to leave out when the job is started again. Only evidence about the machine counts: a
# failure of the program would come again on any host.

# Rules of ranklaunch.hangs.suspicion that may be about a machine. A stack or an exception is about
# the program.
OF_MACHINE = (
    "missing-in-collective", "behind-in-collectives", "named-by-timeouts", "stopped-or-stuck", "gone", "unlike-in-cpu", "behind-in-steps",
    "recorder-without-answer",
)  # fmt: skip


@dataclass(frozen=True)
class SuspectHost:
    """Host to leave out at the next start. host: the platform's name for it. node: its index in this
    job. why: one sentence."""

    host: str
    node: int
    why: str


def host_to_avoid(
    judgement: Judgement, hosts: Sequence[str], hang: Mapping[str, Any] | None = None, restarts: Sequence[Mapping[str, Any]] = ()
) -> SuspectHost | None:
    """Return the host to leave out, None without evidence against a host. hosts: of the job's nodes,
    in order. hang, restarts: the last hang and the ends of earlier rounds, as in verdict.json.
    """
    if judgement.outcome == "succeeded":
        return None
    evidence = _by_error(judgement) or _by_silence(judgement) or _by_hang(hang or {}, restarts, len(hosts))
    if not evidence or not 0 <= evidence[0] < len(hosts) or not hosts[evidence[0]]:
        return None
    return SuspectHost(hosts[evidence[0]], *evidence)


def _by_error(judgement: Judgement) -> tuple[int, str] | None:
    """Return the culprit's node and the reason if its known error needs another host."""
    error = judgement.culprit.error if judgement.culprit else None
    if not judgement.culprit or not error or error.retry != ELSEWHERE:
        return None
    return judgement.culprit.node, f"{error.name}: {error.meaning}"


def _by_silence(judgement: Judgement) -> tuple[int, str] | None:
    """Return a lost node and the reason; node 0 if its network to all other nodes was down."""
    match = None if judgement.culprit else SILENT.match(judgement.reason)
    return (int(match["node"]), judgement.reason) if match else None


def _by_hang(hang: Mapping[str, Any], restarts: Sequence[Mapping[str, Any]], nodes: int) -> tuple[int, str] | None:
    """Return the node of all suspects of a hang and the reason, if a hang of an earlier round had
    all its suspects on the same node. Only rules about machines count."""
    suspects = hang.get("suspects", ())
    node = _node_of(suspects)
    earlier = [each.get("round") for each in restarts if _node_of(each.get("suspects", ())) == node]
    if node is None or nodes < 2 or not earlier:
        return None
    ranks = ", ".join(str(each["rank"]) for each in suspects[:8])
    return node, f"the job hung in {len(earlier) + 1} rounds, by rank {ranks}: {suspects[0]['why']}"


def _node_of(suspects: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the node of all these suspects; None if they are on several nodes, or if a rule about
    the program named one of them."""
    nodes = {each["node"] for each in suspects if each.get("rule") in OF_MACHINE}
    return nodes.pop() if len(nodes) == 1 and all(each.get("rule") in OF_MACHINE for each in suspects) else None
