"""Programs that hang, and programs that only look so, as data: what happens to which ranks, and who must be named for it.

CI runs one of each kind; `make tables` all of them, each five times, and prints how many were found and how many were right: docs/hangs.md
has what came out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NODES, SLOTS = 3, 2
HANG_S = 5.0
TIMES = 5  # each program in the table
NOBODY: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """A program. what: as children/hangs.py has it. who: the ranks that it happens to. hangs: whether an alarm must come; else none may.
    names: suspects that must be named, all of them and no others; None: the samples cannot tell. slots: ranks of a node. long: seconds that
    what is no hang takes. code: with which it ends then. env: settings besides. training: whether it needs PyTorch; launchers: another
    launcher. typical: CI runs it."""

    name: str
    what: str
    who: str = "3"
    hangs: bool = True
    names: tuple[int, ...] | None = None
    method: str = "spawn"
    slots: int = SLOTS
    long: float = 2 * HANG_S
    code: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    training: bool = False
    launchers: bool = False
    typical: bool = False


def quiet(name: str, what: str, who: str = "all", **more: object) -> Case:
    return Case(name, what, who, hangs=False, **more)  # type: ignore[arg-type]


CASES = (
    Case("SIGSTOP of a rank", "SIGSTOP", names=(3,), typical=True),
    Case("SIGSTOP of a node's ranks", "SIGSTOP", who="2,3", names=(2, 3)),
    Case("SIGSTOP of all", "SIGSTOP", who="all", names=NOBODY),
    Case("endless loop", "endless loop", names=(3,), typical=True),
    Case("endless loop of rank 0", "endless loop", who="0", names=(0,)),
    Case("endless loop of all", "endless loop", who="all", names=NOBODY),
    Case("state D", "state D", names=(3,)),
    Case("one sleeps, the others spin", "others spin", names=(3,)),
    Case("a rank leaves with 0", "leaves too soon", names=(3,)),
    Case("two locks", "two locks", names=(3,)),
    Case("loader on an empty fifo", "loader on an empty fifo", names=(3,)),
    Case("sleeps for ever", "sleeps for ever", names=(3,)),
    Case("accepts nobody", "accepts nobody", names=(3,)),
    Case("its child is stopped", "its child is stopped", names=(3,)),
    Case("gloo: a rank is absent", "gloo: one is absent", who="1", slots=1, training=True, typical=True),
    Case("gloo: another order", "gloo: another order", who="1", slots=1, training=True),
    Case("gloo: a barrier of one", "gloo: another group", who="1", slots=1, training=True),
    Case("torchrun, endless loop", "endless loop", who="1", method="torchrun", slots=1, names=(1,), training=True),
    Case("mpirun, SIGSTOP", "SIGSTOP", who="1", method="mpirun", slots=1, names=(1,), launchers=True),
    Case("msrun, endless loop", "endless loop", who="1", method="msrun", slots=1, names=(1,), launchers=True),
    Case("mpirun, sleeps for ever", "sleeps for ever", who="1", method="mpirun", slots=1, launchers=True),
    quiet("gloo: a wrong size", "gloo: a wrong size", who="1", slots=1, code=134, training=True),  # gloo ends who is sent more
    quiet("writes a checkpoint", "writes a checkpoint", typical=True),
    quiet("rank 0 writes a checkpoint, the others wait", "writes a checkpoint", who="0"),
    quiet("compiles before the first step", "compiles first", typical=True),
    quiet("silent evaluation", "silent evaluation"),
    quiet("tqdm", "tqdm"),
    quiet("rank 0 alone prints", "rank 0 alone prints", typical=True),
    quiet("a loader at work", "loader at work", who="3"),
    quiet("SIGSTOP of all for a while", "SIGSTOP for a while", long=0.5 * HANG_S),
    quiet("waits for less than the time", "waits a while", who="3", long=0.5 * HANG_S),
    quiet("computes in bursts, one alone", "computes in bursts", who="3", long=0.8 * HANG_S),
    quiet("a debugger", "debugger", who="3"),
    quiet("what users expect", "waits a while", who="3", env={"RANKLAUNCH_EXPECT": "step: every 60s"}),
)  # fmt: skip
