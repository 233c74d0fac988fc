"""Many nodes at once: how many of them do what, over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ranklaunch.report.formats.page.axis import Axis
from ranklaunch.report.formats.page.kinds import CALLED, look
from ranklaunch.report.formats.page.lanes import Line, lane
from ranklaunch.report.formats.page.markup import Html, joined, tag

COLUMNS = 400  # of time
HEIGHT = 96


def counted_lane(lines: Sequence[Line], scale: Axis) -> Html:
    """Layers on each other: the share of nodes that are in each kind of span, over time."""
    layers = _layers(lines, scale)
    below = [0.0] * COLUMNS
    areas = []
    for kind, counts in layers.items():
        above = [low + count / len(lines) for low, count in zip(below, counts)]
        areas.append(tag("path", tag("title", CALLED.get(kind, kind)), d=_area(below, above), class_=f"k-{look(kind)}"))
        below = above
    inner = tag("svg", joined(areas), viewBox=f"0 0 {COLUMNS} 1000", preserveAspectRatio="none", width="100%", height=str(HEIGHT))
    about = f"What {len(lines)} nodes do over time"
    drawing = tag("svg", inner, class_="bar many", width="100%", height=str(HEIGHT), role="img", aria_label=about)
    return lane(f"{len(lines)} nodes", drawing, "how many do what")


def _layers(lines: Sequence[Line], scale: Axis) -> dict[str, list[float]]:
    """By kind, how many nodes are in it, column by column."""
    order = {look(kind): kind for kind in CALLED}
    changes: dict[str, list[float]] = {}
    for line in lines:
        for span in line.spans:
            of_kind = changes.setdefault(order.get(look(span.kind), "unknown"), [0.0] * (COLUMNS + 2))
            _change(of_kind, COLUMNS * scale.share(span.began), 1)
            _change(of_kind, COLUMNS * scale.share(span.began if span.ended is None else span.ended), -1)
    return {kind: list(accumulate(changes[kind]))[:COLUMNS] for kind in dict.fromkeys(order.values()) if kind in changes}


def _change(changes: list[float], place: float, by: int) -> None:
    """From there on; of the column in which it lies, for the rest of that."""
    column = int(place)
    rest = column + 1 - place
    changes[column] += by * rest
    changes[column + 1] += by * (1 - rest)


def _area(below: Sequence[float], above: Sequence[float]) -> str:
    there = "L".join(f"{x} {1000 * (1 - min(1.0, y)):.0f}H{x + 1}" for x, y in enumerate(above))
    back = "L".join(f"{x + 1} {1000 * (1 - min(1.0, y)):.0f}H{x}" for x, y in reversed(list(enumerate(below))))
    return f"M{there}L{back}Z"
