"""What an attempt begins with: what is its own, and what all attempts of a session have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch.files import Files
from ranklaunch.muster.nodes import Nodes
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.companions import Join
from ranklaunch.supervise.judge import Explain, Told
from ranklaunch.supervise.output.console import Terminal
from ranklaunch.supervise.phases import Replan
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import Signals
from ranklaunch.values import Value

if TYPE_CHECKING:
    from ranklaunch.muster.events import Again, Decide, Decided
    from ranklaunch.supervise.rounds.cleaning import Held


class After(Value):
    """What came before a round. restarts: what verdict.json says of the rounds before. pause_s: until this one may start. held: what the
    last one had, and may have left. started: when the first began; "" of the first."""

    restarts: tuple[Mapping[str, Any], ...] = ()
    pause_s: float = 0.0
    held: Held | None = None
    started: str = ""


class Start(Value):
    """What an attempt begins with. replan: makes the plan anew once a wait has brought facts. explain: what a launcher's output says of the
    rank that failed first. told: what a process that is itself a ranklaunch has found. companions: who goes along with it.
    decide: whether all start again after a failure; again: what they begin with then. after: which rounds were before. run_id: of the job,
    where it is known here."""

    plan: Plan
    record: Record
    files: Files
    replan: Replan | None = None
    explain: Explain = lambda child, tail: None
    told: Told = lambda process: None
    companions: Sequence[Join] = ()
    decide: Callable[[Decide], Decided] | None = None
    again: Callable[[Again, Held | None], Start] | None = None
    after: After = After()
    run_id: str = ""


class Surroundings(Value):
    """What attempts have in common. env: what processes inherit. take_signals: looks at once for those that have come. asked: the signal
    of the first stop request, and when it came, in monotonic seconds."""

    loop: Loop
    terminal: Terminal
    signals: Signals
    env: Mapping[str, str]
    nodes: Nodes
    take_signals: Callable[[], None]
    asked: Callable[[], tuple[int, float] | None]
