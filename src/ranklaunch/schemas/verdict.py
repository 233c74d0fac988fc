"""verdict.json, and round.json of a round that another follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.verdict.blame import SuspectHost
from ranklaunch.verdict.model import Because, Culprit, Victim


class HangSuspect(TypedDict):
    """A rank that the others may wait for. why: difference from the other ranks. file: path of its stacks, null for none. rule: name of the
    rule that names the rank (docs/hangs.md)."""

    rank: int
    node: int
    why: str
    file: str | None
    rule: str


class RestartSuspect(TypedDict):
    """A suspect of a hang that ended a round. rule: the rule that named it."""

    rank: int
    node: int
    rule: str


class Hang(TypedDict):
    """A hang that was suspected and has not been taken back. since: when anything moved last, UTC, ISO 8601. signals: what does not move,
    or which of the user's rules is broken. suspects: never culprits without a failure. groups: ranks with equal stacks, a text for each
    group, that of the suspects first."""

    since: str
    signals: list[str]
    suspects: list[HangSuspect]
    groups: list[str]


class Stop(TypedDict):
    """What a stop request came to on this node. signal: the one by which it came. caught_by: ranks that had a way to hear it, or to be
    asked to save because of it. ended_by_themselves, killed: how the ranks have ended that lived then, but those of whose end nobody knows.
    seconds: from the request until all had ended. saved: no where nobody heard it."""

    signal: str
    caught_by: list[int]
    ended_by_themselves: list[int]
    killed: list[int]
    seconds: float
    saved: Literal["yes", "no", "unknown"]


class Restart(TypedDict, total=False):
    """Of a round after which all ranks have started again in place. round: its number, from 0. reason: why it has ended. culprit: the
    process's name, null where there is none. node: the culprit's. lost_s: seconds since the round's newest checkpoint, where these are
    known, else since its start. progress: whether there was any. decision: why the ranks start again. suspects: of a hang that ended the
    round."""

    round: int
    reason: str
    culprit: str | None
    node: int | None
    lost_s: float
    progress: bool
    decision: str
    suspects: list[RestartSuspect]


class _OfAnyVerdict(TypedDict):
    schema: Literal["ranklaunch.verdict/1"]
    outcome: Literal["succeeded", "failed", "stopped"]
    exit_code: int
    reason: str
    culprit: Culprit | None
    victims: list[Victim]
    started: str
    ended: str
    failures: list[Culprit]
    notes: list[str]
    because: list[Because]


class Verdict(_OfAnyVerdict, total=False):
    """How an attempt has ended. exit_code: of the job, the same on every node. reason: one sentence. culprit: whose failure decided; null
    where no process of the job's did. victims: processes of this node that were ended because of it. started, ended: of this node, UTC,
    ISO 8601. failures: other processes that ended by themselves and did not decide. notes: what else is worth knowing. because: rules
    that decided, in their order. evidence: the folder where it lies, if any was taken here. restarts: what ended each round before the
    last. suspect_host: that should be left out the next time, if any; what speaks of the machine counts, not a program's own failure."""

    hang: Hang
    evidence: str
    stop: Stop
    restarts: list[Restart]
    suspect_host: SuspectHost


class Round(Verdict):
    """How a round has ended that another followed; the attempt's own verdict is that of the last. restart: what is said of it in the
    attempt's verdict."""

    restart: Restart


class HangAlarm(Hang):
    """An alarm, as a command is told of it. restart: how often ranks were started again in place before. time: of the alarm, UTC, ISO 8601.
    reason: what does not move, since when, and whom it may be put down to. suspect_host: null where nothing speaks of one host."""

    schema: Literal["ranklaunch.hang/1"]
    job: str
    attempt: int
    restart: int
    time: str
    reason: str
    suspect_host: SuspectHost | None


class SlowAlarm(TypedDict):
    """A slow job, as a command is told of it. restart: how often ranks were started again in place before. time: of the alarm. reason: one
    sentence. since: when the first slow step began. Both are UTC, ISO 8601. step_s: seconds of a step since then. baseline_s: seconds of a
    step before. factor: step_s divided by baseline_s. rank, node: the slowest rank by the step times that ranks print, null where none
    stands out."""

    schema: Literal["ranklaunch.slow/1"]
    job: str
    attempt: int
    restart: int
    time: str
    reason: str
    since: str
    step_s: float
    baseline_s: float
    factor: float
    rank: int | None
    node: int | None


DOCUMENTS: Mapping[str, Any] = {"verdict": Verdict, "round": Round, "hang": HangAlarm, "slow": SlowAlarm}
