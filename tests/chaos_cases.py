"""The chaos table, as data: what goes wrong in a job of three nodes, and what must come of it, whatever launches the ranks.

A launcher more is a line in LAUNCHERS, a failure more is one in CASES. Where a cell cannot hold, `without` says why.

`make tables` runs all of it, `make test-launchers` one cell of each kind: every case with the first launcher, whose ranks start at once,
and with the others those in which they have a part of their own (`TYPICAL`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

NODES = 3
SLOTS = 2
GRACE_S = 5.0
STOPPED_S = 3.0  # from the failure to the end of the last node, beyond what the ranks need: here nothing, they obey at once
SLOWLY_STOPPED_S = (
    15.0  # for launchers that take seconds to end, too; the times of their own that ranklaunch spares them are 30 s and 300 s
)

ALL = (0, 1, 2)
START = ("start 0 1 2", "ready")
GO = (*START, "go")


@dataclass(frozen=True)
class Launcher:
    """A column. ranks: of the test's program on each node. names_ranks: whether a verdict has the rank. rank_table: whether it needs
    one. ps: how many of the nodes, the last ones, only serve the others. training: whether it needs PyTorch; launchers: another launcher.
    memory: in MB, for the case that runs out of it: enough for all but that. slow: it takes seconds to start, so it is tried with the
    cases that are about launchers alone: not with what happens before the launch, nor with the order of events."""

    method: str
    ranks: int = SLOTS
    names_ranks: bool = True
    rank_table: bool = False
    ps: int = 0
    training: bool = False
    memory: int = 256
    launchers: bool = False
    slow: bool = False


LAUNCHERS = (
    Launcher("spawn"),
    Launcher("torchrun", training=True, memory=1024),
    Launcher("msrun", launchers=True, memory=1024, slow=True),
    Launcher("ranktable", rank_table=True),
    Launcher("pytorch", ranks=1, names_ranks=False),
    Launcher("mpirun", launchers=True),
    Launcher("tensorflow", ranks=1, ps=1),
    Launcher("deepspeed", launchers=True, memory=1536, slow=True),
    Launcher("accelerate", launchers=True, memory=1536, slow=True),
)


@dataclass(frozen=True)
class Culprit:
    """local: of the rank on its node; None where no rank is to blame. consequence: of something that nobody knows."""

    node: int
    local: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    consequence: bool = False


@dataclass(frozen=True)
class Case:
    """A row.

    steps: what the test does, one after the other, as words (`Steps` of test_chaos.py). orders: what ranks do (children/chaos.py).
    code: of every node that was started; codes: of those that end otherwise. culprit: None for none. reason: what is in the verdict's
    reason on all nodes; reasons: on single nodes. said: what single nodes have said besides. together: nodes whose verdicts must be
    the same; apart: why not all are. failures: nodes of the culprits beside the first; None: whatever they are. notes: what the notes
    of all say. no_verdict: nodes that need not leave one. clock: seconds by which single nodes' clocks are ahead. network: whether it
    is up, so that the end must come soon. launched: whether the ranks were at work. lingers: ranklaunch itself is killed, so that
    what it has started is gone a moment after its end. without: launchers for which it cannot hold or is not tried, and why.
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
    failures: tuple[int, ...] | None = ()
    notes: tuple[str, ...] = ()
    clock: Mapping[int, int] = field(default_factory=dict)
    no_verdict: tuple[int, ...] = ()
    network: bool = True
    launched: bool = True
    lingers: bool = False
    without: Mapping[str, str] = field(default_factory=dict)

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
IMPATIENT = {"RANKLAUNCH_MUSTER_TIMEOUT_S": "2", "RANKLAUNCH_WAIT_S": "2"}
DISK_FULL = Case(
    "log disk full, then success",
    ("disk 1 2", *START, "go"),
    0,
    {"1.1": ("write 4", "wait go", "exit 0"), **SUCCEED},
    outcome="succeeded",
    said={1: ("log: the disk is full",)},
    together=(0, 2),
    apart="a verdict on a disk without room may be missing",
    no_verdict=(1,),
    without={
        **dict.fromkeys(
            ("torchrun", "msrun", "deepspeed", "accelerate"),
            "its ranks write into files themselves, on the same disk: a rank's own write fails, and so does the rank",
        ),
        "mpirun": "the logs of all ranks are on node 0",
    },
)

DISK_FULL_42 = DISK_FULL.with_(
    name="log disk full, then 42",
    code=42,
    orders={"1.1": ("write 4", "wait go", "mark at", "exit 42")},
    outcome="failed",
    culprit=Culprit(1, 1),
    reason=("node 1 (h1) exited with code 42",),
    notes=("is full",),
)
CASES = (
    Case("success", GO, 0, SUCCEED, outcome="succeeded"),
    Case(
        "names resolve late",
        ("unname 1 h0", "unname 0 h1", "start 0 1 2", "said 1 its name does not resolve", "name 1 h0", "name 0 h1", "ready", "go"),
        0,
        SUCCEED,
        outcome="succeeded",
    ),
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
        env=IMPATIENT,
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
            0: ("port 18889 of this node is in use by process ", "RANKLAUNCH_MUSTER_PORT"),
            1: ("node 0 (h0): the program at the port is not ranklaunch",),
            2: ("node 0 (h0): the program at the port is not ranklaunch",),
        },
        together=(),
        apart="nobody can reach node 0",
        launched=False,
    ),
    DISK_FULL,
    DISK_FULL_42,
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

# The order of events, and what is whose consequence

LOST_PEER = """say Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    dist.all_reduce(loss)
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.11]:1234"""
WRONG_VALUE = """say Traceback (most recent call last):
  File "/workspace/train.py", line 91, in <module>
    raise ValueError(f"loss is {loss}")
ValueError: loss is nan"""
# What comes later waits for what is first: how soon a busy machine lets each rank go on is nobody's order.
SOON_LOSES_PEER = ("wait first", "sleep 0.05", LOST_PEER, "exit 1")
LOSES_PEER = ("wait go", "mark at", LOST_PEER, "exit 1")
APART = Case(
    "two causes, 0.3 s apart",
    GO,
    7,
    {"2.1": ("wait go", "mark first", "exit 7"), "1.1": ("hold", "wait first", "sleep 0.3", "exit 42")},
    culprit=Culprit(2, 1),
    reason=("node 2 (h2) exited with code 7",),
    failures=None,
)
HEARS = "mpirun hears of its ranks over the network, and names the one of which it hears first"
LATE_NEWS = APART.with_(
    name="the first cause is heard of last",
    steps=("delay 1 600", *GO),
    code=42,
    orders={"1.1": ("wait go", "mark first", "exit 42"), "2.1": ("hold", "wait first", "sleep 0.35", "exit 7")},
    culprit=Culprit(1, 1),
    reason=("node 1 (h1) exited with code 42",),
    without={
        "torchrun": "the time of a rank's end is that of torchrun's own, which looks after its ranks ten times a second",
        "mpirun": HEARS,
    },
)
CLOCKS = dict.fromkeys(
    ("torchrun", "ranktable", "pytorch", "mpirun", "tensorflow"), "clocks are ranklaunch's own matter, whatever it launches"
)
WRONG_CLOCK = "the clock of the {} is 10,000 s ahead"
EARLY = Case(
    "a node ends with 0, others die of it 2 s later",
    (*START, "go", "said 1 waiting for the other nodes", "go rest"),
    1,
    {"1.0": ("wait go", "exit 0"), "1.1": ("wait go", "exit 0"), "0.0": ("wait rest", "mark at", LOST_PEER, "exit 1")},
    culprit=Culprit(0, 0, consequence=True),
    reason=("node 0 (h0) exited with code 1", "consequence of another failure"),
    notes=("node 1 had ended with 0, ", "which looks like a consequence of that"),
    without={"torchrun": "torchrun waits for those of the other nodes before it ends with 0", "mpirun": "only node 0 knows of ends"},
)

# What becomes of a launcher when the kernel takes one of its ranks, when its ranklaunch is killed where it has its rendezvous, its
# scheduler or its one mpirun, and when a host is gone. What comes before the launch, or nodes tell each other, is ranklaunch's own.
MEMORY, NODE_0, CUT_OFF = "rank out of memory", "ranklaunch of node 0 SIGKILLed", "host cut off"
NO_TRACE = "a SIGKILL that left no trace, beside a rank that takes a second to end"
LIKE_SPAWN = ("rank exits 42", NODE_0)
# With torchrun and those that take seconds to start, tests/launchers has ranks that exit with a code or are killed, and stops. A host that
# is cut off is a stop on either side of the cut; torchrun stands for those that have its rendezvous between nodes.
TYPICAL = {
    "torchrun": (MEMORY, NODE_0, CUT_OFF, NO_TRACE),
    "msrun": (MEMORY, NODE_0),
    "mpirun": (
        *("rank exits 42", "ranklaunch SIGTERMed", "ranklaunch SIGKILLed", "two causes, 0.3 s apart"),
        *(MEMORY, NODE_0, CUT_OFF, NO_TRACE),
    ),
    **dict.fromkeys(("ranktable", "pytorch", "tensorflow"), LIKE_SPAWN),  # whose ranks ranklaunch starts itself
    "deepspeed": ("rank exits 42",),  # it lives on when ranklaunch ends the other ranks
}


def typical(case: Case, launcher: Launcher) -> bool:
    """Whether this cell stands for others."""
    return launcher is LAUNCHERS[0] or case.name in TYPICAL.get(launcher.method, ())


EVENTS = (
    APART,
    APART.with_(name=f"{APART.name}; {WRONG_CLOCK.format('first')}", clock={2: 10_000}, without=CLOCKS),
    APART.with_(name=f"{APART.name}; {WRONG_CLOCK.format('second')}", clock={1: 10_000}, without=CLOCKS),
    LATE_NEWS,
    LATE_NEWS.with_(name=f"{LATE_NEWS.name}; {WRONG_CLOCK.format('first')}", clock={1: 10_000}, without=CLOCKS),
    Case(
        "a consequence, and its cause 0.5 s later",
        GO,
        3,
        {"0.0": LOSES_PEER, "2.0": ("hold", "wait at", "sleep 0.5", WRONG_VALUE, "exit 3")},
        culprit=Culprit(2, 0),
        reason=("node 2 (h2) exited with code 3", "ValueError: loss is nan"),
        failures=(0,),
        without=dict.fromkeys(("torchrun", "mpirun"), "it does not tell a rank's code when it has been told to end itself"),
    ),
    Case(
        "a consequence, and its cause 0.5 s later, which exits with 1",
        GO,
        1,
        {"0.0": LOSES_PEER, "2.0": ("hold", "wait at", "sleep 0.5", WRONG_VALUE, "exit 1")},
        culprit=Culprit(2, 0),
        reason=("node 2 (h2) exited with code 1", "ValueError: loss is nan"),
        failures=(0,),
    ),
    Case(
        "a SIGKILL that left no trace is heard of after its consequences",
        ("delay 2 300", *GO),
        137,
        {"2.1": ("wait go", "mark first", "kill"), "0.1": SOON_LOSES_PEER, "1.0": SOON_LOSES_PEER},
        culprit=Culprit(2, 1, "SIGKILL"),
        reason=("node 2 (h2) was killed by SIGKILL",),
        failures=None,
        without={"mpirun": HEARS},
    ),
    Case(
        "a SIGKILL that left no trace, beside a rank that takes a second to end",
        GO,
        137,
        {"2.1": ("wait go", "mark first", "kill"), "2.0": ("slow 1", "sleep 600"), "0.1": SOON_LOSES_PEER},
        culprit=Culprit(2, 1, "SIGKILL"),
        reason=("node 2 (h2) was killed by SIGKILL",),
        failures=None,
        without=dict.fromkeys(("pytorch", "tensorflow"), "a node has one process"),
    ),
    Case(
        "a node ends 2 s before the others",
        (*START, "go", "said 1 waiting for the other nodes, which are still running", "go rest"),
        0,
        {"1.0": ("wait go", "exit 0"), "1.1": ("wait go", "exit 0"), "*": ("wait rest", "exit 0")},
        outcome="succeeded",
        reason=("all",),
        without=EARLY.without,
    ),
    EARLY,
    EARLY.with_(
        name="a rank ends with 0, others die of it later",
        steps=(*START, "go", "event 1 exit", "go rest"),
        orders={"1.1": ("wait go", "exit 0"), "0.0": ("wait rest", "mark at", LOST_PEER, "exit 1")},
        notes=("on node 1 had ended with 0, ", "which looks like a consequence of that"),
        without={
            "torchrun": "no event tells that a rank of it has ended with 0",
            "mpirun": "it tells nobody that one of its ranks has ended with 0",
            **dict.fromkeys(("pytorch", "tensorflow"), "a node has one process"),
        },
    ),
)
