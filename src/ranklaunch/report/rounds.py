"""What the nodes of one round tell together, by node 0's clock. Pure."""

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
from ranklaunch.report.reading import Left

MOST_CLOCK_S = 1.0  # by which clocks of nodes differ that count as the same
LATE_S = 1.0  # after the first, for a node that was waited for
Place = tuple[int, int]  # epoch and step
_EARLIEST = ("began", "first_output", "first_step", "failed")  # times of a round: the earliest of its nodes


@dataclass(frozen=True)
class Together(Round):
    """Round, by the events of its nodes alone. sign: last event of any node. steps: of each rank. lost_node: some nodes report
    the round but not its end, and other nodes report both."""

    sign: float | None = None
    last_step: float | None = None
    waits: tuple[Span, ...] = ()
    saved: tuple[Span, ...] = ()
    stalls: tuple[Span, ...] = ()
    slows: tuple[Span, ...] = ()
    steps: tuple[tuple[Seen, ...], ...] = ()
    lost_node: bool = False


def shifts(lefts: Mapping[int, Sequence[Left]]) -> dict[int, float]:
    """Return seconds to add to the clock of each node: what the muster has measured, else by the release, which all hear at once."""
    every = {node: [left.events for left in each] for node, each in lefts.items()}
    released = {node: first(each.one("released").get("at") for each in events) for node, events in every.items()}
    at = first(released[node] for node in sorted(released))
    result = {}
    for node, events in every.items():
        measured, here = first(each.clock_s for each in events), released[node]
        apart = at - here if at is not None and here is not None else 0.0
        result[node] = measured if measured is not None else apart if abs(apart) > MOST_CLOCK_S else 0.0
    return result


def first(times: Iterable[float | None]) -> float | None:
    """Return the first of some times that is known."""
    return next((at for at in times if at is not None), None)


def known(at: float | None, otherwise: float) -> float:
    return otherwise if at is None else at


def _least(times: Iterable[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _most(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def together(number: int, lefts: Mapping[int, Left], shift: Mapping[int, float]) -> Together:
    """lefts: by node, with events that are moved by its shift."""
    telling = {node: left for node, left in lefts.items() if left.events.first is not None}
    if not telling:
        return Together(number)
    every = [left.events for left in telling.values()]
    ends = [*filter(None, (events.one("end") for events in every))]
    end = ends[0] if ends else NOTHING
    fields: dict[str, Any] = {name: _least(map(attrgetter(name), every)) for name in _EARLIEST}
    fields.update({name: tuple(chain.from_iterable(map(attrgetter(name), every))) for name in ("waits", "saved")})
    sign = _most(map(attrgetter("last"), every))
    over = known(fields["failed"], sign or 0.0)
    return Together(
        number, end.get("outcome") or model.UNFINISHED, **fields, **_progress(every),
        sign=sign,
        released=_most(events.one("released").get("at") for events in every),
        launched=_least(map(nodes.launched_of, telling.values())),
        ended=_most(each["at"] for each in ends),
        exit_code=end.get("exit_code"),
        late=next(filter(None, map(attrgetter("late"), every)), ""),
        last=_last(telling),
        stalls=tuple(chain.from_iterable(nodes.stalls_of(events, over) for events in every)),
        slows=tuple(chain.from_iterable(nodes.slows_of(events, over) for events in every)),
        lost_node=0 < len(ends) < len(every),
        output=written.together({node: left.written for node, left in telling.items()}, _unmeasured(telling, shift)),
    )  # fmt: skip


def _progress(every: Iterable[NodeEvents]) -> dict[str, Any]:
    """Return fields of a round about the steps of its ranks."""
    steps = tuple(tuple(each) for events in every for each in events.steps.values())
    places = ((seen.epoch, seen.step) for seen in chain.from_iterable(steps))
    return {"steps": steps, "last_step": _most(each[-1].at for each in steps), "best": max(places, default=None)}


def _unmeasured(lefts: Mapping[int, Left], shift: Mapping[int, float]) -> dict[int, float]:
    """Return shifts for times beside logs: they are by node 0's clock where the muster measured it."""
    return {node: 0.0 if left.events.clock_s is not None else shift[node] for node, left in lefts.items()}


def _last(lefts: Mapping[int, Left]) -> int | None:
    """Who was waited for at the muster."""
    came = {node: wait.began for node, left in lefts.items() for wait in left.events.waits if wait.kind == "muster"}
    if len(came) < 2 or max(came.values()) - min(came.values()) < LATE_S:
        return None
    return max(came, key=lambda node: came[node])


def regained(round_: Together, before: Place | None) -> float | None:
    """Return when training reached its earlier place again; None if never. The time of an unseen step lies between the times
    of its neighbours."""
    if before is None:
        return round_.first_step
    return _least(_reached(steps, before) for steps in round_.steps)


def _reached(steps: Sequence[Seen], place: Place) -> float | None:
    last: Seen | None = None
    for seen in steps:
        if (seen.epoch, seen.step) >= place:
            if last and last.epoch == seen.epoch == place[0] and seen.step > last.step:
                return last.at + (seen.at - last.at) * (place[1] - last.step) / (seen.step - last.step)
            return seen.at
        last = seen
    return None


def best_of(rounds: Iterable[Round]) -> Place | None:
    return max((each.best for each in rounds if each.best is not None), default=None)
