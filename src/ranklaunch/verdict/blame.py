"""From everything that went wrong in a job to the one thing that it died of. Pure.

A suspect is an ending that nobody had asked for. The first one decides, unless its own output says that it is the consequence of
another rank's failure: consequences never win over causes, however early they were seen.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch import errors, showing
from ranklaunch.fields import as_dict
from ranklaunch.verdict.model import ELSEWHERE, LATE, MOST_RULES, NO, YES, Because, Culprit, KnownError, Note, Of

CAUSE, CONSEQUENCE, STOPPED, UNKNOWN = "cause", "consequence", "stopped", "unknown"
RETRY = {
    NO: "started as it is, the job ends the same way",
    YES: "to start the job anew may be enough",
    ELSEWHERE: "start the job on other hosts",
}
RANKLAUNCH = "ranklaunch"  # name of a culprit: ranklaunch itself
MOST_FAILURES = 8  # others that a verdict lists
MOST_NOTES = 8
MOST_NAMED = 5  # ranks that failed while they were being stopped; others are counted
OF_PEERS = ("SIGABRT", 1, 128 + 6)  # how a rank ends, by its framework or its author, when it has lost another one
KILLED = "process-killed"  # as a shell says of its program
# Consequences of what became of a process that the rank itself had started.
OF_ITS_OWN = (KILLED, "python-process-pool-broken", "launcher-command-failed")
OF_NO_OTHER = (CAUSE, UNKNOWN)  # kinds of errors that tell neither of another failure nor of a stop
LOST_CHILDREN = ("torch-dataloader-worker-died", "python-process-pool-broken")  # the output above says why
AFTERMATHS = ("torch-process-group-left",)  # causes of which another rank's failure may be one
TIMEOUT = "timeout"  # in the name of a known error
WAITED_FOR = "waited-for"  # rule by which a time-out message names the rank that did not answer
OF_A_STOP_S = 2.0  # between a stop request and the end of a rank that the same sender signalled
ENDS_S = 2.0  # for a rank to end, with its traceback, after it has timed out
# Seconds by which a crash is seen later than its peers may notice it, and write what they fail of. The end of a peer kills nobody by
# SIGKILL, and some libraries crash of it.
_SEEN_AFTER_S = {"SIGKILL": 0.1, **dict.fromkeys(("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"), 0.05)}
LINES = 20  # of a culprit's output
LINE = 300  # characters of one
WORD = 100  # characters of a name
HOST = 253  # of that of a host: there is no longer one
SAID = 2000  # characters of a reason
SEEN = 300  # characters of the line that says why


@dataclass(frozen=True)
class Suspect:
    """An end that may be the job's failure. at: seconds since 1970 by node 0's clock. reason: text for people, "" for a sentence about the
    culprit. late: the process was told to end, and may have caught the exception that it shows. because: rules that explained it by
    records; () where the rules of verdict.decided do."""

    node: int
    at: float
    outcome: str
    exit_code: int
    reason: str = ""
    culprit: Culprit | None = None
    late: bool = False
    because: tuple[Because, ...] = ()

    @property
    def is_consequence(self) -> bool:
        culprit = self.culprit
        return bool(culprit and culprit.error and not tells_why(culprit.error) and not culprit.out_of_memory)


@dataclass(frozen=True)
class Finish:
    """A rank (None: all of a node's) that ended with 0 by itself. at: as in Suspect."""

    node: int
    rank: int | None
    at: float


@dataclass(frozen=True)
class Judgement:
    """What is the same in the verdicts of all nodes."""

    outcome: str
    exit_code: int
    reason: str
    culprit: Culprit | None = None
    failures: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    because: tuple[Because, ...] = ()


def judge(suspects: Iterable[Suspect], finishes: Sequence[Finish] = (), notes: Iterable[Note] = ()) -> Judgement:
    """Return the judgement about a job with at least one suspect."""
    first, *others = ordered(_without_ended_with_it(_with_proof(list(suspects))))
    culprit = first.culprit
    others = [other for other in others if not _is_same(other.culprit, culprit)]
    return Judgement(
        outcome=first.outcome,
        exit_code=first.exit_code,
        reason=first.reason or (sentence(culprit) if culprit else ""),
        culprit=culprit,
        failures=tuple(replace(s.culprit, last_lines=()) for s in others if s.culprit and not _only_waited_for(s))[:MOST_FAILURES],
        notes=_noted([*_endings().notes_of([first, *others], sentence, notes)], tuple(_early(first, finishes)), culprit),
        because=_rules(first, others),
    )


def _only_waited_for(suspect: Suspect) -> bool:
    """True for a rank that did not fail as far as is known: another one waited for it in vain."""
    return suspect.late and bool(suspect.culprit and not suspect.culprit.error)


def _endings() -> Any:
    """Only failures need it. Where no descriptor is left to read it, nothing more is said."""
    try:
        from ranklaunch.verdict import endings
    except (OSError, ImportError):
        return _Silent
    return endings


def _rules(first: Suspect, others: Sequence[Suspect]) -> tuple[Because, ...]:
    try:
        from ranklaunch.verdict import reasons  # only failures need it
    except (OSError, ImportError):  # no descriptor left
        return ()
    return reasons.by(first, others)


class _Silent:
    notes_of, meaning = staticmethod(lambda of, sentence, notes: notes), staticmethod(lambda of: "")


def _noted(notes: Sequence[Note], early: tuple[str, ...], culprit: Culprit | None) -> tuple[str, ...]:
    """Return the texts of notes. A rank that failed during the stop is no reason of the failure: it comes last, and takes no other's
    place."""
    texts = (*dict.fromkeys(note.text for note in notes if note.kind != LATE), *early)[:MOST_NOTES]
    late = [note for note in notes if note.kind == LATE and not (culprit and note.rank is not None and note.rank == culprit.rank)]
    return (*texts, *(note.text for note in few(late, MOST_NOTES - len(texts))))


def few(notes: Sequence[Note], room: int = MOST_NOTES) -> list[Note]:
    """Return the first notes about ranks that failed during the stop, one that counts the others, and all notes of other kinds."""
    named = [note for note in notes if note.kind == LATE and not note.more]
    more = sum(note.more for note in notes)
    most = max(0, min(MOST_NAMED, room if len(named) <= room and not more else room - 1))
    more += len(named[most:])
    they = "ranks failed while they were" if more > 1 else "rank failed while it was"
    others = [note for note in notes if note.kind != LATE]
    return [*named[:most], *([Note(f"{more} more {they} being stopped", LATE, None, more)] if more and room > 0 else []), *others]


def _with_proof(suspects: list[Suspect]) -> list[Suspect]:
    """A rank that another node's launcher has seen killed, and what the kernel of its own node says, are one."""
    for proof in [s for s in suspects if s.culprit and s.culprit.out_of_memory and s.culprit.pid is None]:
        assert proof.culprit
        killed = [s for s in suspects if s is not proof and s.culprit and _may_be(s.culprit, proof.culprit)]
        if killed:
            seen = min(killed, key=lambda s: s.at)
            assert seen.culprit
            culprit = replace(seen.culprit, out_of_memory=True)
            reason = sentence(culprit) + proof.reason[len(sentence(proof.culprit)) :]
            suspects = [s for s in suspects if s is not proof and s is not seen]
            suspects.append(replace(seen, culprit=culprit, reason=reason))
    return suspects


def _without_ended_with_it(suspects: list[Suspect]) -> list[Suspect]:
    """Drop ranks that ended because ranklaunch on their node was killed: its guard kills them, and another node's launcher reports it."""
    killed_at = {s.culprit.node: s.at for s in suspects if s.culprit and s.culprit.name == RANKLAUNCH and s.culprit.signal}
    return [s for s in suspects if not (s.culprit and _is_killed(s.culprit) and s.at >= killed_at.get(s.culprit.node, float("inf")))]


def _is_same(one: Culprit | None, other: Culprit | None) -> bool:
    """The same rank, seen once by its process and once by its output."""
    return bool(one and other and one.rank is not None and (one.node, one.rank) == (other.node, other.rank))


def _may_be(culprit: Culprit, proof: Culprit) -> bool:
    return culprit.node == proof.node and _is_killed(culprit)


def _is_killed(culprit: Culprit) -> bool:
    """True for a rank that was killed, and not for memory as far as is known."""
    killed = culprit.signal == "SIGKILL" or culprit.exit_code == 128 + signal.SIGKILL  # the latter of a shell, whose program was
    return killed and culprit.rank is not None and not culprit.out_of_memory


def ordered(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Whoever is to blame first; of two nodes' lists, one of the two first ones is. One that is late counts where whoever would be to
    blame without it leaves open why it ended."""
    suspects = list(suspects)
    first = min((s for s in suspects if not s.late), key=_rank, default=None)
    clear = first is not None and _is_clear(first)
    return sorted(suspects, key=lambda s: (s.late and clear, *_rank(s)))


def _rank(suspect: Suspect) -> tuple[bool, float]:
    """Who has waited in vain ends its connections, and others may see that before it has ended itself. So may they of one that has crashed,
    and have said what they failed of before its end was seen."""
    culprit = suspect.culprit
    if suspect.is_consequence:
        return True, suspect.at - (ENDS_S if culprit and culprit.error and TIMEOUT in culprit.error.name else 0.0)
    of_rank = culprit.signal if culprit and culprit.rank is not None else None  # a supervisor may have been killed as it ended the others
    return False, suspect.at - _SEEN_AFTER_S.get(of_rank or "", 0.0)


def _is_clear(suspect: Suspect) -> bool:
    """Whether it says why it ended, or ended as no rank does that has lost another one: by a code of its own, by a crash, interrupted."""
    culprit = suspect.culprit
    if not culprit or culprit.out_of_memory:
        return True
    if culprit.error:
        return tells_why(culprit.error) and culprit.error.name not in AFTERMATHS
    return (culprit.signal or culprit.exit_code) not in OF_PEERS


def of_ranklaunch(own: Suspect, host: str, *, several: bool, killed: bool, hung: bool) -> Suspect:
    """Return ranklaunch's own end with the place in the reason. several: the job has more than one node. killed: by SIGKILL. hung: the job
    was; the culprit's own end is the reason then."""
    culprit = Culprit(own.node, None, None, 137, "SIGKILL", False, (), RANKLAUNCH, host, iso(own.at)) if killed else own.culprit
    where = f"{place(own.node, host)}: " if several else ""
    return replace(
        own, node=culprit.node if culprit else own.node, reason="" if own.culprit and hung else f"{where}{own.reason}", culprit=culprit
    )


def tells_why(error: KnownError) -> bool:
    """True if an error is the reason itself, not the mark of another rank's failure."""
    return error.kind != CONSEQUENCE or error.name in OF_ITS_OWN


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
        last = showing.printable(showing.last_line(culprit.last_lines))[:SEEN].strip()
        return f"{who} {how}; its last line: {last}" if last else f"{who} {how}"
    if error.kind == STOPPED:
        return f"{who} {how}: it was told to end: {error.line[:SEEN]}"
    if not tells_why(error):
        return f"{who} {how}, which looks like the consequence of another failure that left no trace: {error.line[:SEEN]}"
    return f"{who} {how}: {error.line[:SEEN]}"


def last_words(culprit: Culprit) -> tuple[str, tuple[str, ...]]:
    """Return a heading for the console, "" for none, and the culprit's last lines."""
    if not culprit.last_lines:
        return f"{name(culprit)} wrote nothing" if culprit.rank is not None else "", ()
    return f"last lines of {name(culprit)}:", culprit.last_lines


def advice(culprit: Culprit | None) -> Iterable[str]:
    if not culprit:
        return
    error, meaning = None if culprit.out_of_memory else culprit.error, _endings().meaning(culprit)
    if meaning:
        yield f"{'remedy' if culprit.out_of_memory else 'meaning'}: {meaning}"
    if error and error.meaning:
        yield f"meaning: {error.meaning}"
        yield f"remedy: {error.remedy} ({error.source})"
    if error and error.retry in RETRY:
        yield f"again: {RETRY[error.retry]}{f', without {culprit.host}' if error.retry == ELSEWHERE and culprit.host else ''}"


def _early(first: Suspect, finishes: Sequence[Finish]) -> Iterable[str]:
    """Whoever left before the failure: with 0 it looked like success, and it may be what the others died of. One that was leaving may have
    ended after these."""
    for finish in sorted(finishes, key=lambda f: f.at):
        who = f"rank {finish.rank} on node {finish.node}" if finish.rank is not None else f"node {finish.node}"
        seconds = first.at - finish.at
        if first.outcome == "failed" and seconds > 0:
            blame = ", which is what the failure looks like a consequence of" if first.is_consequence else ""
            yield f"{who} had ended with 0, {seconds:.1f} s before the failure{blame}"
        elif first.outcome == "failed" and first.is_consequence and finish.rank is not None:
            yield f"{who} ended with 0 by itself, {-seconds:.1f} s after the failure, which may have come of that"
        elif finish.rank is None and seconds > 0:
            yield f"{who} had ended with 0, {seconds:.1f} s before the request"
        elif finish.rank is None:
            yield f"{who} ended with 0 all the same, {-seconds:.1f} s after the {'failure' if first.outcome == 'failed' else 'request'}"


def iso(at: float) -> str:
    import datetime  # only failures need it

    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).isoformat(timespec="milliseconds")


# For the wire: what another node sends is checked field by field, so that one that runs another version cannot break this one.


def as_message(value: Suspect | Finish | Judgement | Note) -> dict[str, Any]:
    if isinstance(value, Note):
        value = replace(value, text=_cut(value.text, LINE))
    return as_dict(clipped(value) if isinstance(value, (Suspect, Judgement)) else value)


def clipped(value: Any) -> Any:
    """With texts short enough for a frame, and on one line each."""
    changes: dict[str, Any] = {"reason": _cut(value.reason, SAID), "exit_code": code_of(value.outcome, value.exit_code)}
    if value.culprit:
        changes["culprit"] = _clip(value.culprit, LINES)
    if isinstance(value, Judgement):
        changes["failures"] = tuple(_clip(failure, 0) for failure in value.failures[:MOST_FAILURES])
        changes["notes"] = tuple(_cut(note, LINE) for note in value.notes[:MOST_NOTES])
    changes["because"] = tuple(map(_clip_rule, value.because[:MOST_RULES]))
    return replace(value, **changes)


def heard(judgement: Judgement) -> Judgement:
    """Another node's word: as short as ours, and without what looks like a secret, whatever that node hides or does not."""
    fit: Judgement = clipped(judgement)
    return replace(
        fit, reason=errors.reason(fit.reason),
        because=tuple(replace(each, says=errors.reason(each.says)) for each in fit.because),
        culprit=fit.culprit and _without_secrets(fit.culprit),
        failures=tuple(map(_without_secrets, fit.failures)), notes=tuple(map(errors.reason, fit.notes)),
    )  # fmt: skip


def _without_secrets(culprit: Culprit) -> Culprit:
    error = culprit.error and replace(culprit.error, line=showing.printable(errors.quoted((culprit.error.line,))[0]))
    return replace(culprit, last_lines=errors.quoted(culprit.last_lines), error=error)


def brief(suspect: Suspect) -> Suspect:
    """One that cannot decide, because another of its node comes before it."""
    culprit = suspect.culprit and replace(suspect.culprit, last_lines=())
    return replace(suspect, reason=suspect.reason[:LINE], culprit=culprit)


def _clip(culprit: Culprit, lines: int) -> Culprit:
    kept = tuple(line[:LINE] for line in culprit.last_lines[-lines:]) if lines else ()
    error = KnownError(*(_cut(text, LINE) for text in as_dict(culprit.error).values())) if culprit.error else None
    return replace(
        culprit, last_lines=kept, error=error, name=_cut(culprit.name, WORD), host=_cut(culprit.host, HOST),
        time=_cut(culprit.time, WORD), signal=culprit.signal and _cut(culprit.signal, WORD),
    )  # fmt: skip


def _clip_rule(because: Because) -> Because:
    of = because.of
    return Because(_cut(because.rule, WORD), _cut(because.says, SEEN), Of(of.node, of.rank, _cut(of.file, LINE), of.line))


def _cut(text: str, length: int) -> str:
    return showing.one_line(text[:length])[:length]


def code_of(outcome: str, code: int) -> int:
    """What failed does not end with 0, and what was stopped ends as by a signal, whatever a node says."""
    if outcome == "stopped":
        return code if 128 < code <= 192 else 128 + signal.SIGTERM
    return code or int(outcome != "succeeded")
