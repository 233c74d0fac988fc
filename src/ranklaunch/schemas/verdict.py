"""File verdict.json, and round.json of a round that was followed by a restart; hang.json and slow.json of alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.verdict.blame import SuspectHost
from ranklaunch.verdict.model import Because, Culprit, Victim


class HangSuspect(TypedDict):
    """Rank for which the other ranks may be waiting. why: difference from the other ranks. file: path of the rank's stacks, null for none.
    rule: name of the deciding rule (docs/hangs.md)."""

    rank: int
    node: int
    why: str
    file: str | None
    rule: str


class RestartSuspect(TypedDict):
    """Suspect of a hang that ended a round. rule: the rule behind the suspicion."""

    rank: int
    node: int
    rule: str


class Hang(TypedDict):
    """Suspected hang that has not ended. since: time of the last movement, UTC, ISO 8601. signals: signs of life without movement, or the
    broken rule of the user. suspects: no culprits as long as none of them fails. groups: ranks with equal stacks, a text for each group,
    the suspects' group first."""

    since: str
    signals: list[str]
    suspects: list[HangSuspect]
    groups: list[str]


class Stop(TypedDict):
    """Effect of a stop request on this node. signal: the signal of the request. caught_by: ranks with a handler, or ranks
    asked to save because of it. ended_by_themselves, killed: how the living ranks ended, except ranks with an unknown end.
    seconds: from the request until all had ended. saved: no if no rank handled it."""

    signal: str
    caught_by: list[int]
    ended_by_themselves: list[int]
    killed: list[int]
    seconds: float
    saved: Literal["yes", "no", "unknown"]


class Restart(TypedDict, total=False):
    """Round followed by a restart of all ranks in place. round: number, from 0. reason: reason for the end of the round. culprit: name of
    the process, null for none. node: node of the culprit. lost_s: seconds since the round's newest checkpoint, if known, else since the
    start of the round. progress: true if the round made progress. decision: reason for the restart. suspects: suspects of a hang, if the
    round ended by one."""

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
    """End of an attempt. exit_code: of the job, the same on every node. reason: one sentence. culprit: the process with the deciding
    failure; null if no process of the job decided. victims: processes of this node, ended because of the culprit. started, ended: of this
    node, UTC, ISO 8601. failures: other processes that ended by themselves and did not decide. notes: further facts. because: the
    deciding rules, in their order. evidence: folder of the evidence, if any was taken on this node. restarts: the failure at the end of
    each round before the last. suspect_host: host to leave out of the next start, if any, by signs of the machine and not of the
    program."""

    hang: Hang
    evidence: str
    stop: Stop
    restarts: list[Restart]
    suspect_host: SuspectHost


class Round(Verdict):
    """End of a round with a successor; the attempt's own verdict is the last round's. restart: this round's entry in the
    attempt's verdict."""

    restart: Restart


class HangAlarm(Hang):
    """Hang alarm, as a command receives it. restart: number of earlier restarts of the ranks in place. time: of the alarm,
    UTC, ISO 8601. reason: the stalled part, the start of the stall, and its suspects. suspect_host: null if no evidence
    points to one host."""

    schema: Literal["ranklaunch.hang/1"]
    job: str
    attempt: int
    restart: int
    time: str
    reason: str
    suspect_host: SuspectHost | None


class SlowAlarm(TypedDict):
    """Slow job, as a command receives it. restart: number of earlier restarts of the ranks in place. time: of the alarm.
    reason: one sentence. since: start of the first slow step. Both are UTC, ISO 8601. step_s: seconds of a step since then.
    baseline_s: seconds of a step before. factor: step_s divided by baseline_s. rank, node: the slowest rank by the ranks'
    printed step times, null if none stands out."""

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
