"""Node 0's decision after a round that has failed, with what is remembered of those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ranklaunch import showing
from ranklaunch.muster.events import Decide, Decided
from ranklaunch.plan.model import Rounds
from ranklaunch.restarts import policy
from ranklaunch.restarts.policy import Decision, Past, Seen
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement
from ranklaunch.verdict.model import ELSEWHERE

MOST_S = 1e12  # of what a node says; more is no time, and may be no float
State = Mapping[str, Any]


class Decider:
    """Asked once for each round."""

    def __init__(self, rounds: Rounds) -> None:
        self._settings = policy.Settings(rounds.most, rounds.never, rounds.restarted_outside)
        self._history: list[Past] = []

    def __call__(self, asked: Decide) -> Decided:
        states = list(asked.states)
        seen = _seen(asked, states)
        decision = policy.decide(self._history, seen, self._settings)
        self._history.append(decision.past)
        stop = stopped(asked.judgement, states) if decision.again else None
        if stop:
            return Decided(False, stop)
        if decision.again:
            restart = _restart(asked.judgement, seen, decision, states)
            return Decided(True, asked.judgement, {"restart": restart, "pause_s": decision.pause_s})
        code = asked.judgement.exit_code if decision.exit_code is None else decision.exit_code
        notes = (*asked.judgement.notes, decision.sentence)
        return Decided(False, replace(asked.judgement, exit_code=code, notes=notes))


def stopped(judgement: Judgement, states: Iterable[State]) -> Judgement | None:
    """The job's, where a node was asked to stop while ranks were being ended to start again. judgement: what they were ended for."""
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


def _restart(judgement: Judgement, seen: Seen, decision: Decision, states: list[State]) -> dict[str, Any]:
    """What verdict.json says of it. lost_s: since the round's newest checkpoint, where these are known, else since its start."""
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
    """Return the suspects of a hang that ended the round, as verdict.json has them. The last rule of a judgement is about their order."""
    hung = judgement.because[:-1] if not judgement.culprit else ()
    return [{"rank": each.of.rank, "node": each.of.node, "rule": each.rule} for each in hung if each.of.rank is not None]


def _each(states: Iterable[State], name: str, kind: type) -> list[Any]:
    """What nodes say comes from outside: what is not of its kind says nothing."""
    values = [state.get(name) for state in states]
    return [value for value in values if _is(value, kind)]


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_S
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
