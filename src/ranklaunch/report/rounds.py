"""One round by the events of all its nodes, by node 0's clock. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from ranklaunch.fields import NOTHING
from ranklaunch.logs import written
from ranklaunch.report import model, nodes
from ranklaunch.report.model import Round, Seen, Span
from ranklaunch.report.node_events import NodeEvents
from ranklaunch.report.reading import NodeFiles

MOST_CLOCK_S = 1.0  # difference up to which the clocks of two nodes count as equal
LATE_S = 1.0  # after the first node: the least delay of a node that counts as late
Place = tuple[int, int]  # epoch and step
_EARLIEST = ("began", "first_output", "first_step", "failed")  # times of a round: the earliest of its nodes


@dataclass(frozen=True)
class Together(Round):
    """Round by the events of its nodes alone. sign: time of the last event of any node. steps: steps of each rank. lost_node: some nodes
    have events of the round's end, and other nodes have events of the round but not of its end."""

    sign: float | None = None
    last_step: float | None = None
    waits: tuple[Span, ...] = ()
    saved: tuple[Span, ...] = ()
    stalls: tuple[Span, ...] = ()
    slows: tuple[Span, ...] = ()
    steps: tuple[tuple[Seen, ...], ...] = ()
    lost_node: bool = False


def shifts(by_node: Mapping[int, Sequence[NodeFiles]]) -> dict[int, float]:
    """Return the seconds to add to the clock of each node: as measured by the muster, else by the release, which reaches all nodes at the
    same time."""
    every = {node: [files.events for files in each] for node, each in by_node.items()}
    released = {node: first(each.one("released").get("at") for each in events) for node, events in every.items()}
    at = first(released[node] for node in sorted(released))
    result = {}
    for node, events in every.items():
        measured, release = first(each.clock_s for each in events), released[node]
        difference = at - release if at is not None and release is not None else 0.0
        result[node] = measured if measured is not None else difference if abs(difference) > MOST_CLOCK_S else 0.0
    return result


def first(times: Iterable[float | None]) -> float | None:
    """Return the first known time."""
    return next((at for at in times if at is not None), None)


def known_or(at: float | None, otherwise: float) -> float:
    return otherwise if at is None else at


def _least(times: Iterable[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _most(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def together(number: int, by_node: Mapping[int, NodeFiles], shift: Mapping[int, float]) -> Together:
    """Return one round. by_node: files of each node, with events already moved by the node's shift."""
    with_events = {node: files for node, files in by_node.items() if files.events.first is not None}
    if not with_events:
        return Together(number)
    every = [files.events for files in with_events.values()]
    ends = [*filter(None, (events.one("end") for events in every))]
    end = ends[0] if ends else NOTHING
    fields: dict[str, Any] = {name: _least(map(attrgetter(name), every)) for name in _EARLIEST}
    fields.update({name: tuple(chain.from_iterable(map(attrgetter(name), every))) for name in ("waits", "saved")})
    sign = _most(map(attrgetter("last"), every))
    over = known_or(fields["failed"], sign or 0.0)
    return Together(
        number, end.get("outcome") or model.UNFINISHED, **fields, **_progress(every),
        sign=sign,
        released=_most(events.one("released").get("at") for events in every),
        launched=_least(map(nodes.launched_of, with_events.values())),
        ended=_most(each["at"] for each in ends),
        exit_code=end.get("exit_code"),
        late=next(filter(None, map(attrgetter("late"), every)), ""),
        last=_last(with_events),
        stalls=tuple(chain.from_iterable(nodes.stalls_of(events, over) for events in every)),
        slows=tuple(chain.from_iterable(nodes.slows_of(events, over) for events in every)),
        lost_node=0 < len(ends) < len(every),
        output=written.together({node: files.written for node, files in with_events.items()}, _unmeasured(with_events, shift)),
    )  # fmt: skip


def _progress(every: Iterable[NodeEvents]) -> dict[str, Any]:
    """Return the fields of a round about the steps of its ranks."""
    steps = tuple(tuple(each) for events in every for each in events.steps.values())
    places = ((seen.epoch, seen.step) for seen in chain.from_iterable(steps))
    return {"steps": steps, "last_step": _most(each[-1].at for each in steps), "best": max(places, default=None)}


def _unmeasured(by_node: Mapping[int, NodeFiles], shift: Mapping[int, float]) -> dict[int, float]:
    """Return the shifts for the times of output, by node. These times are already by node 0's clock if the muster measured the clock."""
    return {node: 0.0 if files.events.clock_s is not None else shift[node] for node, files in by_node.items()}


def _last(by_node: Mapping[int, NodeFiles]) -> int | None:
    """Return the node that came last to the muster, None if all came at about the same time."""
    arrivals = {node: wait.began for node, files in by_node.items() for wait in files.events.waits if wait.kind == "muster"}
    if len(arrivals) < 2 or max(arrivals.values()) - min(arrivals.values()) < LATE_S:
        return None
    return max(arrivals, key=lambda node: arrivals[node])


def regained(round_: Together, before: Place | None) -> float | None:
    """Return the time when training reached step `before` again, None if never. The time of a step that is not recorded is interpolated."""
    if before is None:
        return round_.first_step
    return _least(_reached(steps, before) for steps in round_.steps)


def _reached(steps: Sequence[Seen], place: Place) -> float | None:
    last: Seen | None = None
    for step in steps:
        if (step.epoch, step.step) >= place:
            if last and last.epoch == step.epoch == place[0] and step.step > last.step:
                return last.at + (step.at - last.at) * (place[1] - last.step) / (step.step - last.step)
            return step.at
        last = step
    return None


def best_of(rounds: Iterable[Round]) -> Place | None:
    return max((each.best for each in rounds if each.best is not None), default=None)
