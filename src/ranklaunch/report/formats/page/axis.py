"""Time from left to right: places as shares of a width, ticks at round numbers, and spans that are too narrow to be seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ranklaunch.report.formats.words import long
from ranklaunch.report.model import Span

ZOOMS = (1, 4, 16, 64)
TICKS = 6  # at most, in what is seen at once
ROUND = (*(m * 10.0**e for e in range(-3, 1) for m in (1, 2, 5)), 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0,
         7200.0, 10800.0, 21600.0, 43200.0, 86400.0)  # fmt: skip


@dataclass(frozen=True)
class Axis:
    began: float
    seconds: float

    def share(self, at: float) -> float:
        return min(1.0, max(0.0, (at - self.began) / self.seconds))


def over(began: float, ended: float) -> Axis:
    return Axis(began, max(ended - began, 1e-3))


def percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"


def ticks(seconds: float, most: int) -> Iterator[float]:
    """Round numbers of seconds."""
    step = next((step for step in ROUND if seconds / step <= most), 0.0) or 86400.0 * math.ceil(seconds / most / 86400.0)
    yield from (number * step for number in range(int(seconds / step) + 1))


def merged(spans: Sequence[Span], axis: Axis, most: int) -> list[Span]:
    """No more than so many: the narrowest become part of their neighbours."""
    least = axis.seconds / 20_000
    found = list(_wide(spans, least))
    while len(found) > most:
        least *= 2
        found = list(_wide(found, least))
    return found


def _wide(spans: Iterable[Span], least: float) -> Iterator[Span]:
    last: Span | None = None
    for span in spans:
        ended = span.began if span.ended is None else span.ended
        if last is None or last.ended is None:
            last = Span(span.kind, span.began, ended, span.text)
        elif ended - last.began < least and span.began - last.ended < least:
            last = Span(last.kind, last.began, ended, last.text)
        else:
            yield last
            last = Span(span.kind, span.began, ended, span.text)
    if last:
        yield last


def middle(values: Iterable[float]) -> float:
    """Half of them are less; of two that are in the middle, the greater."""
    found = sorted(values)
    return found[len(found) // 2]


def said(seconds: float) -> str:
    return "0" if not seconds else long(seconds).replace(".0 s", " s").replace(" 00 s", "").replace(" 00 min", "")
