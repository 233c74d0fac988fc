"""What commands say as JSON: status, check, explain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ranklaunch.schemas.verdict import Hang


class NodeNow(TypedDict):
    """One node. phase: of its attempt. waiting: cause of a wait, empty for none. age_s: seconds since its last answer, null
    before the first."""

    node: int
    host: str
    phase: Literal["starting", "running", "done", "stopping", "unknown"]
    waiting: str
    age_s: float | None


class LauncherNow(TypedDict):
    """A launcher that recorded its start. argv: its command line, at most 16 words, without secrets. alive: whether it runs. ended: the
    exit code that it wrote down of itself; null for none."""

    node: int
    name: str
    pid: int
    argv: list[str]
    alive: bool
    ended: int | None


class Head(TypedDict):
    """The first Python of a rank, by its own record, while it runs. program: script or module. placed_by: what started the rank: ranklaunch
    or the name of a launcher; empty for anything else."""

    pid: int
    program: str
    placed_by: str


class RaisedNow(TypedDict):
    """An exception that a rank wrote down of itself when nobody caught it; the rank may still run. at: seconds since 1970. from: process is
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
    """pid: null where it is not known or gone. state: as the kernel has it; gone: it has ended; unknown: its process is not known. cpu_s,
    rss_kb: of its whole process tree. output_bytes: that it has written, null where it writes through another node that has not said
    so. last_output_s: seconds since it wrote, null where it has not. step: the last that its output told of. steps: of the whole
    training; null where that is not known. step_s: seconds of one, on average; null while that cannot be told. head, exception: by its own
    records, where there are any."""

    step: int
    steps: int | None
    step_s: float | None
    head: Head
    exception: RaisedNow


class Silence(TypedDict):
    """Seconds for which nothing has moved, 0 where something does, and the limit after which the hang alarm comes. setting: the variable
    that the limit comes from. then_s: the limit once a first step is known."""

    seconds: float
    limit_s: float
    setting: str
    then_s: float


class HangNow(Hang):
    """A hang alarm that stands. reason: what does not move, since when, and whom it may be put down to."""

    reason: str


class Status(TypedDict):
    """How a running job stands. time: UTC, ISO 8601. node: the one that was asked, and answers for all. silence: null where nobody watches
    for hangs, or before anybody does. hang: null where no alarm stands. launchers: those that recorded their start. ranks: those that are
    known, of all nodes."""

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


class Found(TypedDict):
    """One thing that check has found. kind: wrong would make run fail; a note would not. exit_code: of run, 0 for a note."""

    kind: Literal["wrong", "note"]
    text: str
    exit_code: int


class Check(TypedDict):
    """What would make run fail on this node. exit_code: of check itself, and that of run. method, why: null where planning refuses the job.
    node: index of this node, null then too. nodes: how many take part. ranks: of this node."""

    schema: Literal["ranklaunch.check/1"]
    exit_code: int
    method: str | None
    why: str | None
    node: int | None
    nodes: int | None
    ranks: int | None
    findings: list[Found]


class Explanation(TypedDict):
    """What is known of a line of a log. kind: cause; consequence of another rank's failure; stopped, if somebody told the process to end;
    unknown: nothing in the log is known, and the other texts are empty. line: as the log has it, without secrets. retry: whether the job
    may go well when it is started again as it is; empty where nobody knows. source: where that can be read. line_number: from 1; null where
    it is not known."""

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
    """The line that decides. log: the file's name. skipped_bytes: at its beginning, that were not looked at. others: further lines that are
    known."""

    schema: Literal["ranklaunch.explain/1"]
    log: str
    skipped_bytes: int
    others: list[Explanation]


class RankPlace(TypedDict):
    """The device of a rank. node: index of its server or pod in the table. server, pod, device_ip: empty where the table says none. device:
    physical id on its host."""

    rank: int
    node: int
    server: str
    pod: str
    device: str
    device_ip: str


class SuperPod(TypedDict):
    """Servers that one super node joins."""

    id: str
    servers: list[str]


class RankTable(TypedDict):
    """A rank table, by its path. version, ranks: null and empty where it has problems. ranks: in their order. warnings: what is odd but not
    wrong. problems: every defect; show tells of none, for it ends with 78 where there is one."""

    schema: Literal["ranklaunch.ranktable/1"]
    file: str
    version: str | None
    ranks: list[RankPlace]
    super_pods: list[SuperPod]
    warnings: list[str]
    problems: list[str]


class RankMoved(TypedDict):
    """A rank that is on another device. before, after: null where it is in one table alone."""

    rank: int
    before: RankPlace | None
    after: RankPlace | None


class RankTableDiff(TypedDict):
    """What is different between two rank tables. versions: of the old one and the new one."""

    schema: Literal["ranklaunch.ranktable-diff/1"]
    versions: list[str]
    changes: list[RankMoved]


DOCUMENTS: Mapping[str, Any] = {
    "status": Status, "check": Check, "explain": Explain, "ranktable": RankTable, "ranktable-diff": RankTableDiff,
}  # fmt: skip
