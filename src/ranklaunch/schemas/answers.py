"""JSON output of the commands status, check, explain and ranktable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.schemas.verdict import Hang


class NodeNow(TypedDict):
    """Present state of a node. phase: phase of the node's attempt. waiting: cause of a wait, empty for none. age_s: seconds since the
    node's last answer, null before the first."""

    node: int
    host: str
    phase: Literal["starting", "running", "done", "stopping", "unknown"]
    waiting: str
    age_s: float | None


class LauncherNow(TypedDict):
    """Launcher with a recorded start. argv: command line without secrets, at most 16 words. alive: true if the launcher runs.
    ended: exit code by the launcher's own record, null for none."""

    node: int
    name: str
    pid: int
    argv: list[str]
    alive: bool
    ended: int | None


class Head(TypedDict):
    """First Python process of a rank while this process runs, by its own record. program: script or module. placed_by: starter of the rank,
    which is ranklaunch or the name of a launcher; empty for anything else."""

    pid: int
    program: str
    placed_by: str


class RaisedNow(TypedDict):
    """Uncaught exception, recorded by the rank itself; the rank may still run. at: seconds since 1970. from_: main, thread, or process for
    a child of multiprocessing. text: type, message and place, without secrets."""

    at: float
    from_: str
    thread: str
    text: str


class _OfAnyRank(TypedDict):
    rank: int
    node: int
    pid: int | None
    state: str
    cpu_s: float
    rss_kb: int
    output_bytes: int | None
    last_output_s: float | None


class RankNow(_OfAnyRank, total=False):
    """Present state of a rank. pid: null if unknown or gone. state: process state of the kernel, gone for an ended process, or unknown
    without a known process. cpu_s, rss_kb: of the rank's whole process tree. output_bytes: bytes of output so far, null if the output
    goes through another node that does not answer. last_output_s: seconds since the last output, null for none. step: last step in the
    output. steps: number of steps of the whole training, null if unknown. step_s: seconds of one step, on average; null if unknown.
    head, exception: by the rank's own records, if any."""

    step: int
    steps: int | None
    step_s: float | None
    head: Head
    exception: RaisedNow


class Silence(TypedDict):
    """Time without any movement. seconds: 0 if something moves. limit_s: seconds until the hang alarm. setting: variable with this limit.
    then_s: limit after the first step."""

    seconds: float
    limit_s: float
    setting: str
    then_s: float


class HangNow(Hang):
    """Current hang alarm. reason: the parts without movement, since when, and the suspects."""

    reason: str


class Status(TypedDict):
    """State of a running job. time: UTC, ISO 8601. node: the asked node, which answers for all nodes. silence: null if the watch for hangs
    is off or has not begun. hang: null without a present alarm. launchers: launchers with a recorded start. ranks: the known ranks of all
    nodes."""

    schema: Literal["ranklaunch.status/1"]
    job: str
    platform: str
    method: str
    attempt: int
    time: str
    node: int
    nodes: list[NodeNow]
    silence: Silence | None
    hang: HangNow | None
    launchers: list[LauncherNow]
    ranks: list[RankNow]


class Finding(TypedDict):
    """One finding of check. kind: wrong if the finding would make run fail, else note. exit_code: of run, 0 for a note."""

    kind: Literal["wrong", "note"]
    text: str
    exit_code: int


class Check(TypedDict):
    """Reasons for which run would fail on this node. Facts of the plan are null if planning refuses the job. exit_code: of check itself,
    the same as of run. why: reason for the method. node: index of this node. nodes: number of nodes of the job. ranks: number of ranks on
    this node."""

    schema: Literal["ranklaunch.check/1"]
    exit_code: int
    method: str | None
    why: str | None
    node: int | None
    nodes: int | None
    ranks: int | None
    findings: list[Finding]


class Explanation(TypedDict):
    """Explanation of a line of a log. kind: cause; consequence of another rank's failure; stopped, if somebody signalled the process;
    unknown, if the log has no known error: the other texts are empty then. line: text of the line, without secrets. retry: yes if the same
    job may succeed at another start, elsewhere if only on other hosts, no if a restart is useless; empty if unknown. source: place of the
    proof. line_number: from 1; null if unknown."""

    kind: Literal["cause", "consequence", "stopped", "unknown"]
    name: str
    line: str
    meaning: str
    remedy: str
    retry: Literal["no", "yes", "elsewhere", ""]
    source: str
    family: str
    line_number: int | None


class Explain(Explanation):
    """Deciding line of a log. log: name of the file. skipped_bytes: bytes at the beginning of the log that were not searched. others:
    further known lines."""

    schema: Literal["ranklaunch.explain/1"]
    log: str
    skipped_bytes: int
    others: list[Explanation]


class RankPlace(TypedDict):
    """Device of a rank. node: index of the server or pod in the table. server, pod, device_ip: empty if the table has none. device:
    physical id on the host."""

    rank: int
    node: int
    server: str
    pod: str
    device: str
    device_ip: str


class SuperPod(TypedDict):
    """Servers of one super node."""

    id: str
    servers: list[str]


class RankTable(TypedDict):
    """Content of a rank table. file: path of the table. version: null if the table has problems. ranks: in their order, empty if the table
    has problems. warnings: entries that are odd but not wrong. problems: all defects; always empty in the output of `ranktable show`, which
    ends with 78 for a table with a defect."""

    schema: Literal["ranklaunch.ranktable/1"]
    file: str
    version: str | None
    ranks: list[RankPlace]
    super_pods: list[SuperPod]
    warnings: list[str]
    problems: list[str]


class RankMoved(TypedDict):
    """Rank with another device in the new table. before, after: null if this table does not have the rank."""

    rank: int
    before: RankPlace | None
    after: RankPlace | None


class RankTableDiff(TypedDict):
    """Differences between two rank tables. versions: of the old table and of the new one."""

    schema: Literal["ranklaunch.ranktable-diff/1"]
    versions: list[str]
    changes: list[RankMoved]


DOCUMENTS: Mapping[str, Any] = {
    "status": Status, "check": Check, "explain": Explain, "ranktable": RankTable, "ranktable-diff": RankTableDiff,
}  # fmt: skip
