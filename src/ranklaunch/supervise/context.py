"""Context of an attempt: its initial values and tools, and the plugins (companions) beside it.

Plugins watch for hangs, take evidence of failures and note facts about stops, from the launch of an
attempt to its end. An attempt calls all of its plugins in the same way, and knows none of them by
name. A plugin has a reference to its attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ranklaunch.env.reader import Arrived
from ranklaunch.files import Files
from ranklaunch.plan.model import Plan
from ranklaunch.processes.children import Child
from ranklaunch.supervise.ending import InnerJudgement
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.verdict.model import Ending, Verdict

if TYPE_CHECKING:
    from ranklaunch.muster.events import Again, Decide, Decided
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.restarts.cleaning import Held
    from ranklaunch.supervise.attempt import Attempt
    from ranklaunch.verdict.blame import Suspect

PATIENCE_S = 15.0  # for companions after a failure, before the ranks are ended


# The start


@dataclass(frozen=True)
class After:
    """State after the rounds before this one.

    restarts: entries of verdict.json about the earlier rounds. pause_s: pause before this round may start. held: resources that
    processes of the last round may have left behind. started: start time of the first round; "" in the first round.
    """

    restarts: tuple[Mapping[str, Any], ...] = ()
    pause_s: float = 0.0
    held: Held | None = None
    started: str = ""


class Teller:
    """Notifier of tools (hooks, metrics) about a job, with a method for each event. Each method does nothing here."""

    def hang(self, alarm: Mapping[str, Any]) -> None:
        """Report a hang, on node 0. alarm: the alarm's fields, as all nodes get them."""

    def slow(self, event: Mapping[str, Any]) -> None:
        """Report a slow job, on node 0. event: fields of the event."""

    def restarts(self, folder: str) -> None:
        """Report that all ranks are about to start again in place. folder: folder of the round that has ended."""

    def all_done(self) -> None:
        """Report that the ranks of this node have ended with 0, before the search for processes that they left behind."""

    def ended(self, verdict: Verdict, path: str) -> None:
        """Report the end of the job: no process runs any more. path: path of the written verdict."""


class Work(Protocol):
    """Work of an attempt in place of the plan's processes, for example a search that starts processes one after the other.

    Made with the attempt, before the nodes meet. Processes with a role of `children.UNJUDGED` decide nothing; their kills by the
    kernel for lack of memory are not counted.
    """

    def begin(self) -> None:
        """Start the work: the nodes have met, and the steps before the launch are done."""

    def on_end(self, child: Child) -> None:
        """Handle the end of a process that decides nothing. Not called after the attempt's ending."""

    def close(self) -> None:
        """Write the results: all processes have ended, and the verdict follows."""


class Seen(Protocol):
    """Session as seen by the tools that follow a job: metrics, hooks and the status of a TrainJob."""

    def plan(self) -> Plan: ...

    def begun(self) -> bool:
        """Return True once the first attempt has launched its ranks."""

    def attempt(self) -> Attempt: ...

    def phase(self) -> tuple[str, str]: ...

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]: ...

    def hang(self) -> object:
        """Return the current hang alarm, None without one."""

    def asked(self) -> tuple[int, float] | None:
        """Return the signal of the first stop request, and when it came, in monotonic seconds."""

    def orphaned(self) -> bool:
        """Return True after the outer process was killed: everything must end at once."""

    def slow(self) -> bool: ...


Replan = Callable[[Arrived], Plan]
Tell = Callable[[Seen, Loop, Callable[[str], None], Mapping[str, str]], Teller]


@dataclass(frozen=True)
class Start:
    """Values at the start of an attempt.

    replan: makes the plan anew once a wait has brought facts. told: returns the judgement of a process that is a ranklaunch run
    itself (a simulated node), else None. companions: plugins besides those of running.py. has_plugins: True if running.py adds its
    plugins. decide: decides after a failure if all ranks start again; again: makes the start values of that round. after: earlier
    rounds. run_id: run id of the job, if known here. tell: makes the notifier of tools, if configured. work: makes the
    replacement for the plan's processes.
    """

    plan: Plan
    record: Record
    files: Files
    replan: Replan | None = None
    told: InnerJudgement = lambda process: None
    companions: Sequence[Join] = ()
    has_plugins: bool = False
    decide: Callable[[Decide], Decided] | None = None
    again: Callable[[Again, Held | None], Start] | None = None
    after: After = After()
    run_id: str = ""
    tell: Tell | None = None
    work: Callable[[Attempt], Work] | None = None


# Plugins


class Companion:
    """Plugin of an attempt, with a method for each event. Each method does nothing here."""

    @property
    def taking(self) -> bool:
        """Return True while evidence is collected on this node: ranks then compute, write and print even if they hang."""
        return False

    @property
    def slow(self) -> bool:
        """Return True while the job is slow."""
        return False

    def take(self, why: str, ends: bool) -> None:
        """Collect evidence on all nodes. why: reason, for its record. ends: True if the job is about to end."""

    def deciding(self, ending: Ending) -> None:
        """Handle the first failure of this node, or a launcher's report of one, before other
        nodes are informed."""

    def died(self, launcher: Child, rank: Watched) -> None:
        """Note that a rank of a launcher ended; the launcher will end the other ranks as soon as it notices."""

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> bool:
        """Handle a failure of any node, before the ranks are ended. Return True to delay their
        end until go_on is called, at most PATIENCE_S. Not called after a stop request or a
        success."""
        return False

    def on_deadline(self, ways: Sequence[str]) -> None:
        """Handle a deadline by which the job will be stopped. ways: ways in which ranks were asked
        to save before, as in Saving.ways."""

    def on_stop_request(self, number: int) -> None:
        """Handle a stop request by this signal, before the ranks are signalled. Not called after
        a failure."""

    def on_stop_of_another(self, number: int) -> None:
        """Handle a stop request to another node, perhaps before this node gets the signal itself."""

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        """Return fields of this node's ranks for `ranklaunch status`, by rank."""
        return {}

    def present(self) -> Mapping[str, Any]:
        """Return fields of the job for `ranklaunch status`."""
        return {}

    def hurried(self) -> None:
        """Stop waiting: the ranks are about to be ended."""

    def stopped(self) -> None:
        """Handle the end of all processes, with all their output read."""

    def facts(self) -> Mapping[str, Any]:
        """Return keys of verdict.json beside the judgement; values are JSON."""
        return {}

    def notes(self, ending: Ending, suspects: Sequence[Suspect]) -> tuple[str, ...]:
        """Return notes about the failure for the verdicts of all nodes, before the judgement.
        suspects: suspects of this node."""
        return ()

    def close(self) -> None:
        """Release resources that the loop does not own; timers and descriptors of the loop end with the loop."""


Join = Callable[["Attempt"], Companion]


class Companions:
    """Plugins of one attempt. hear_evidence: functions called on node 0 with the evidence of all nodes, an
    evidence.all_nodes.Gathered."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.hear_evidence: list[Callable[[Any], object]] = []
        self._all: list[Companion] = []
        self._waited_for: set[int] = set()
        self._go_on: Callable[[], None] | None = None
        self._timer: Timer | None = None

    @property
    def hold_the_stop(self) -> bool:
        """Return True while the ranks must not be ended, because a companion needs time."""
        return self._go_on is not None

    def add(self, join: Join) -> None:
        """Make a companion of the attempt, and add it."""
        self._all.append(join(self._attempt))

    @property
    def taking(self) -> bool:
        return any(companion.taking for companion in self._all)

    @property
    def slow(self) -> bool:
        return any(companion.slow for companion in self._all)

    def take(self, why: str, ends: bool) -> None:
        for companion in self._all:
            companion.take(why, ends)

    def deciding(self, ending: Ending) -> None:
        for companion in self._all:
            companion.deciding(ending)

    def died(self, launcher: Child, rank: Watched) -> None:
        for companion in self._all:
            companion.died(launcher, rank)

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> None:
        """Call go_on: at once after a stop request to another node; else once no companion needs
        time, at most PATIENCE_S later."""
        if ending.outcome == "stopped":
            for companion in self._all:
                companion.on_stop_of_another(ending.exit_code - 128)
            go_on()
            return
        self._go_on = go_on
        self._waited_for = set(range(len(self._all)))
        for i, companion in enumerate(self._all):
            if not companion.before_stop(ending, partial(self._is_done, i)):
                self._waited_for.discard(i)
        if not self._waited_for:
            self.hurry()
        elif self.hold_the_stop:
            self._timer = self._attempt.loop.after(PATIENCE_S, self.hurry)

    def hurry(self) -> None:
        """Go on with the stop without waiting for companions."""
        go_on, self._go_on = self._go_on, None
        if self._timer:
            self._timer.cancel()
        for companion in self._all:
            companion.hurried()
        if go_on:
            go_on()

    def on_stop_request(self, number: int) -> None:
        for companion in self._all:
            companion.on_stop_request(number)

    def on_deadline(self, ways: Sequence[str]) -> None:
        for companion in self._all:
            companion.on_deadline(ways)

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        result: dict[int, dict[str, Any]] = {}
        for companion in self._all:
            for rank, fields in companion.of_ranks().items():
                result.setdefault(rank, {}).update(fields)
        return result

    def present(self) -> Mapping[str, Any]:
        return {key: value for companion in self._all for key, value in companion.present().items()}

    def stopped(self) -> None:
        for companion in self._all:
            companion.stopped()

    def facts(self) -> Mapping[str, Any]:
        return {key: value for companion in self._all for key, value in companion.facts().items()}

    def notes(self, ending: Ending, suspects: Sequence[Suspect]) -> tuple[str, ...]:
        return tuple(note for companion in self._all for note in companion.notes(ending, suspects))

    def close(self) -> None:
        for companion in self._all:
            companion.close()

    def _is_done(self, i: int) -> None:
        self._waited_for.discard(i)
        if not self._waited_for:
            self.hurry()
