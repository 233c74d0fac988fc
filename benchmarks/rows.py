"""What the benchmarks have in common: ways that are measured in turn, the rows that come of it, and the targets that these are held to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Sample = Mapping[str, float]  # what was measured, by its unit: "wall s", "cpu s", "MB/s", ...


@dataclass(frozen=True)
class Row:
    """case: what is done. way: who does it. values: medians over `runs`, by unit. note: what was found beside them ("lines lost: 0")."""

    case: str
    way: str
    values: Mapping[str, float]
    runs: int
    note: str = ""


@dataclass(frozen=True)
class Target:
    """A ratio of two rows of one run, or a number of one, and what is aimed at. value: None where it could not be measured."""

    text: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def in_turn(case: str, ways: Mapping[str, Callable[[], Sample]], runs: int) -> list[Row]:
    """Each way once, then each again, `runs` times (A B A B): a machine that slows down meanwhile slows all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, measure in ways.items():
            samples[name].append(measure())
    return [Row(case, name, _medians(found), runs) for name, found in samples.items()]


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {unit: statistics.median(sample[unit] for sample in samples) for unit in samples[0]}


def row(rows: Iterable[Row], case: str, way: str) -> Row | None:
    return next((row for row in rows if (row.case, row.way) == (case, way)), None)


def ratio(rows: Sequence[Row], case: str, unit: str, way: str, to: str) -> float | None:
    """How many times the value of `to` that of `way` is."""
    one, other = row(rows, case, way), row(rows, case, to)
    if not one or not other or not other.values.get(unit):
        return None
    return one.values[unit] / other.values[unit]
