"""What goes along with an attempt from its launch to its end, and is no part of starting or ending ranks: who watches them, takes evidence
of a failure, or answers whoever asks how it stands. An attempt knows none of them; each sees of it what Attended has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.plan.model import Plan
from ranklaunch.processes.children import Child
from ranklaunch.supervise.ending import Ending, Explain
from ranklaunch.supervise.record import Record
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop, Timer

if TYPE_CHECKING:
    from ranklaunch.output.pipe import Output
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.supervise.stop import Stopper
    from ranklaunch.verdict.blame import Suspect

PATIENCE_S = 15.0  # of an attempt that has failed, with its companions, before it ends what runs


@dataclass(frozen=True)
class Attended:
    """An attempt as its companions see it. plan: the newest. ending: what decided, None until then. running: its own children, by pid.
    ranks: the processes of ranks that are known to live, by rank, whoever has started them. outputs: what ranks write, by rank.
    loop: what is asked of it ends with the attempt. say: a line
    for people. fail: ends the attempt, as its first failure. stopper: ends what runs, once it has begun. ended: its own children that
    have, in that order. explained: which rank of a launcher failed first, by what that has written. take: has evidence taken on all
    nodes, and whether the job ends after that. evidence: on node 0, who hears what all nodes have found. alarm: tools are told that the
    job hangs. slow: tools are told that the job is slow. said: ranks that were on their way out by themselves have said why by now: what
    they write later is about being ended. taking: whether evidence is being taken here, for which ranks compute, write and say something,
    whatever they wait for."""

    plan: Callable[[], Plan]
    ending: Callable[[], Ending | None]
    running: Mapping[int, Child]
    ranks: Callable[[], Mapping[int, tree.Identity]]
    outputs: Callable[[], Mapping[int, Output]]
    nodes: Nodes
    loop: Loop
    record: Record
    say: Callable[[str], None]
    fail: Callable[[Ending], None]
    stopper: Stopper
    ended: Sequence[Child]
    explained: Explain
    take: Callable[[str, bool], None]
    env: Mapping[str, str]
    evidence: list[Callable[[Any], object]]
    alarm: Callable[[Mapping[str, Any]], None] = lambda said: None
    slow: Callable[[Mapping[str, Any]], None] = lambda event: None
    said: Callable[[], None] = lambda: None
    taking: Callable[[], bool] = lambda: False


class Companion:
    """Does nothing, at any of these moments."""

    @property
    def taking(self) -> bool:
        """Evidence, of this node."""
        return False

    @property
    def slow(self) -> bool:
        """True while the job is slow."""
        return False

    def take(self, why: str, ends: bool) -> None:
        """Evidence of all nodes is wanted. ends: the job is about to."""

    def deciding(self, ending: Ending) -> None:
        """A failure of this node has decided, or a launcher has told of one, and no other node has heard of it yet."""

    def died(self, launcher: Child, rank: Watched) -> None:
        """Note that a rank of a launcher ended; the launcher will end the other ranks as soon as it notices."""

    def before_stop(self, ending: Ending, go_on: Callable[[], None]) -> bool:
        """A failure has decided, here or on another node, and nothing has been told to end yet. True: it shall not be, until this companion
        calls go_on, for at most PATIENCE_S. Nobody is asked when somebody has asked for the stop, or all have succeeded."""
        return False

    def on_deadline(self, ways: Sequence[str]) -> None:
        """The job is to be stopped in time for one. ways: by which its ranks were asked to save before that, as Saving has them."""

    def on_stop_request(self, number: int) -> None:
        """By this signal, while nothing had decided yet; the ranks have not been told."""

    def on_stop_of_another(self, number: int) -> None:
        """As on_stop_request, of another node, and before this one may be sent the signal itself."""

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        """What it knows of ranks of this node, by rank and key, for who asks how the job stands."""
        return {}

    def present(self) -> Mapping[str, Any]:
        """Return what it knows of the job at present, by key, for who asks how the job stands."""
        return {}

    def hurried(self) -> None:
        """Nothing is waited for any more: what runs is about to be ended."""

    def stopped(self) -> None:
        """Nothing of the attempt runs any more, and all that was written has been read."""

    def facts(self) -> Mapping[str, Any]:
        """What verdict.json says beside the judgement, by key: what JSON can hold."""
        return {}

    def notes(self, ending: Ending, found: Sequence[Suspect]) -> tuple[str, ...]:
        """What all nodes' verdicts shall say of the failure, before anybody judges it. found: here."""
        return ()

    def close(self) -> None:
        """The attempt is over; its timers and descriptors end by themselves."""


Join = Callable[[Attended], Companion]


class Companions:
    """All of an attempt's. hear_evidence: who hears, on node 0, what all nodes have found."""

    def __init__(self, joining: Sequence[Join], loop: Loop) -> None:
        self._joining = joining
        self._loop = loop
        self.hear_evidence: list[Callable[[Any], object]] = []
        self._all: list[Companion] = []
        self._waited_for: set[int] = set()
        self._go_on: Callable[[], None] | None = None
        self._timer: Timer | None = None

    @property
    def hold_the_stop(self) -> bool:
        return self._go_on is not None

    def join(self, attended: Callable[[], Attended]) -> None:
        """Everything has been started."""
        if self._joining:
            seen = attended()
            self._all += [join(seen) for join in self._joining]

    def add(self, join: Join, attended: Attended) -> None:
        self._all.append(join(attended))

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
        """Calls go_on, at once where nobody needs time, or where somebody has asked another node for the stop."""
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
            self._timer = self._loop.after(PATIENCE_S, self.hurry)

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
        found: dict[int, dict[str, Any]] = {}
        for companion in self._all:
            for rank, known in companion.of_ranks().items():
                found.setdefault(rank, {}).update(known)
        return found

    def present(self) -> Mapping[str, Any]:
        return {key: value for companion in self._all for key, value in companion.present().items()}

    def stopped(self) -> None:
        for companion in self._all:
            companion.stopped()

    def facts(self) -> Mapping[str, Any]:
        return {key: value for companion in self._all for key, value in companion.facts().items()}

    def notes(self, ending: Ending, found: Sequence[Suspect]) -> tuple[str, ...]:
        return tuple(note for companion in self._all for note in companion.notes(ending, found))

    def close(self) -> None:
        for companion in self._all:
            companion.close()

    def _is_done(self, i: int) -> None:
        self._waited_for.discard(i)
        if not self._waited_for:
            self.hurry()
