"""What the nodes of one round tell together, by node 0's clock. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.logs import written
from ranklaunch.report import model, nodes
from ranklaunch.report.model import Outcome, Seen, Span
from ranklaunch.report.node_events import Told
from ranklaunch.report.reading import Left

MOST_CLOCK_S = 1.0  # by which clocks of nodes differ that count as the same
LATE_S = 1.0  # after the first, for a node that was waited for
Place = tuple[int, int]  # epoch and step


@dataclass(frozen=True)
class Together:
    """sign: the last thing that any node tells. failed: what decided, good or bad; ended: everything had ended, None where no node says so.
    best: the highest step; steps: of each rank. output: bytes by then. lost_node: not
    all of those that tell of it tell of its end."""

    number: int
    began: float | None = None
    sign: float | None = None
    released: float | None = None
    launched: float | None = None
    first_output: float | None = None
    first_step: float | None = None
    last_step: float | None = None
    failed: float | None = None
    ended: float | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    late: str = ""
    last: int | None = None
    best: Place | None = None
    waits: tuple[Span, ...] = ()
    saved: tuple[Span, ...] = ()
    stalls: tuple[Span, ...] = ()
    slows: tuple[Span, ...] = ()
    steps: tuple[tuple[Seen, ...], ...] = ()
    lost_node: bool = False
    output: tuple[written.Point, ...] = ()


def shifts(lefts: Mapping[int, Sequence[Left]]) -> dict[int, float]:
    """What is to be added to the clock of each node, by what the muster has measured, else by the release, which all hear at once."""
    released = {node: next((left.told.released for left in each if left.told.released is not None), None) for node, each in lefts.items()}
    first = next((released[node] for node in sorted(released) if released[node] is not None), None)
    found = {}
    for node, each in lefts.items():
        measured = next((left.told.clock_s for left in each if left.told.clock_s is not None), None)
        at = released[node]
        apart = first - at if first is not None and at is not None else 0.0
        found[node] = measured if measured is not None else apart if abs(apart) > MOST_CLOCK_S else 0.0
    return found


def together(number: int, lefts: Mapping[int, Left], shift: Mapping[int, float]) -> Together:
    """lefts: by node."""
    known = {node: left for node, left in lefts.items() if left.told.first is not None}
    if not known:
        return Together(number)
    clocks = {node: nodes.Clock(shift[node]) for node in known}
    tolds = {node: left.told for node, left in known.items()}

    def times(of: Mapping[int, float | None]) -> list[float]:
        return [at + shift[node] for node, at in of.items() if at is not None]

    ended = times({node: told.end[0] if told.end else None for node, told in tolds.items()})
    failed = min(times({node: nodes.failed_of(told) for node, told in tolds.items()}), default=None)
    steps = tuple(_steps(tolds, clocks))

    def spans(of: Callable[[Told, float, float], Iterable[Span]]) -> tuple[Span, ...]:
        return tuple(clocks[node].span(span) for node, told in tolds.items() for span in of(told, over - shift[node], shift[node]))

    signs = times({node: told.last for node, told in tolds.items()})
    over = failed if failed is not None else max(signs)
    first = next(told for told in (*(told for told in tolds.values() if told.end), *tolds.values()))
    released = max(times({node: told.released for node, told in tolds.items()}), default=None)
    return Together(
        number,
        began=min(times({node: nodes.began_of(told) for node, told in tolds.items()})),
        sign=max(signs),
        released=released,
        launched=min(times({node: nodes.launched_of(left.told, left.plan) for node, left in known.items()}), default=None),
        first_output=min(times({node: min(told.wrote.values(), default=None) for node, told in tolds.items()}), default=None),
        first_step=min((each[0].at for each in steps), default=None),
        last_step=max((each[-1].at for each in steps), default=None),
        failed=failed,
        ended=max(ended, default=None),
        outcome=first.end[1] if first.end else None,
        exit_code=first.end[2] if first.end else None,
        late=next((told.late for told in tolds.values() if told.late), ""),
        last=_last(tolds, shift),
        best=max(((seen.epoch, seen.step) for each in steps for seen in each), default=None),
        waits=tuple(clocks[node].span(wait) for node, told in tolds.items() for wait in told.waits),
        saved=tuple(clocks[node].span(span) for node, told in tolds.items() for span in told.saved),
        stalls=spans(nodes.stalls_of),
        slows=spans(nodes.slows_of),
        steps=steps,
        lost_node=bool(ended) and len(ended) < len(tolds),
        output=written.together(
            {node: left.written for node, left in known.items()},
            {node: shift[node] if told.clock_s is None else 0.0 for node, told in tolds.items()},  # else they are by node 0's clock
        ),
    )


def _steps(tolds: Mapping[int, Told], clocks: Mapping[int, nodes.Clock]) -> Iterator[tuple[Seen, ...]]:
    for node, told in tolds.items():
        yield from (clocks[node].steps(kept.all()) for kept in told.steps.values())


def _last(tolds: Mapping[int, Told], shift: Mapping[int, float]) -> int | None:
    """Who was waited for at the muster."""
    came = {node: wait.began + shift[node] for node, told in tolds.items() for wait in told.waits if wait.kind == "muster"}
    if len(came) < 2 or max(came.values()) - min(came.values()) < LATE_S:
        return None
    return max(came, key=lambda node: came[node])


def regained(round_: Together, before: Place | None) -> float | None:
    """When training stood again where it had been; None where it never did. The time of a step that nobody has seen lies between those of
    its neighbours."""
    if before is None:
        return round_.first_step
    return min((at for at in (_reached(steps, before) for steps in round_.steps) if at is not None), default=None)


def _reached(steps: Sequence[Seen], place: Place) -> float | None:
    last: Seen | None = None
    for seen in steps:
        if (seen.epoch, seen.step) >= place:
            if last and last.epoch == seen.epoch == place[0] and seen.step > last.step:
                return last.at + (seen.at - last.at) * (place[1] - last.step) / (seen.step - last.step)
            return seen.at
        last = seen
    return None


def best_of(rounds: Iterable[Together]) -> Place | None:
    return max((each.best for each in rounds if each.best is not None), default=None)


def outcome_of(round_: Together, followed: bool) -> Outcome:
    return round_.outcome or (model.FAILED if followed else model.UNFINISHED)
