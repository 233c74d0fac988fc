"""What an attempt begins with: what is its own, and what all attempts of a session have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.files import Files
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.ending import Told
from ranklaunch.supervise.phases import Replan
from ranklaunch.supervise.plugins import Join
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop
from ranklaunch.verdict.model import Verdict

if TYPE_CHECKING:
    from ranklaunch.muster.events import Again, Decide, Decided
    from ranklaunch.processes.children import Child
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
    """Work of an attempt in place of the plan's processes, for example a search that starts processes one after the other. Made with the
    attempt, before the nodes meet. Processes with a role of `child.UNJUDGED` decide nothing; their deaths by the kernel for memory are not
    counted."""

    def begin(self) -> None:
        """Start, once the nodes have met and the steps before the launch are done."""

    def on_end(self, child: Child) -> None:
        """Handle the end of a process that decides nothing. Not called after the attempt's ending."""

    def close(self) -> None:
        """Write results: all processes have ended, and the verdict follows."""


class Seen(Protocol):
    """Session as tools that are told of a job see it."""

    def plan(self) -> Plan: ...

    def begun(self) -> bool:
        """Return True once the first attempt has launched its ranks."""

    def attempt(self) -> Attempt: ...

    def phase(self) -> tuple[str, str]: ...

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]: ...

    def hang(self) -> object:
        """Return the alarm that stands, None without one."""

    def asked(self) -> tuple[int, float] | None:
        """Return the signal of the first stop request, and when it came, in monotonic seconds."""

    def orphaned(self) -> bool:
        """Return True if everything is to end at once."""

    def slow(self) -> bool: ...


Tell = Callable[[Seen, Loop, Callable[[str], None], Mapping[str, str]], Teller]


@dataclass(frozen=True)
class Start:
    """What an attempt begins with. replan: makes the plan anew once a wait has brought facts. told: what a process that is itself a
    ranklaunch has found. companions: plugins beside those of running.py. has_plugins:
    running.py adds its plugins. decide: whether all start again after a failure; again: what they begin with
    then. after: which rounds were before. run_id: of the job, where it is known here. tell: makes who tells tools of the job, where one
    is named. work: makes the work that is done in place of the plan's processes."""

    plan: Plan
    record: Record
    files: Files
    replan: Replan | None = None
    told: Told = lambda process: None
    companions: Sequence[Join] = ()
    has_plugins: bool = False
    decide: Callable[[Decide], Decided] | None = None
    again: Callable[[Again, Held | None], Start] | None = None
    after: After = After()
    run_id: str = ""
    tell: Tell | None = None
    work: Callable[[Attempt], Work] | None = None
