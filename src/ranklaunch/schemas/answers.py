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
    """Launcher with a recorded start. argv: its command line, at most 16 words, without secrets. alive: True if running.
    ended: its own record of its exit code; null for none."""

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
    """Present state of a rank. pid: null if unknown or gone. state: the kernel's; gone: ended; unknown: the process is not
    known. cpu_s, rss_kb: of its whole process tree. output_bytes: written so far, null if written through another node
    without an answer. last_output_s: seconds since its last output, null for none. step: the last in its output. steps: of
    the whole training; null if unknown. step_s: seconds of one step, on average; null if unknown. head, exception: by its
    own records, if any."""

    step: int
    steps: int | None
    step_s: float | None
    head: Head
    exception: RaisedNow


class Silence(TypedDict):
    """Seconds without any movement, 0 if something moves, and the limit before the hang alarm. setting: the variable with the
    limit. then_s: the limit once a first step is known."""

    seconds: float
    limit_s: float
    setting: str
    then_s: float


class HangNow(Hang):
    """Current hang alarm. reason: the parts without movement, since when, and the suspects."""

    reason: str


class Status(TypedDict):
    """State of a running job. time: UTC, ISO 8601. node: the asked node, with an answer for all. silence: null if nobody watches for
    hangs, or before anybody does. hang: null without a present alarm. launchers: launchers with a recorded start. ranks: the known
    ones, of all nodes."""

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
    """Explanation of a line of a log. kind: cause; consequence of another rank's failure; stopped, if somebody signalled the process;
    unknown: nothing in the log is known, and the other texts are empty. line: text of the line, without secrets. retry: yes if the same
    job may go well at a new start, elsewhere if on other hosts, no if not; empty if unknown. source: place of the proof. line_number:
    from 1; null if unknown."""

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
    """Deciding line of a log. log: the file's name. skipped_bytes: at its beginning, not searched. others: further known
    lines."""

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
    """Rank table, by its path. version, ranks: null and empty if the table has problems. ranks: in their order. warnings: odd
    but not wrong entries. problems: every defect; show lists none, as it ends with 78 if there is one."""

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
