"""Node 0's decision after a failed round: a restart of all ranks, or the end of the job. Pure.

The cost of an unnecessary stop is unlimited; one more try costs one try. So the ranks start again unless
a rule forbids a restart, and each rule rests on a fact of the round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch import showing
from ranklaunch.errors import NO_PROGRESS, ConfigError, MissingProgramError, UsageError, WaitError, counted
from ranklaunch.muster.events import Decide, Decided
from ranklaunch.plan.model import Rounds
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement
from ranklaunch.verdict.model import ELSEWHERE, NO, Culprit

NEVER = (UsageError.exit_code, MissingProgramError.exit_code, ConfigError.exit_code)
PAUSES_S = (0.0, 10.0, 30.0, 60.0)  # before the first restart without progress, the second, ...
LONG_S = 600.0  # a longer round counts as progress if there are no steps and checkpoints
FULL = ("no-space-left", "quota-exceeded")  # known errors that do not pass with time
NOT_WRITTEN = "torch-checkpoint-write-failed"  # known error that a full file system explains
_FULL_DISK = r"the file system of .+ is full(?:$|:.*)"  # pattern of a note about a full file system

Place = tuple[int, int]  # epoch and step


@dataclass(frozen=True)
class Settings:
    """Settings of restarts. most: allowed restarts without progress. never: exit codes without a
    restart. restarted_outside: True if the platform starts the job again."""

    most: int
    never: tuple[int, ...] = ()
    restarted_outside: bool = False


@dataclass(frozen=True)
class RoundFacts:
    """Facts of a failed round.

    launched: its ranks had been started. away: a lost node, or a node without a report of its end.
    hung: RANKLAUNCH_HANG=stop ended the round. finished: a rank had ended with 0 by itself. unable:
    a node cannot begin this round or a later one. began: a step was recognised. place: highest step
    in the ranks' output. mark: number of the newest checkpoint of this round; None for none, or if
    unknown. marks: checkpoint markers could be read. seconds: from the release to the failure.
    device_fault: the culprit's known error is a fault of a device.
    """

    number: int
    judgement: Judgement
    launched: bool
    away: str = ""
    hung: bool = False
    finished: bool = False
    unable: bool = False
    began: bool = False
    place: Place | None = None
    mark: int | None = None
    marks: bool = False
    seconds: float = 0.0
    device_fault: bool = False


@dataclass(frozen=True)
class Past:
    """A past round. signature: its failure and the place of it; None if unknown. progress: True if the
    round made progress. best, mark: highest step and checkpoint of this round and all before."""

    number: int
    signature: tuple[object, ...] | None
    progress: bool
    best: Place | None
    mark: int | None


@dataclass(frozen=True)
class Decision:
    """Decision after a round. again: all ranks start once more, after pause_s seconds. sentence:
    the decision with its reason. exit_code: exit code of the job; None for the culprit's."""

    again: bool
    sentence: str
    past: Past
    exit_code: int | None = None
    pause_s: float = 0.0


def decide(history: Sequence[Past], facts: RoundFacts, settings: Settings) -> Decision:
    """Return the decision after a round. history: the rounds before, oldest first. facts: facts of
    this round."""
    last = history[-1] if history else None
    best = max(filter(None, (facts.place, last.best if last else None)), default=None)
    mark = max((each for each in (facts.mark, last.mark if last else None) if each is not None), default=None)
    past = Past(facts.number, signature(facts, last.best if last else None), _progress(facts, last), best, mark)
    used = spent([*history, past])
    return _refusal(facts, settings, last, past, used) or _restart(facts, settings, past, used)


def _refusal(facts: RoundFacts, settings: Settings, last: Past | None, past: Past, used: int) -> Decision | None:
    """Return the decision against another round, None if one may follow. last: the round before
    this one. used: restarts without progress."""
    why = _forbidden(facts, settings)
    if why:
        return Decision(False, f"not started again: {why}", past)
    if facts.device_fault and settings.restarted_outside:
        text = "not started again on a device that has failed: the platform that starts the job again can leave out its host"
        return Decision(False, text, past, WaitError.exit_code)
    if last and past.signature and _is_same(past, last):
        text = f"not started again: the same failure came twice {_where(facts.place or past.best)}, without progress between them"
        wait_failed = not facts.launched and facts.judgement.exit_code == WaitError.exit_code
        return Decision(False, text, past, None if wait_failed else NO_PROGRESS)  # a new job may not have to wait
    if used >= settings.most:
        budget = f"{counted(settings.most, 'restart')} without progress"
        return Decision(False, f"not started again: {budget}, which is all that RANKLAUNCH_MAX_RESTARTS allows", past)
    return None


def _is_same(past: Past, last: Past) -> bool:
    """Return True for the same failure at the same place, without progress between them."""
    return past.signature == last.signature and not past.progress


def _restart(facts: RoundFacts, settings: Settings, past: Past, used: int) -> Decision:
    """Return the decision for another round, with its pause."""
    pause_s = PAUSES_S[min(used, len(PAUSES_S) - 1)]
    later = f" in {pause_s:g} s" if pause_s else ""
    after = (
        f"after progress ({_reached(facts)})" if past.progress else f"{counted(used + 1, 'restart')} of {settings.most} without progress"
    )
    return Decision(True, f"starting all ranks again{later}, restart {facts.number + 1}: {after}", past, None, pause_s)


def spent(history: Sequence[Past]) -> int:
    """Return the number of restarts used up before the last of these rounds: each restart counts one,
    and each round with progress gives one back."""
    used = 0
    for i, past in enumerate(history):
        used = max(0, used - past.progress) + (i < len(history) - 1)
    return used


def signature(facts: RoundFacts, before: Place | None) -> tuple[object, ...] | None:
    """Return a value that is equal for equal failures at the same place; None if the failure has
    neither a text nor a step to compare.

    before: highest step before this round, for a round without a step of its own. It does not count
    after a kill, which leaves no text.
    """
    culprit = facts.judgement.culprit
    words = _words(culprit) if culprit else _masked(facts.judgement.reason)
    place = facts.place or (before if words else None)
    return (facts.judgement.exit_code, words, place) if words or place else None


def _words(culprit: Culprit) -> str:
    """Return the line of the culprit's known error, else its last line, without numbers; "" for a
    kill."""
    error = culprit.error
    line = error.line if error and error.kind in blame.OF_NO_OTHER else ""
    if not line and not culprit.signal:
        line = next((line for line in reversed(culprit.last_lines) if line.strip()), "")
    return _masked(line)


def _masked(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?", "N", line.strip())


def _forbidden(facts: RoundFacts, settings: Settings) -> str:
    """Return the reason against another round, "" for none. The first rule that holds gives the reason."""
    code = facts.judgement.exit_code
    rules = (
        (facts.judgement.outcome != "failed", "a stop was requested"),
        (not facts.launched and not facts.number, "no rank had been started yet"),
        (facts.unable, "a round that cannot begin is not tried again"),
        (facts.away, f"{facts.away} is gone, or has not reported the end of its ranks"),
        (facts.hung, "RANKLAUNCH_HANG=stop ends a job that hangs; RANKLAUNCH_HANG=restart lets it start again"),
        (facts.finished, "a rank had ended with 0 before it could be stopped"),
        (code in settings.never, f"exit code {code} is in RANKLAUNCH_NO_RESTART_CODES"),
        (code in NEVER, f"a restart would end with exit code {code} again"),
    )
    return next((reason for holds, reason in rules if holds), "") or _forbidden_cause(facts)


def _forbidden_cause(facts: RoundFacts) -> str:
    """Return the known cause that would also fail the next round, "" for none: a full disk, or an
    error with retry "no" before any step."""
    error = facts.judgement.culprit.error if facts.judgement.culprit else None
    if not error or error.kind != blame.CAUSE:
        return ""
    disk = _full_disk(facts.judgement)
    if error.name in FULL or (error.name == NOT_WRITTEN and disk):
        return disk or f"{error.meaning[:1].lower()}{error.meaning[1:].rstrip('.')}"
    if error.retry == NO and not facts.began:
        return f"no step was recognised, so {error.name} would occur again"
    return ""


def _full_disk(judgement: Judgement) -> str:
    match = next(filter(None, (re.search(_FULL_DISK, note) for note in judgement.notes)), None)
    return match[0] if match else ""


def _progress(facts: RoundFacts, last: Past | None) -> bool:
    """Return True for progress: by checkpoints if markers can be read, else by steps, else by the
    length of the round."""
    if facts.marks:
        return facts.mark is not None and (last is None or last.mark is None or facts.mark > last.mark)
    if facts.place:
        return last is None or last.best is None or facts.place > last.best
    return facts.seconds > LONG_S


def _reached(facts: RoundFacts) -> str:
    if facts.marks:
        return f"checkpoint {facts.mark}"
    return f"step {facts.place[1]}" if facts.place else f"{facts.seconds:.0f} s"


def _where(place: Place | None) -> str:
    return f"at step {place[1]}" if place else "before any step was recognised"


# Reports of the nodes, and the decision for all of them

MOST_S = 1e12  # longest time accepted from another node
State = Mapping[str, Any]  # state of a node, made by restarts.round_facts


class Decider:
    """Decision after each round, with the history of rounds."""

    def __init__(self, rounds: Rounds) -> None:
        self._settings = Settings(rounds.most, rounds.never, rounds.restarted_outside)
        self._history: list[Past] = []

    def __call__(self, asked: Decide) -> Decided:
        states = list(asked.states)
        facts = _round_facts(asked, states)
        decision = decide(self._history, facts, self._settings)
        self._history.append(decision.past)
        stop = stopped(asked.judgement, states) if decision.again else None
        if stop:
            return Decided(False, stop)
        if decision.again:
            restart = _entry_of_restart(asked.judgement, facts, decision, states)
            return Decided(True, asked.judgement, {"restart": restart, "pause_s": decision.pause_s})
        code = asked.judgement.exit_code if decision.exit_code is None else decision.exit_code
        notes = (*asked.judgement.notes, decision.sentence)
        return Decided(False, replace(asked.judgement, exit_code=code, notes=notes))


def stopped(judgement: Judgement, states: Iterable[State]) -> Judgement | None:
    """Return the judgement of a job if a stop request came while ranks were being ended for a
    restart; None without a request. judgement: judgement of the failure before the restart."""
    for stop in _each(states, "stop", list):
        code, reason = stop if len(stop) == 2 else (None, None)
        if isinstance(code, int) and 128 < code < 256 and isinstance(reason, str):
            note = f"the stop request came while ranks were being ended for a restart: {judgement.reason}"
            others = (judgement.culprit, *judgement.failures) if judgement.culprit else judgement.failures
            failures = tuple(replace(each, last_lines=()) for each in others)[: blame.MOST_FAILURES]
            notes = (note, *judgement.notes)[: blame.MOST_NOTES]
            return Judgement("stopped", code, showing.one_line(reason)[: blame.LINE], failures=failures, notes=notes)
    return None


def _round_facts(asked: Decide, states: list[State]) -> RoundFacts:
    places = [(place[0], place[1]) for place in _each(states, "place", list) if len(place) == 2 and all(isinstance(n, int) for n in place)]
    return RoundFacts(
        number=asked.round,
        judgement=asked.judgement,
        launched=asked.released,
        away=asked.away or next(iter(_each(states, "gone", str)), ""),
        hung=any(_each(states, "hung", bool)),
        finished=any(_each(states, "finished", bool)),
        unable=any(_each(states, "unable", bool)),
        began=bool(places),
        place=max(places, default=None),
        mark=max(_each(states, "mark", int), default=None),
        marks=any(_each(states, "marks", bool)),
        seconds=max(_each(states, "seconds", float), default=0.0),
        device_fault=_is_device_fault(asked.judgement),
    )


def _is_device_fault(judgement: Judgement) -> bool:
    error = judgement.culprit.error if judgement.culprit else None
    if not error or error.kind != blame.CAUSE or error.retry != ELSEWHERE:
        return False
    try:
        from ranklaunch import catalogue  # few failures are device faults
    except (OSError, ImportError):  # no descriptor left
        return False
    return any(each.name == error.name and each.device_fault for each in catalogue.shipped())


def _entry_of_restart(judgement: Judgement, facts: RoundFacts, decision: Decision, states: list[State]) -> dict[str, Any]:
    """Return the entry of a round in verdict.json. lost_s: seconds since the round's newest
    checkpoint if known, else since its start."""
    culprit = judgement.culprit
    since = list(_each(states, "since_mark_s", float))
    return {
        "round": facts.number,
        "reason": judgement.reason,
        "culprit": blame.name(culprit) if culprit else None,
        "node": culprit.node if culprit else None,
        "lost_s": round(min(since) if since else facts.seconds, 1),
        "progress": decision.past.progress,
        "decision": decision.sentence,
        **({"suspects": suspects} if (suspects := _suspects(judgement)) else {}),
    }


def _suspects(judgement: Judgement) -> list[dict[str, Any]]:
    """Return the suspects of a hang that ended the round, as in verdict.json. The last rule of a
    judgement explains their order, and is left out."""
    hung = judgement.because[:-1] if not judgement.culprit else ()
    return [{"rank": each.of.rank, "node": each.of.node, "rule": each.rule} for each in hung if each.of.rank is not None]


def _each(states: Iterable[State], name: str, kind: type) -> list[Any]:
    """Return the values of a fact from all nodes. States come from other nodes, so a value of another
    type counts as missing."""
    values = [state.get(name) for state in states]
    return [value for value in values if _is(value, kind)]


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_S
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
