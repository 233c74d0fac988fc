"""What an attempt begins with: what is its own, and what all attempts of a session have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.files import Files
from ranklaunch.muster.nodes import Nodes
from ranklaunch.output.console import Terminal
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.judge import Told
from ranklaunch.supervise.phases import Replan
from ranklaunch.supervise.plugins import Attended, Join
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import Signals
from ranklaunch.verdict.model import Verdict

if TYPE_CHECKING:
    from ranklaunch.muster.events import Again, Decide, Decided
    from ranklaunch.processes.child import Child
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.supervise.attempt import Attempt


@dataclass(frozen=True)
class After:
    """What came before a round. restarts: what verdict.json says of the rounds before. pause_s: until this one may start. held: what the
    last one had, and may have left. started: when the first began; "" of the first."""

    restarts: tuple[Mapping[str, Any], ...] = ()
    pause_s: float = 0.0
    held: Held | None = None
    started: str = ""


class Teller:
    """Who tells tools of a job, for as long as its session. Does nothing, at any of these moments."""

    def hang(self, said: Mapping[str, Any]) -> None:
        """Tell of an alarm about a hang, on node 0. said: as nodes have it."""

    def slow(self, event: Mapping[str, Any]) -> None:
        """Tell of a slow job, on node 0. event: the fields of the event."""

    def restarts(self, folder: str) -> None:
        """All ranks are about to start again in place. folder: of the round that has ended."""

    def all_done(self) -> None:
        """The ranks of this node have ended with 0, and what is left of them is about to be looked for."""

    def ended(self, verdict: Verdict, path: str) -> None:
        """Nothing runs any more, and the verdict is written there."""


class Work(Protocol):
    """Work of an attempt in place of the plan's processes: a search starts processes one after the
    other, for example. Made with the attempt, before the nodes meet. Processes with a role of
    `child.UNJUDGED` decide nothing; their deaths by the kernel for memory are not counted."""

    def begin(self) -> None:
        """Start, once the nodes have met and the steps before the launch are done."""

    def on_end(self, child: Child) -> None:
        """Handle the end of a process that decides nothing. Not called after the attempt's ending."""

    def close(self) -> None:
        """Write results: all processes have ended, and the verdict follows."""


@dataclass(frozen=True)
class Seen:
    """A session, as who tells of it sees it. begun: whether the first attempt has begun. hang: what stands of an alarm. slow:
    whether the job is slow. asked: as in Surroundings. orphaned: everything is to end at once."""

    plan: Callable[[], Plan]
    begun: Callable[[], bool]
    attended: Callable[[], Attended]
    phase: Callable[[], tuple[str, str]]
    of_ranks: Callable[[], Mapping[int, Mapping[str, Any]]]
    hang: Callable[[], object]
    asked: Callable[[], tuple[int, float] | None]
    orphaned: Callable[[], bool]
    slow: Callable[[], bool] = lambda: False


Tell = Callable[[Seen, Loop, Callable[[str], None], Mapping[str, str]], Teller]


@dataclass(frozen=True)
class Start:
    """What an attempt begins with. replan: makes the plan anew once a wait has brought facts. told: what a process that is itself a
    ranklaunch has found. companions: who goes along with it. decide: whether all start again after a failure; again: what they begin with
    then. after: which rounds were before. run_id: of the job, where it is known here. tell: makes who tells tools of the job, where one
    is named. work: makes the work that is done in place of the plan's processes."""

    plan: Plan
    record: Record
    files: Files
    replan: Replan | None = None
    told: Told = lambda process: None
    companions: Sequence[Join] = ()
    decide: Callable[[Decide], Decided] | None = None
    again: Callable[[Again, Held | None], Start] | None = None
    after: After = After()
    run_id: str = ""
    tell: Tell | None = None
    work: Callable[[Attempt], Work] | None = None


@dataclass(frozen=True)
class Surroundings:
    """What attempts have in common. env: what processes inherit. take_signals: looks at once for those that have come. asked: the signal
    of the first stop request, and when it came, in monotonic seconds. teller: who tells tools of the job."""

    loop: Loop
    terminal: Terminal
    signals: Signals
    env: Mapping[str, str]
    nodes: Nodes
    take_signals: Callable[[], None]
    asked: Callable[[], tuple[int, float] | None]
    teller: Callable[[], Teller] = Teller
