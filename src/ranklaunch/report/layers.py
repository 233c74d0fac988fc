"""Time line of layers on top of each other: the topmost layer counts at each moment, and no gap remains. Pure.

So the spans' seconds always add up to the length of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ranklaunch.report.model import Span


def painted(began: float, ended: float, layers: Sequence[Iterable[Span]], ground: str) -> tuple[Span, ...]:
    """Return the topmost spans from `began` to `ended`. layers: the lowest first. A span without an end lasts to the end of the line.
    ground: kind of the time without any span."""
    edges: list[tuple[float, int, int, Span | None]] = []  # time, level, number of the span, None for its end
    for level, layer in enumerate(layers):
        for number, span in enumerate(layer):
            first, last = max(began, span.began), min(ended, ended if span.ended is None else span.ended)
            if last > first:
                edges += [(first, level, number, span), (last, level, number, None)]
    edges.sort(key=lambda edge: edge[0])
    active: list[dict[int, Span]] = [{} for _ in layers]  # spans at the current time, by level; the newest of a level is last
    topmost: list[Span] = []
    at = began
    for time, level, number, begun in (*edges, (ended, -1, -1, None)):
        if time > at:
            top = next((spans[next(reversed(spans))] for spans in reversed(active) if spans), Span(ground, at))
            is_same = topmost and (topmost[-1].kind, topmost[-1].text) == (top.kind, top.text)
            previous = topmost.pop() if is_same else Span(top.kind, at)
            topmost.append(Span(top.kind, previous.began, time, top.text))
            at = time
        if begun:
            active[level][number] = begun
        elif level >= 0:
            del active[level][number]
    return tuple(topmost)
