"""What ranks did over time: their steps, and how long a step took. Of many ranks, the middle and how far the others are from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.fields import NOTHING
from ranklaunch.report.formats.page.axis import Axis, middle
from ranklaunch.report.formats.page.lanes import lane
from ranklaunch.report.formats.page.markup import Html, joined, tag
from ranklaunch.report.model import Report, Round, Seen

MOST_LINES = 16  # ranks that are drawn one by one
BINS, LEAST_BINS = 240, 24
MOST_VALUES = 300_000  # in all of them
WIDE, HIGH = 10_000, 1000
HEIGHT = 84
UNITS = {0: "bytes", 3: "kB", 6: "MB", 9: "GB"}
Point = tuple[float, float]  # when, how much
Steps = Sequence[Seen]


@dataclass(frozen=True)
class Series:
    """Of a rank in a round, or of all of them. ended: until when the last point stands."""

    rank: int
    points: tuple[Point, ...]
    ended: float
    name: str = ""


@dataclass(frozen=True)
class Drawn:
    """odd: ranks that stand out, shown before others, each with its look. most: at the upper edge."""

    series: tuple[Series, ...]
    odd: Mapping[int, str]
    most: float


def lanes_of(report: Report, scale: Axis, odd: Mapping[int, str]) -> Iterator[Html]:
    """odd: ranks that stand out: failed, suspect, slow or stopped."""
    yield from _output(report, scale)
    steps = [each for attempt in report.attempts for round_ in attempt.rounds for each in _series(round_)]
    if not steps:
        return
    took = [Series(rank, tuple(_times(points)), points[-1].at) for rank, points, _ in steps]
    values = sorted(seconds for each in took for _, seconds in each.points)
    if values:
        most = min(values[-1], 4 * middle(values)) * 1.1 or 1.0
        beyond = f", up to {_number(values[-1])} s beyond the edge" if values[-1] > most else ""
        yield _lane("Seconds of a step", Drawn(tuple(took), odd, most), scale, f"0 to {_number(most)} s{beyond}")
    came = [Series(rank, tuple((seen.at, float(seen.step)) for seen in points), ended) for rank, points, ended in steps]
    highest = max(step for each in came for _, step in each.points)
    yield _lane("Step", Drawn(tuple(came), odd, 1.05 * max(highest, 1.0)), scale, f"up to {highest:.0f}")


def _output(report: Report, scale: Axis) -> Iterator[Html]:
    """Of all ranks together, how much they wrote a second."""
    rounds = [round_.output for attempt in report.attempts for round_ in attempt.rounds if len(round_.output) > 1]
    series = tuple(Series(-1, tuple(_rates(points)), points[-1][0], "all ranks") for points in rounds)
    most = max((rate for each in series for _, rate in each.points), default=0.0)
    if most:
        whole = sum(points[-1][1] for points in rounds)
        yield _lane("Output", Drawn(series, NOTHING, 1.05 * most), scale, f"up to {_size(most)}/s, {_size(whole)} in all")


def _rates(points: Sequence[tuple[float, int]]) -> Iterator[Point]:
    for (one, had), (two, has) in zip(points, points[1:]):
        if two > one:
            rate = (has - had) / (two - one)
            yield one, rate
            yield two, rate


def _size(number: float) -> str:
    power = next((power for power in (9, 6, 3) if number >= 10**power), 0)
    return f"{number / 10**power:.3g} {UNITS[power]}"


def _series(round_: Round) -> Iterator[tuple[int, Steps, float]]:
    every = [each for node in round_.nodes for each in node.processes if each.rank is not None and each.steps]
    ended = max((each.steps[-1].at for each in every), default=0.0)
    yield from ((each.rank or 0, each.steps, ended) for each in every)


def _times(steps: Steps) -> Iterator[Point]:
    """Of each step that was seen, how long one took since the one before."""
    for one, two in zip(steps, steps[1:]):
        if one.epoch == two.epoch and two.step > one.step and two.at >= one.at:
            seconds = (two.at - one.at) / (two.step - one.step)
            yield one.at, seconds
            yield two.at, seconds


def _lane(name: str, drawn: Drawn, scale: Axis, note: str) -> Html:
    alone = {each.rank for each in drawn.series}
    parts = list(_each(drawn, scale) if len(alone) <= MOST_LINES else _together(drawn, scale))
    grid = tag("path", d=f"M0 {HIGH}H{WIDE}M0 {HIGH // 2}H{WIDE}M0 1H{WIDE}", class_="grid", vector_effect="non-scaling-stroke")
    plot = tag("svg", grid, *parts, viewBox=f"0 0 {WIDE} {HIGH}", preserveAspectRatio="none", width="100%", height=str(HEIGHT))
    about = f"{name} of {'all' if alone == {-1} else len(alone)} ranks over time, {note}"
    many = "" if len(alone) <= MOST_LINES else "; line: the middle, band: all ranks"
    return lane(name, tag("svg", plot, class_="plot", width="100%", height=str(HEIGHT), role="img", aria_label=about), note + many, "curve")


def _each(drawn: Drawn, scale: Axis) -> Iterator[Html]:
    for each in sorted(drawn.series, key=lambda each: each.rank in drawn.odd):
        yield _curve(each, drawn, scale)


def _together(drawn: Drawn, scale: Axis) -> Iterator[Html]:
    for run in _runs(_bins(drawn, scale)):
        low, high, median = (_line(run, of, drawn.most) for of in (min, max, middle))
        yield tag("path", d=f"M{' '.join(high)} {' '.join(reversed(low))}Z", class_="band")
        yield tag("polyline", points=" ".join(median), class_="curve", vector_effect="non-scaling-stroke")
    for each in drawn.series:
        if each.rank in drawn.odd:
            yield _curve(each, drawn, scale)


def _bins(drawn: Drawn, scale: Axis) -> list[list[float]]:
    """What each rank had come to by then, time by time."""
    count = max(LEAST_BINS, min(BINS, MOST_VALUES // len(drawn.series)))
    bins: list[list[float]] = [[] for _ in range(count + 1)]
    wide = count / scale.seconds
    for each in drawn.series:
        places = [int((at - scale.began) * wide) for at, _ in each.points]
        ends = [*places[1:], int((each.ended - scale.began) * wide) + 1]
        for (_, value), place, end in zip(each.points, places, ends):
            for i in range(max(0, place), min(end, count + 1)):
                bins[i].append(value)
    return bins


def _runs(bins: Sequence[list[float]]) -> Iterator[list[tuple[float, list[float]]]]:
    """Times of which something is known, without those between them."""
    run: list[tuple[float, list[float]]] = []
    for i, values in enumerate(bins):
        if values:
            run.append((WIDE * i / (len(bins) - 1), values))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _line(places: Iterable[tuple[float, list[float]]], of: Callable[[list[float]], float], most: float) -> list[str]:
    return [f"{x:.0f},{_y(of(values), most):.0f}" for x, values in places]


def _curve(each: Series, drawn: Drawn, scale: Axis) -> Html:
    placed = " ".join(f"{WIDE * scale.share(at):.0f},{_y(value, drawn.most):.0f}" for at, value in each.points)
    end = f"M{placed.rpartition(' ')[2].replace(',', ' ')}h0" if placed else ""
    look = drawn.odd.get(each.rank, "")
    line = tag(
        "polyline",
        tag("title", each.name or f"rank {each.rank}"),
        points=placed,
        class_=f"curve {look}".rstrip(),
        vector_effect="non-scaling-stroke",
    )
    last = tag("path", d=end, class_=f"last {look}".rstrip(), vector_effect="non-scaling-stroke") if look and end else ""
    return joined((line, last))


def _y(value: float, most: float) -> float:
    return HIGH * (1 - min(1.0, value / most)) if most else HIGH


def _number(value: float) -> str:
    return f"{value:.3g}"
