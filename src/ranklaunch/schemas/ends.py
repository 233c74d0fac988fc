"""ends.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.ends.model import JobFacts, MemoryKills, OtherProcess, Process, Raised, RankEnd, Record, Stop
from ranklaunch.verdict.model import Because, Culprit, Suspect


class NodeState(TypedDict, total=False):
    """A node's facts on a failed round, for node 0's decision on another one. launched: its ranks had been started. unable:
    this round cannot begin here, and no other one. seconds: since the start of the ranks. finished: a rank had ended with 0
    by itself. place: epoch and step, the highest in the logs. marks: markers of checkpoints were found and read. mark:
    number of the newest checkpoint of this round. since_mark_s: its age in seconds. gone: ranklaunch was killed here. hung:
    the job was ended for a hang. stop: exit code and reason of a stop request in the meantime."""

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
    """The deciding event on this node; nothing later changes this. reason: "" if the end of a process has one. pid: of the child with the
    deciding end. culprit: the process to blame, if no process of this node decided. killed: ranklaunch itself was killed. hung: the job
    hung. from_elsewhere: another node decided. because: rules that named suspects of a hang."""

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
    """Ends of all processes of a node in one round, and the basis of its verdict. All times are seconds since 1970 by node 0's clock.
    stop: the first stop request; null if there was none. state: empty if nothing is started again. lost: facts about nodes without a
    report; on other nodes than 0 only about node 0. ends: children of ranklaunch in the order of their ends, then ranks below them.
    others: further processes with records of their own."""

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
