"""Attempts without processes for their companions: with real plans, records, loops, nodes and
stoppers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import MemoryFiles

from ranklaunch.muster.nodes import Nodes
from ranklaunch.output.console import Terminal
from ranklaunch.plan.model import Plan
from ranklaunch.processes.launchers import Launchers
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Start, Teller
from ranklaunch.supervise.ending import Ending
from ranklaunch.supervise.record import Record
from ranklaunch.supervise.session import Session
from ranklaunch.system.loop import Loop
from ranklaunch.system.tree import Identity


@dataclass(frozen=True)
class Seen:
    """Session as tools see it; see supervise.context.Seen."""

    plan: Callable[[], Plan]
    begun: Callable[[], bool]
    attempt: Callable[[], Attempt]
    phase: Callable[[], tuple[str, str]]
    of_ranks: Callable[[], Mapping[int, Mapping[str, Any]]]
    hang: Callable[[], object]
    asked: Callable[[], tuple[int, float] | None]
    orphaned: Callable[[], bool]
    slow: Callable[[], bool] = bool


@dataclass(frozen=True)
class Asked:
    """Session as its desk sees it; see control.desk.Asked."""

    attempt: Callable[[], Attempt]
    phase: Callable[[], tuple[str, str]]
    of_ranks: Callable[[], Mapping[int, Mapping[str, Any]]]
    offer: Callable[[int], tuple[bool, list[str]]]
    stop: Callable[[], None]
    end_by: Callable[[float, Sequence[str]], None]
    present: Callable[[], Mapping[str, Any]] = dict


Hearer = Callable[[int, Any], object]


def nobody(*_: object) -> None:
    """What happens on other nodes, which tests without them do not have."""


def nobody_listens() -> Any:
    """Return no attempt: nothing that the muster says reaches one in these tests."""
    raise AssertionError


class Wired(Nodes):
    """A node whose messages a test delivers. sent: called with "node 0" or "nodes", the topic, the body and the addressed nodes."""

    def __init__(self, plan: Plan, loop: Loop, sent: Callable[[str, str, Any, Sequence[int]], object]) -> None:
        super().__init__(plan, {}, loop, nobody, nobody_listens)
        self.hearers: dict[tuple[str, bool], Hearer] = {}
        self._sent = sent

    def hear(self, topic: str, hear: Hearer, *, at_node_0: bool = False) -> None:
        self.hearers[topic, at_node_0] = hear

    def tell_node_0(self, topic: str, body: object) -> None:
        self._sent("node 0", topic, body, ())

    def tell_nodes(self, topic: str, body: object, nodes: Sequence[int] = ()) -> None:
        self._sent("nodes", topic, body, nodes)

    def wall(self, clock: float) -> float:
        return clock


class Console(Terminal):
    """Console that hands ranklaunch's own lines to a test."""

    def __init__(self, loop: Loop, say: Callable[[str], None]) -> None:
        super().__init__(loop, {})
        self._hand_over = say

    def say(self, text: str, lines: Iterable[bytes] = ()) -> None:
        self._hand_over(text)


class Around(Session):
    """Session of one attempt without signals: the process of the tests keeps its own."""

    def __init__(self, loop: Loop, say: Callable[[str], None], nodes: Nodes, teller: Teller) -> None:
        unused: Any = None
        self.env = {}
        self.spare = []
        self.loop = loop
        self.nodes = nodes
        self.terminal = Console(loop, say)
        self.signals = unused
        self._asked = None
        self._teller = teller


class Known(Launchers):
    """Launchers with ranks that a test names."""

    def __init__(self, attempt: Attempt, ranks: Callable[[], Mapping[int, Identity]]) -> None:
        super().__init__(attempt)
        self._ranks = ranks

    def living(self) -> dict[int, Identity]:
        return dict(self._ranks())


class Begun(Attempt):
    """Attempt that runs without processes of its own. A failure is kept, and ends nothing else."""

    def fail(self, ending: Ending) -> None:
        self.ending = self.ending or ending


def attempt(
    plan: Plan, folder: Path, loop: Loop | None = None, say: Callable[[str], None] = nobody, *,
    nodes: Nodes | None = None, ranks: Callable[[], Mapping[int, Identity]] | None = None, teller: Teller | None = None,
) -> Attempt:  # fmt: skip
    """Return an attempt that runs, has no ranks but those named, and keeps its record in a
    folder."""
    loop = loop or Loop()
    record = Record(str(folder))
    assert record.open()
    around = Around(loop, say, nodes or Nodes(plan, {}, loop, say, nobody_listens), teller or Teller())
    begun = Begun(Start(plan, record, MemoryFiles()), around)
    begun.launchers = Known(begun, ranks) if ranks else begun.launchers
    return begun
