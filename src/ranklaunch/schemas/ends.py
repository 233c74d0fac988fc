"""File ends.json: ends of the processes of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.ends.model import JobFacts, MemoryKills, OtherProcess, Process, Raised, RankEnd, Record, Stop
from ranklaunch.verdict.model import Because, Culprit, Suspect


class NodeState(TypedDict, total=False):
    """Facts of a node about a failed round, for node 0's decision about a restart. launched: the node's ranks had been started. unable:
    neither this round nor another one can begin on this node. seconds: since the start of the ranks. finished: a rank had ended with 0
    by itself. place: epoch and step, the highest in the logs. marks: markers of checkpoints exist and were read. mark: number of the
    newest checkpoint of this round. since_mark_s: age of this checkpoint in seconds. gone: reason if ranklaunch was killed on this node.
    hung: the job was ended for a hang. stop: exit code and reason of a stop request in the meantime."""

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
    """Deciding event on this node; later events do not change the decision. reason: "" if the end of a process is the reason. pid: of the
    child with the deciding end. culprit: the process to blame, if no process of this node decided. killed: ranklaunch itself was killed.
    hung: the job hung. from_elsewhere: another node decided. because: rules that named suspects of a hang."""

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


WITHOUT_DEFAULTS = (Record, Raised, Process)  # classes whose fields are left out of the file if they have their default
DOCUMENTS: Mapping[str, Any] = {"ends": Ends}
