"""The chaos table, as data: what goes wrong in a job of three nodes, and what must come of it, whatever launches the ranks.

A launcher more is a line in LAUNCHERS, a failure more is one in CASES. Where a cell cannot hold, `cannot` says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

NODES = 3
SLOTS = 2
GRACE_S = 5.0
STOPPED_S = 3.0  # from the failure to the end of the last node, beyond what the ranks need: here nothing, they obey at once

ALL = (0, 1, 2)
START = ("start 0 1 2", "ready")
GO = (*START, "go")


@dataclass(frozen=True)
class Launcher:
    """A column. ranks: processes on each node whose end ranklaunch tells apart. names_ranks: whether a verdict has the rank.
    rank_table: whether it needs one. training: it needs PyTorch. slow: memory that a node needs beside what a rank takes, in MB."""

    method: str
    ranks: int = SLOTS
    names_ranks: bool = True
    rank_table: bool = False
    training: bool = False
    memory: int = 256


LAUNCHERS = (
    Launcher("spawn"),
    Launcher("torchrun", training=True, memory=1024),
    Launcher("ranktable", rank_table=True),
    Launcher("pytorch", ranks=1, names_ranks=False),
)


@dataclass(frozen=True)
class Culprit:
    """local: of the rank on its node; None where no rank is to blame."""

    node: int
    local: int | None = None
    signal: str | None = None
    out_of_memory: bool = False


@dataclass(frozen=True)
class Case:
    """A row.

    steps: what the test does, one after the other, as words (`Steps` of test_chaos.py). orders: what ranks do (children/chaos.py).
    code: of every node that was started; codes: of those that end otherwise. culprit: None for none. reason: what is in the verdict's
    reason on all nodes; reasons: on single nodes. said: what single nodes have said besides. together: nodes whose verdicts must be
    the same; apart: why not all are. no_verdict: nodes that cannot leave one. after_start: whether the time to the end is counted, and
    must be short. lingers: ranklaunch itself is killed, so that nothing can be gone in the very moment of its end.
    cannot: launchers for which it cannot hold, and why. broken: launchers for which it should hold, and does not.
    """

    name: str
    steps: tuple[str, ...]
    code: int
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    as_pid_1: bool = False
    outcome: str = "failed"
    codes: Mapping[int, int] = field(default_factory=dict)
    culprit: Culprit | None = None
    reason: tuple[str, ...] = ()
    reasons: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    said: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    together: tuple[int, ...] = ALL
    apart: str = ""
    no_verdict: tuple[int, ...] = ()
    network: bool = True
    launched: bool = True
    lingers: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    def with_(self, **changes: object) -> Case:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


SUCCEED = {"*": ("wait go", "exit 0")}
KILLED = Case(
    "ranklaunch SIGKILLed",
    (*START, "kill 2"),
    137,
    culprit=Culprit(2, signal="SIGKILL"),
    reason=("node 2 (h2)", "SIGKILL"),
    lingers=True,
)
LATE = Case(
    "host late",
    ("start 0 1", "said 0 waiting for 1 of 3 nodes: h2 (node 2", "power 2", "start 2", "ready", "go"),
    0,
    SUCCEED,
    late=(2,),
    outcome="succeeded",
    said={0: ("last came node 2 (h2) after",)},
)
IMPATIENT = {"RANKLAUNCH_MUSTER_TIMEOUT_S": "3", "RANKLAUNCH_WAIT_S": "3"}
DISK_FULL = Case(
    "log disk full, then success",
    ("disk 1 2", *START, "go"),
    0,
    {"1.1": ("write 4", "wait go", "exit 0"), **SUCCEED},
    outcome="succeeded",
    said={1: ("No space left on device",)},
    together=(0, 2),
    apart="a verdict on a disk without room may be missing",
    no_verdict=(1,),
    cannot={"torchrun": "its ranks write into files themselves, on the same disk: a rank's own write fails, and so does the rank"},
)

CASES = (
    Case(
        "rank exits 42",
        GO,
        42,
        {"1.1": ("wait go", "mark at", "exit 42")},
        culprit=Culprit(1, 1),
        reason=("node 1 (h1) exited with code 42",),
    ),
    Case(
        "rank SIGKILLed",
        GO,
        137,
        {"1.1": ("wait go", "mark at", "kill")},
        culprit=Culprit(1, 1, "SIGKILL"),
        reason=("node 1 (h1) was killed by SIGKILL",),
    ),
    Case(
        "rank out of memory",
        ("memory 1", *GO),
        137,
        {"1.1": ("wait go", "mark at", "eat")},
        culprit=Culprit(1, 1, "SIGKILL", out_of_memory=True),
        reason=("node 1 (h1)", "out of memory, by the kernel's own count"),
    ),
    Case("ranklaunch SIGTERMed", (*START, "term 1"), 143, outcome="stopped", reason=("node 1 (h1)", "stopped by SIGTERM")),
    KILLED,
    KILLED.with_(name="ranklaunch SIGKILLed, as PID 1", as_pid_1=True, together=(0, 1), apart="node 2's dies with it", no_verdict=(2,)),
    Case(
        "host cut off",
        (*START, "cut 1"),
        75,
        env={"RANKLAUNCH_LOST_AFTER_S": "2"},
        reasons={0: ("node 1 (h1) does not answer",), 1: ("node 0 (h0) does not answer",), 2: ("node 1 (h1) does not answer",)},
        together=(0, 2),
        apart="node 1 hears of nobody, and says for itself that node 0 does not answer",
        network=False,
    ),
    LATE,
    LATE.with_(
        name="host too late",
        steps=("start 0 1", "end 0", "end 1", "power 2", "start 2"),
        code=75,
        env={**IMPATIENT, "RANKLAUNCH_MUSTER_TIMEOUT_S": "2"},
        outcome="failed",
        reasons={0: ("h2 (node 2",), 1: ("h2 (node 2",), 2: ("node 0 (h0): no answer on port 18889 (connection refused)",)},
        said={},
        together=(0, 1),
        apart="node 2 comes when all have gone",
        launched=False,
    ),
    Case(
        "name of node 0 never resolves on node 1",
        ("unname 1 h0", "start 0 1 2"),
        75,
        env=IMPATIENT,
        reasons={0: ("h1 (node 1",), 1: ("h0", "resolve"), 2: ("h1 (node 1",)},
        together=(0, 2),
        apart="node 1 cannot reach anybody",
        launched=False,
    ),
    Case(
        "name of a missing node never resolves",
        ("unname all h2", "start 0 1"),
        75,
        env=IMPATIENT,
        late=(2,),
        reason=("h2 (node 2, its name does not resolve",),
        together=(0, 1),
        apart="node 2 is missing",
        launched=False,
    ),
    Case(
        "muster port taken",
        ("listen 0", "start 0 1 2"),
        75,
        env=IMPATIENT,
        reasons={
            0: ("port 18889 of this node is in use by another process", "RANKLAUNCH_MUSTER_PORT"),
            1: ("node 0 (h0): what answers there is not ranklaunch",),
            2: ("node 0 (h0): what answers there is not ranklaunch",),
        },
        together=(),
        apart="nobody can reach node 0",
        launched=False,
    ),
    DISK_FULL,
    DISK_FULL.with_(
        name="log disk full, then 42",
        code=42,
        orders={"1.1": ("write 4", "wait go", "mark at", "exit 42")},
        outcome="failed",
        culprit=Culprit(1, 1),
        reason=("node 1 (h1) exited with code 42",),
    ),
    KILLED.with_(
        name="ranklaunch of node 0 SIGKILLed",
        steps=(*START, "kill 0"),
        culprit=Culprit(0, signal="SIGKILL"),
        reason=("node 0 (h0)", "SIGKILL"),
    ),
    KILLED.with_(
        name="ranklaunch of node 0 SIGKILLed, as PID 1",
        steps=(*START, "kill 0"),
        as_pid_1=True,
        culprit=Culprit(0, signal="SIGKILL"),
        reason=("node 0 (h0)", "SIGKILL"),
        together=(),
        apart="each of the others says when it heard of node 0 last; nobody is left to make one word of it",
        no_verdict=(0,),
    ),
    Case(
        "host of node 0 gone",
        (*START, "cut 0", "stop 0"),
        75,
        env={"RANKLAUNCH_LOST_AFTER_S": "2"},
        codes={0: 137},
        reason=("node 0 (h0) does not answer",),
        together=(),
        apart="each of the others says when it heard of node 0 last; nobody is left to make one word of it",
        no_verdict=(0,),
        network=False,
    ),
)
