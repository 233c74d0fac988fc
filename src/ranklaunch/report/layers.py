"""A line of time on which layers lie over each other: what is seen from above are spans that follow each other without a gap. Pure.

So the spans' seconds add up to the whole line, whatever lies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ranklaunch.report.model import Span


def painted(began: float, ended: float, layers: Sequence[Iterable[Span]], ground: str) -> tuple[Span, ...]:
    """layers: the lowest first; ended of a span None: to the end of the line. ground: the kind of what nothing lies on."""
    edges: list[tuple[float, bool, int, Span]] = []
    for level, layer in enumerate(layers):
        for span in layer:
            first, last = max(began, span.began), min(ended, ended if span.ended is None else span.ended)
            if last > first:
                edges += [(first, True, level, span), (last, False, level, span)]
    edges.sort(key=lambda edge: edge[0])
    return tuple(_joined(_cut(began, ended, edges, len(layers), ground)))


def _cut(began: float, ended: float, edges: Sequence[tuple[float, bool, int, Span]], levels: int, ground: str) -> Iterable[Span]:
    """At each edge; the newest of the highest level is seen."""
    there: list[list[Span]] = [[] for _ in range(levels)]
    at = began
    for time, begins, level, span in edges:
        if time > at:
            top = next((spans[-1] for spans in reversed(there) if spans), None)
            yield Span(top.kind if top else ground, at, time, top.text if top else "")
            at = time
        there[level].append(span) if begins else _remove(there[level], span)
    if ended > at:
        yield Span(ground, at, ended)


def _remove(spans: list[Span], span: Span) -> None:
    """That one, and none that is equal to it."""
    for i, each in enumerate(spans):
        if each is span:
            del spans[i]
            return


def _joined(spans: Iterable[Span]) -> Iterable[Span]:
    last: Span | None = None
    for span in spans:
        if last and (last.kind, last.text) == (span.kind, span.text):
            last = Span(last.kind, last.began, span.ended, last.text)
        else:
            if last:
                yield last
            last = span
    if last:
        yield last
