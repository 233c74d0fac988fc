"""Places on the page: times as shares of the width, round numbers for axes, spans merged until visible."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ranklaunch.report.formats.words import long
from ranklaunch.report.model import Span

ZOOMS = (1, 4, 16, 64)
TICKS = 6  # at most, in the visible part
LEVELS = 3  # intervals of a vertical axis, at most
MOST_SPANS = 400  # of a lane
ROUND_S = (
    *(m * 10.0**e for e in range(-3, 1) for m in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0),
)


@dataclass(frozen=True)
class Axis:
    """Horizontal axis: its first moment, in seconds since 1970, and its length."""

    began: float
    seconds: float

    def share(self, at: float) -> float:
        return min(1.0, max(0.0, (at - self.began) / self.seconds))

    def x(self, at: float) -> str:
        return percent(self.share(at))

    def width(self, span: Span) -> str:
        return percent(max(0.0, self.share(end_of(span)) - self.share(span.began)))

    def after(self, at: float) -> str:
        return long(max(0.0, at - self.began))

    def lasted(self, span: Span) -> str:
        return long(end_of(span) - span.began)

    def merged(self, spans: Sequence[Span]) -> list[Span]:
        """Return at most MOST_SPANS spans: the narrowest are merged with their neighbours."""
        least = self.seconds / 20_000
        result = list(_wide(spans, least))
        while len(result) > MOST_SPANS:
            least *= 2
            result = list(_wide(result, least))
        return result


@dataclass(frozen=True)
class Tick:
    """Number on an axis. place: share of the width or of the height, in percent. anchor: SVG text-anchor."""

    place: str
    text: str
    anchor: str = "middle"


def over(began: float, ended: float) -> Axis:
    return Axis(began, max(ended - began, 1e-3))


def percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"


def ruler(axis: Axis, zoom: int) -> Iterator[Tick]:
    """Yield the ticks of the time line for a zoom factor."""
    for at in ticks(axis.seconds, TICKS * zoom):
        share = at / axis.seconds
        anchor = "start" if share < 0.02 / zoom else "end" if share > 1 - 0.06 / zoom else "middle"
        text = long(at).replace(".0 s", " s").replace(" 00 s", "").replace(" 00 min", "")
        yield Tick(percent(share), text if at else "0", anchor)


def ticks(seconds: float, most: int) -> Iterator[float]:
    """Yield round numbers of seconds: 0, and at most `most` more."""
    days = 86400.0 * math.ceil(seconds / most / 86400.0)
    step = next((step for step in ROUND_S if seconds / step <= most), days)
    yield from (number * step for number in range(int(seconds / step) + 1))


def levels(most: float) -> list[float]:
    """Return round numbers from 0 to at least `most`, which is positive."""
    power = 10.0 ** math.floor(math.log10(most / LEVELS))
    step = next((m * power for m in (1, 2, 5) if m * power * LEVELS >= most), 10 * power)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _wide(spans: Iterable[Span], least: float) -> Iterator[Span]:
    last: Span | None = None
    for span in spans:
        ended = end_of(span)
        if last and ended - last.began < least and span.began - end_of(last) < least:
            last = replace(last, ended=ended)
            continue
        if last:
            yield last
        last = replace(span, ended=ended)
    if last:
        yield last


def end_of(span: Span) -> float:
    return span.began if span.ended is None else span.ended


def middle(values: Iterable[float]) -> float:
    """Return the median; of an even number of values, the greater one in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
