"""Attempts as their companions see them, without processes: real plans, records, loops, nodes and stoppers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.plugins import Attended
from ranklaunch.supervise.record import Record
from ranklaunch.supervise.stop import Stopper
from ranklaunch.system.loop import Loop


@dataclass(frozen=True)
class Seen:
    """Session as tools see it; see supervise.context.Seen."""

    plan: Callable[[], Plan]
    begun: Callable[[], bool]
    attended: Callable[[], Attended]
    phase: Callable[[], tuple[str, str]]
    of_ranks: Callable[[], Mapping[int, Mapping[str, Any]]]
    hang: Callable[[], object]
    asked: Callable[[], tuple[int, float] | None]
    orphaned: Callable[[], bool]
    slow: Callable[[], bool] = bool


@dataclass(frozen=True)
class Asked:
    """Session as its desk sees it; see control.desk.Asked."""

    attended: Callable[[], Attended]
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


def attended(plan: Plan, folder: Path, loop: Loop | None = None, say: Callable[[str], None] = nobody, **changed: Any) -> Attended:
    """An attempt that runs, has no ranks, and keeps its record in a folder."""
    loop = loop or Loop()
    record = Record(str(folder))
    assert record.open()
    return replace(
        Attended(
            plan=lambda: plan, ending=lambda: None, running={}, ranks=dict, outputs=dict,
            nodes=Nodes(plan, {}, loop, say, nobody_listens),
            loop=loop, record=record, say=say, fail=nobody,
            stopper=Stopper(loop, plan.limits.grace_s, list, nobody), ended=(), explained=lambda child, tail: None, take=nobody, env={},
            evidence=[],
        ),
        **changed,
    )  # fmt: skip
