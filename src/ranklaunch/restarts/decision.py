"""Node 0's decision after a failed round: do all ranks start again? Pure.

A stop without need costs without bound; one more try costs one try. So the ranks start again unless
a rule stands against a restart, and each rule names something seen in the round.
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
LONG_S = 600.0  # a round that ran longer went on, where nothing else tells
FULL = ("no-space-left", "quota-exceeded")  # known errors that nobody can wait out
NOT_WRITTEN = "torch-checkpoint-write-failed"  # which a full file system explains
_FULL_DISK = r"the file system of .+ is full(?:$|:.*)"  # in a note

Place = tuple[int, int]  # epoch and step


@dataclass(frozen=True)
class Settings:
    """Settings of restarts. most: restarts without progress. never: exit codes after which there is
    none. restarted_outside: the platform starts the job again."""

    most: int
    never: tuple[int, ...] = ()
    restarted_outside: bool = False


@dataclass(frozen=True)
class Seen:
    """Facts of a failed round.

    launched: its ranks had been started. away: a lost node, or a node without a report of its end.
    hung: RANKLAUNCH_HANG=stop ended the round. finished: a rank had ended with 0 by itself. unable:
    a node cannot begin this round or a later one. began: a step was seen. place: highest step in
    the ranks' output. mark: number of the newest checkpoint of this round; None for none, or if
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
    """A past round. signature: the failure and its place; None if unknown. progress: the round made
    some. best, mark: the highest step and checkpoint so far."""

    number: int
    signature: tuple[object, ...] | None
    progress: bool
    best: Place | None
    mark: int | None


@dataclass(frozen=True)
class Decision:
    """Decision after a round. again: all ranks start once more, after pause_s seconds. sentence:
    the decision with its reason. exit_code: of the job; None: the culprit's own."""

    again: bool
    sentence: str
    past: Past
    exit_code: int | None = None
    pause_s: float = 0.0


def decide(history: Sequence[Past], seen: Seen, settings: Settings) -> Decision:
    """Return the decision after a round. history: the rounds before, oldest first."""
    last = history[-1] if history else None
    best = max(filter(None, (seen.place, last.best if last else None)), default=None)
    mark = max((each for each in (seen.mark, last.mark if last else None) if each is not None), default=None)
    past = Past(seen.number, signature(seen, last.best if last else None), _progress(seen, last), best, mark)
    used = spent([*history, past])
    return _refusal(seen, settings, last, past, used) or _restart(seen, settings, past, used)


def _refusal(seen: Seen, settings: Settings, last: Past | None, past: Past, used: int) -> Decision | None:
    """Return the decision against another round, None if one may follow. last: the round before
    this one. used: restarts without progress."""
    why = _forbidden(seen, settings)
    if why:
        return Decision(False, f"not started again: {why}", past)
    if seen.device_fault and settings.restarted_outside:
        text = "not started again on a device that has failed: who starts the job again can leave out its host"
        return Decision(False, text, past, WaitError.exit_code)
    if last and past.signature and _is_same(past, last):
        text = f"not started again: the same failure came twice {_where(seen.place or past.best)}, without progress between them"
        in_vain = not seen.launched and seen.judgement.exit_code == WaitError.exit_code
        return Decision(False, text, past, None if in_vain else NO_PROGRESS)  # what this job waited for may be there for a new one
    if used >= settings.most:
        budget = f"{counted(settings.most, 'restart')} without progress"
        return Decision(False, f"not started again: {budget}, which is all that RANKLAUNCH_MAX_RESTARTS allows", past)
    return None


def _is_same(past: Past, last: Past) -> bool:
    """Return True for the same failure at the same place, without progress between."""
    return past.signature == last.signature and not past.progress


def _restart(seen: Seen, settings: Settings, past: Past, used: int) -> Decision:
    """Return the decision for another round, with its pause."""
    pause_s = PAUSES_S[min(used, len(PAUSES_S) - 1)]
    later = f" in {pause_s:g} s" if pause_s else ""
    after = f"after progress ({_what(seen)})" if past.progress else f"{counted(used + 1, 'restart')} of {settings.most} without progress"
    return Decision(True, f"starting all ranks again{later}, restart {seen.number + 1}: {after}", past, None, pause_s)


def spent(history: Sequence[Past]) -> int:
    """Return the restarts without progress before the last of these rounds. Each progress gives one
    back."""
    used = 0
    for i, past in enumerate(history):
        used = max(0, used - past.progress) + (i < len(history) - 1)
    return used


def signature(seen: Seen, before: Place | None) -> tuple[object, ...] | None:
    """Return a value that is equal for equal failures at the same place; None if nothing tells this
    failure from another one.

    before: highest step before this round. The step counts for a round without a step of its own,
    unless the process was killed: a kill leaves no text.
    """
    culprit = seen.judgement.culprit
    words = _words(culprit) if culprit else _masked(seen.judgement.reason)
    place = seen.place or (before if words else None)
    return (seen.judgement.exit_code, words, place) if words or place else None


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


def _forbidden(seen: Seen, settings: Settings) -> str:
    """Return why no round may follow, "" if one may. The first rule that holds gives the reason."""
    code = seen.judgement.exit_code
    rules = (
        (seen.judgement.outcome != "failed", "somebody has asked for the stop"),
        (not seen.launched and not seen.number, "no rank had been started yet"),
        (seen.unable, "a round that cannot begin is not tried again"),
        (seen.away, f"{seen.away} is gone, or has not said that its ranks have ended"),
        (seen.hung, "RANKLAUNCH_HANG=stop ends a job that hangs; RANKLAUNCH_HANG=restart lets it start again"),
        (seen.finished, "a rank had ended with 0 before it could be stopped"),
        (code in settings.never, f"exit code {code} is in RANKLAUNCH_NO_RESTART_CODES"),
        (code in NEVER, f"exit code {code} would come again"),
    )
    return next((reason for holds, reason in rules if holds), "") or _forbidden_cause(seen)


def _forbidden_cause(seen: Seen) -> str:
    """Return why a known cause would fail the next round: a full disk, or an entry with retry "no"
    before any step."""
    error = seen.judgement.culprit.error if seen.judgement.culprit else None
    if not error or error.kind != blame.CAUSE:
        return ""
    disk = _full_disk(seen.judgement)
    if error.name in FULL or (error.name == NOT_WRITTEN and disk):
        return disk or f"{error.meaning[:1].lower()}{error.meaning[1:].rstrip('.')}"
    if error.retry == NO and not seen.began:
        return f"before any step was recognised, {error.name} would come again"
    return ""


def _full_disk(judgement: Judgement) -> str:
    match = next(filter(None, (re.search(_FULL_DISK, note) for note in judgement.notes)), None)
    return match[0] if match else ""


def _progress(seen: Seen, last: Past | None) -> bool:
    """Return True for progress: by checkpoints if markers can be read, else by steps, else by time."""
    if seen.marks:
        return seen.mark is not None and (last is None or last.mark is None or seen.mark > last.mark)
    if seen.place:
        return last is None or last.best is None or seen.place > last.best
    return seen.seconds > LONG_S


def _what(seen: Seen) -> str:
    if seen.marks:
        return f"checkpoint {seen.mark}"
    return f"step {seen.place[1]}" if seen.place else f"{seen.seconds:.0f} s"


def _where(place: Place | None) -> str:
    return f"at step {place[1]}" if place else "before any step was recognised"


# What the nodes report, and the decision for all of them

MOST_S = 1e12  # of what a node says; more is no time, and may be no float
State = Mapping[str, Any]  # of a node, as restarts.round_facts makes it


class Decider:
    """Decides after each round, with the history of rounds."""

    def __init__(self, rounds: Rounds) -> None:
        self._settings = Settings(rounds.most, rounds.never, rounds.restarted_outside)
        self._history: list[Past] = []

    def __call__(self, asked: Decide) -> Decided:
        states = list(asked.states)
        seen = _seen(asked, states)
        decision = decide(self._history, seen, self._settings)
        self._history.append(decision.past)
        stop = stopped(asked.judgement, states) if decision.again else None
        if stop:
            return Decided(False, stop)
        if decision.again:
            restart = _entry_of_restart(asked.judgement, seen, decision, states)
            return Decided(True, asked.judgement, {"restart": restart, "pause_s": decision.pause_s})
        code = asked.judgement.exit_code if decision.exit_code is None else decision.exit_code
        notes = (*asked.judgement.notes, decision.sentence)
        return Decided(False, replace(asked.judgement, exit_code=code, notes=notes))


def stopped(judgement: Judgement, states: Iterable[State]) -> Judgement | None:
    """Return the judgement of a job if a stop request came while ranks were being ended for a
    restart; None without a request. judgement: reason for the restart."""
    for stop in _each(states, "stop", list):
        code, reason = stop if len(stop) == 2 else (None, None)
        if isinstance(code, int) and 128 < code < 256 and isinstance(reason, str):
            note = f"it came while ranks were being ended to start again: {judgement.reason}"
            others = (judgement.culprit, *judgement.failures) if judgement.culprit else judgement.failures
            failures = tuple(replace(each, last_lines=()) for each in others)[: blame.MOST_FAILURES]
            notes = (note, *judgement.notes)[: blame.MOST_NOTES]
            return Judgement("stopped", code, showing.one_line(reason)[: blame.LINE], failures=failures, notes=notes)
    return None


def _seen(asked: Decide, states: list[State]) -> Seen:
    places = [(place[0], place[1]) for place in _each(states, "place", list) if len(place) == 2 and all(isinstance(n, int) for n in place)]
    return Seen(
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
        from ranklaunch import catalogue  # most failures are none of a device
    except (OSError, ImportError):  # no descriptor left
        return False
    return any(each.name == error.name and each.device_fault for each in catalogue.shipped())


def _entry_of_restart(judgement: Judgement, seen: Seen, decision: Decision, states: list[State]) -> dict[str, Any]:
    """Return the entry of a round in verdict.json. lost_s: seconds since the round's newest
    checkpoint if known, else since its start."""
    culprit = judgement.culprit
    since = list(_each(states, "since_mark_s", float))
    return {
        "round": seen.number,
        "reason": judgement.reason,
        "culprit": blame.name(culprit) if culprit else None,
        "node": culprit.node if culprit else None,
        "lost_s": round(min(since) if since else seen.seconds, 1),
        "progress": decision.past.progress,
        "decision": decision.sentence,
        **({"suspects": suspects} if (suspects := _suspects(judgement)) else {}),
    }


def _suspects(judgement: Judgement) -> list[dict[str, Any]]:
    """Return the suspects of a hang that ended the round, as verdict.json has them. The last rule
    of a judgement is about their order."""
    hung = judgement.because[:-1] if not judgement.culprit else ()
    return [{"rank": each.of.rank, "node": each.of.node, "rule": each.rule} for each in hung if each.of.rank is not None]


def _each(states: Iterable[State], name: str, kind: type) -> list[Any]:
    """Return the values of a fact from all nodes. A value of another type counts as missing: states
    come from other nodes."""
    values = [state.get(name) for state in states]
    return [value for value in values if _is(value, kind)]


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_S
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
