"""What the benchmarks have in common: ways that are measured in turn, the rows that come of it, and the targets that these are held to."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Sample = Mapping[str, float]  # what was measured, by its unit: "wall s", "cpu s", "MB/s", ...
FAILED = "failed: "  # begins the note of a row that could not be measured


@dataclass(frozen=True)
class Row:
    """case: what is done. way: who does it. values: medians over `runs`, by unit. note: what was found beside them ("lines lost: 0")."""

    case: str
    way: str
    values: Mapping[str, float]
    runs: int
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.note.startswith(FAILED)

    def noted(self, note: str) -> Row:
        """One that failed says why already."""
        return self if self.failed else dataclasses.replace(self, note=note)


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


def in_turn(case: str, ways: Mapping[str, Callable[[], Sample]], runs: int, against: str = "") -> list[Row]:
    """Each way once, then each again, `runs` times (A B A B): a machine that slows down meanwhile slows all of them. A way that fails
    is not tried again. against: a way; the others' rows then have "more UNIT" too, by how much they are above it, run by run."""
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
        Row(case, name, {}, 0, failed[name]) if name in failed else Row(case, name, _values(found, samples.get(against, [])), runs)
        for name, found in samples.items()
    ]


def _values(found: Sequence[Sample], base: Sequence[Sample]) -> dict[str, float]:
    return {**_medians(found), **(_medians([_more(*pair) for pair in zip(found, base)]) if base and found is not base else {})}


def _more(sample: Sample, base: Sample) -> Sample:
    """The difference within one round: what slows down both is not in it."""
    return {f"more {unit}": sample[unit] - base[unit] for unit in sample}


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {unit: statistics.median(sample[unit] for sample in samples) for unit in samples[0]}


def row(rows: Iterable[Row], case: str, way: str) -> Row | None:
    return next((row for row in rows if (row.case, row.way) == (case, way)), None)


def ratio(rows: Sequence[Row], case: str, unit: str, way: str, to: str) -> float | None:
    """How many times the value of `to` that of `way` is."""
    one, other = value(rows, case, unit, way), value(rows, case, unit, to)
    return None if one is None or not other else one / other


def value(rows: Iterable[Row], case: str, unit: str, way: str) -> float | None:
    found = row(rows, case, way)
    return found.values.get(unit) if found else None
