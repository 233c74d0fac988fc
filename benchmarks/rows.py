"""Parts of all benchmarks: measurement of several ways in turn, rows with the results, and targets for the rows."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Sample = Mapping[str, float]  # values of one run by unit: "wall s", "cpu s", "MB/s", ...
FAILED = "failed: "  # beginning of the note of a row that could not be measured


@dataclass(frozen=True)
class Row:
    """Result of one way in one case. case: the task. way: the launcher. values: medians over `runs`, by unit. note: further facts
    ("lines lost: 0")."""

    case: str
    way: str
    values: Mapping[str, float]
    runs: int
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.note.startswith(FAILED)

    def noted(self, note: str) -> Row:
        """Return the row with a note. A failed row keeps its note with the reason."""
        return self if self.failed else dataclasses.replace(self, note=note)


@dataclass(frozen=True)
class Target:
    """Target for a ratio of two rows, or for a value of one row. value: the measured one, None if not measured. limit: the most, or with
    at_least the least."""

    text: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def in_turn(case: str, ways: Mapping[str, Callable[[], Sample]], runs: int, against: str = "") -> list[Row]:
    """Measure each way once, then each again, `runs` times (A B A B): if the machine slows down, it slows all ways equally. A way that
    fails is not tried again. against: a way for comparison; the rows of the other ways then have "more UNIT" too, the median of the
    differences run by run."""
    print(f"{case}: {runs} x {', '.join(ways)}", file=sys.stderr, flush=True)
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for _ in range(runs):
        for name in [name for name in ways if name not in failed]:
            try:
                samples[name].append(ways[name]())
            except Exception as error:
                failed[name] = f"{FAILED}{error or type(error).__name__}"
                print(f"{case}: {name} {failed[name]}", file=sys.stderr, flush=True)
    return [
        Row(case, name, {}, 0, failed[name]) if name in failed else Row(case, name, _values(each, samples.get(against, [])), runs)
        for name, each in samples.items()
    ]


def _values(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, float]:
    return {**_medians(samples), **(_medians([_more(*pair) for pair in zip(samples, base)]) if base and samples is not base else {})}


def _more(sample: Sample, base: Sample) -> Sample:
    """Return the differences within one round: a slow machine affects both samples, and so not their difference."""
    return {f"more {unit}": sample[unit] - base[unit] for unit in sample}


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {unit: statistics.median(sample[unit] for sample in samples) for unit in samples[0]}


def row(rows: Iterable[Row], case: str, way: str) -> Row | None:
    return next((row for row in rows if (row.case, row.way) == (case, way)), None)


def ratio(rows: Sequence[Row], case: str, unit: str, way: str, to: str) -> float | None:
    """Return the value of `way` divided by the value of `to`, None if one of them is missing."""
    one, other = value(rows, case, unit, way), value(rows, case, unit, to)
    return None if one is None or not other else one / other


def value(rows: Iterable[Row], case: str, unit: str, way: str) -> float | None:
    match = row(rows, case, way)
    return match.values.get(unit) if match else None
