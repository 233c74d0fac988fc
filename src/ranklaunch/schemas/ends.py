"""ends.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.ends.model import JobFacts, MemoryKills, OtherProcess, Process, Raised, RankEnd, Record, Stop
from ranklaunch.verdict.model import Because, Culprit, Suspect


class NodeState(TypedDict, total=False):
    """What a node knows of a failed round when node 0 decides whether another follows. launched: its ranks had been started. unable: this
    round cannot begin here, and no other one. seconds: since the ranks were started. finished: a rank had ended with 0 by itself. place:
    epoch and step, the highest in the logs. marks: markers of checkpoints were found and read. mark: number of the newest checkpoint of
    this round. since_mark_s: its age in seconds. gone: ranklaunch was killed here. hung: the job was ended because it hung. stop: exit code
    and reason of a stop request that came meanwhile."""

    launched: bool
    unable: bool
    seconds: float
    finished: bool
    place: list[int] | None
    marks: bool
    mark: int | None
    since_mark_s: float | None
    gone: str
    hung: bool
    stop: list[int | str]


class Decided(TypedDict):
    """What decided on this node; nothing that follows changes it. reason: "" where the end of a process says it. pid: of the child whose
    end decided. culprit: who is to blame, where no process of this node decided. killed: ranklaunch itself was killed. hung: the job hung.
    from_elsewhere: another node decided. because: rules that named suspects of a hang."""

    outcome: str
    exit_code: int
    reason: str
    at: float
    pid: int | None
    culprit: Culprit | None
    killed: bool
    hung: bool
    from_elsewhere: bool
    because: list[Because]


class Ends(TypedDict):
    """How each process of a node ended in one round, and what its verdict was made from. All times are seconds since 1970 by node 0's
    clock. stop: the first stop request; null if there was none. state: empty where nothing is started again. lost: what is known of nodes
    that never reported; on other nodes than 0 only of node 0. ends: children of ranklaunch in the order of their ends, then ranks below
    them. others: further processes that wrote down something of themselves."""

    schema: Literal["ranklaunch.ends/1"]
    job: JobFacts
    ending: Decided
    stop: Stop | None
    memory: MemoryKills
    state: NodeState
    lost: list[Suspect]
    ends: list[RankEnd]
    others: list[OtherProcess]


WITHOUT_DEFAULTS = (Record, Raised, Process)  # of these, fields that have their default are not written
DOCUMENTS: Mapping[str, Any] = {"ends": Ends}
