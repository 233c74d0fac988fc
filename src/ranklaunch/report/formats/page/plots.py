"""Plots below the time line: output, seconds of a step, steps. Many ranks become a band."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.errors import counted
from ranklaunch.report.formats import words
from ranklaunch.report.formats.page.axis import LEVELS, Axis, Tick, levels, middle, percent
from ranklaunch.report.formats.page.ranks import LABELS
from ranklaunch.report.model import Report, Round, Seen

MOST_CURVES = 16  # ranks with a curve of their own
MOST_NAMED = 3
BINS, LEAST_BINS = 240, 24
MOST_VALUES = 300_000  # in all bins
WIDE, HIGH = 10_000, 1000
UNITS = {0: "bytes", 3: "kB", 6: "MB", 9: "GB"}
ALL = -1  # in place of a rank
Point = tuple[float, float]  # time, value


@dataclass(frozen=True)
class Series:
    """Values of a rank in a round. ended: time until which the last value holds."""

    rank: int
    points: tuple[Point, ...]
    ended: float


@dataclass(frozen=True)
class Curve:
    """Curve of a rank or of a median. look: class, "" for an ordinary rank. end: last point, if a mark stands there."""

    points: str
    look: str = ""
    name: str = ""
    end: str = ""


@dataclass(frozen=True)
class Plot:
    """One plot. about: description in a sentence, for screen readers. bands: areas between the least and the greatest value."""

    name: str
    note: str
    about: str
    levels: list[Tick]
    curves: list[Curve]
    bands: list[str]


def plots(report: Report, axis: Axis, odd: Mapping[int, str]) -> Iterator[Plot]:
    """Yield the plots that have values. odd: looks of ranks that stand out."""
    rounds = [each for attempt in report.attempts for each in attempt.rounds]
    yield from _output([each for each in rounds if len(each.output) > 1], axis)
    steps = [measured for each in rounds for measured in _steps(each)]
    yield from _seconds(steps, axis, odd)
    series = [
        Series(rank, tuple((each.at, float(each.step)) for each in of_rank), ended)
        for rank, of_rank, ended in steps
    ]  # fmt: skip
    if series:
        highest = max(step for each in series for _, step in each.points)
        texts = {value: f"{value:.0f}" for value in levels(max(highest, LEVELS))}
        yield _plot("Step", series, texts, axis, odd, f"up to {highest:.0f}")


def _seconds(steps: Sequence[tuple[int, Sequence[Seen], float]], axis: Axis, odd: Mapping[int, str]) -> Iterator[Plot]:
    """Yield the plot of the seconds of a step, none without known values. Outliers lie beyond the edge."""
    took = [Series(rank, tuple(_times(of_rank)), of_rank[-1].at) for rank, of_rank, _ in steps]
    values = sorted(seconds for each in took for _, seconds in each.points)
    if values:
        most = min(values[-1], 4 * middle(values)) or 1.0
        texts = {value: words.exact(value) if value else "0" for value in levels(most)}
        beyond = f"up to {words.exact(values[-1])}, beyond the edge"
        note = beyond if values[-1] > max(texts) else ""
        yield _plot("Seconds of a step", took, texts, axis, odd, note)


def _output(rounds: Sequence[Round], axis: Axis) -> Iterator[Plot]:
    """Yield the plot of the bytes that all ranks together wrote per second, none without output."""
    series = [Series(ALL, tuple(_rates(each.output)), each.output[-1][0]) for each in rounds]
    most = max((rate for each in series for _, rate in each.points), default=0.0)
    if most:
        texts = {value: f"{_size(value)}/s" if value else "0" for value in levels(most)}
        yield _plot(
            "Output",
            series,
            texts,
            axis,
            {},
            f"{_size(sum(each.output[-1][1] for each in rounds))} in all",
        )


def _rates(points: Sequence[tuple[float, int]]) -> Iterator[Point]:
    for (one, before), (two, now) in zip(points, points[1:]):
        if two > one:
            rate = (now - before) / (two - one)
            yield one, rate
            yield two, rate


def _size(number: float) -> str:
    power = next((power for power in (9, 6, 3) if number >= 10**power), 0)
    return f"{number / 10**power:.3g} {UNITS[power]}"


def _steps(each: Round) -> Iterator[tuple[int, Sequence[Seen], float]]:
    """Yield (rank, steps, time of the last step of any rank) for each rank that prints steps."""
    processes = [process for node in each.nodes for process in node.processes]
    printing = [(one.rank, one.steps) for one in processes if one.rank is not None and one.steps]
    ended = max((steps[-1].at for _, steps in printing), default=0.0)
    yield from ((rank, steps, ended) for rank, steps in printing)


def _times(steps: Sequence[Seen]) -> Iterator[Point]:
    """Yield the seconds of a step, at both ends of each interval between two steps."""
    for one, two in zip(steps, steps[1:]):
        if one.epoch == two.epoch and two.step > one.step and two.at >= one.at:
            seconds = (two.at - one.at) / (two.step - one.step)
            yield one.at, seconds
            yield two.at, seconds


def _plot(
    name: str,
    series: Sequence[Series],
    texts: Mapping[float, str],
    axis: Axis,
    odd: Mapping[int, str],
    note: str,
) -> Plot:
    """Return a plot. texts: labels of the vertical axis, by value."""
    ranks = {each.rank for each in series}
    most = max(texts)
    marked = [f"rank {rank} {LABELS[look]}" for rank, look in odd.items() if rank in ranks]
    many = len(ranks) > MOST_CURVES
    curves = [_curve(each, axis, most, odd) for each in series if not many or each.rank in odd]
    drawn = sorted(curves, key=lambda curve: bool(curve.look))  # the last one is on top
    bands, medians = _together(series, axis, most) if many else ([], [])
    notes = [
        note,
        f"line: the median, band: {len(ranks)} ranks" if many else "",
        f"marked: {', '.join(marked[:MOST_NAMED])}" if marked else "",
    ]
    source = "all ranks" if ranks == {ALL} else counted(len(ranks), "rank")
    return Plot(
        name,
        "; ".join(filter(None, notes)),
        f"{name} of {source} over time, 0 to {texts[most]}",
        [Tick(percent(1 - value / most), text) for value, text in texts.items()],
        [*medians, *drawn],
        bands,
    )


def _curve(each: Series, axis: Axis, most: float, odd: Mapping[int, str]) -> Curve:
    placed = [f"{WIDE * axis.share(at):.0f},{_y(value, most)}" for at, value in each.points]
    look = odd.get(each.rank, "")
    name = f"rank {each.rank}{f', {LABELS[look]}' if look else ''}"
    end = placed[-1].replace(",", " ") if look and placed else ""
    return Curve(" ".join(placed), look, "all ranks" if each.rank == ALL else name, end)


def _together(series: Sequence[Series], axis: Axis, most: float) -> tuple[list[str], list[Curve]]:
    """Return bands from the least to the greatest value, and curves of the median."""
    bands, medians = [], []
    for run in _runs(_bins(series, axis)):
        low, high, median = (
            [f"{x:.0f},{_y(function(values), most)}" for x, values in run]
            for function in (min, max, middle)
        )  # fmt: skip
        bands.append(f"M{' '.join(high)} {' '.join(reversed(low))}Z")
        medians.append(Curve(" ".join(median)))
    return bands, medians


def _bins(series: Sequence[Series], axis: Axis) -> list[list[float]]:
    """Return the latest values of all ranks, bin by bin of time."""
    count = max(LEAST_BINS, min(BINS, MOST_VALUES // len(series)))
    bins: list[list[float]] = [[] for _ in range(count + 1)]
    wide = count / axis.seconds
    for each in series:
        places = [int((at - axis.began) * wide) for at, _ in each.points]
        ends = [*places[1:], int((each.ended - axis.began) * wide) + 1]
        for (_, value), place, end in zip(each.points, places, ends):
            for i in range(max(0, place), min(end, count + 1)):
                bins[i].append(value)
    return bins


def _runs(bins: Sequence[list[float]]) -> Iterator[list[tuple[float, list[float]]]]:
    """Yield runs of neighbouring bins with values, each bin with its place."""
    run: list[tuple[float, list[float]]] = []
    for i, values in enumerate([*bins, []]):
        if values:
            run.append((WIDE * i / (len(bins) - 1), values))
        elif run:
            yield run
            run = []


def _y(value: float, most: float) -> str:
    return f"{HIGH * (1 - min(1.0, value / most)):.0f}"
