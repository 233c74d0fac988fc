"""Time line with layers on top of each other: seen from above, spans follow each other without a gap. Pure.

So the spans' seconds add up to the whole line, with any layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ranklaunch.report.model import Span


def painted(began: float, ended: float, layers: Sequence[Iterable[Span]], ground: str) -> tuple[Span, ...]:
    """layers: the lowest first; ended of a span None: to the end of the line. ground: the kind of what nothing lies on."""
    edges: list[tuple[float, int, int, Span | None]] = []  # time, level, number of the span, None for its end
    for level, layer in enumerate(layers):
        for number, span in enumerate(layer):
            first, last = max(began, span.began), min(ended, ended if span.ended is None else span.ended)
            if last > first:
                edges += [(first, level, number, span), (last, level, number, None)]
    edges.sort(key=lambda edge: edge[0])
    there: list[dict[int, Span]] = [{} for _ in layers]  # that lie on the line, the newest of a level last
    seen: list[Span] = []
    at = began
    for time, level, number, begun in (*edges, (ended, -1, -1, None)):
        if time > at:
            top = next((spans[next(reversed(spans))] for spans in reversed(there) if spans), Span(ground, at))
            last_seen = seen.pop() if seen and (seen[-1].kind, seen[-1].text) == (top.kind, top.text) else Span(top.kind, at)
            seen.append(Span(top.kind, last_seen.began, time, top.text))
            at = time
        if begun:
            there[level][number] = begun
        elif level >= 0:
            del there[level][number]
    return tuple(seen)
