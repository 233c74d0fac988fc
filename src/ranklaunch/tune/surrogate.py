"""A model of what has been measured, and by it what a candidate that has not been may be worth: a Gaussian process over the space's
dimensions, with a length for each of them and the noise as the measurements make them likely. At the few dozens of measurements that a
search has, it needs fewer of them than boosted trees do, tells how sure it is, and is small enough to be here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ranklaunch.tune.model import Candidate

LENGTHS = (0.25, 0.5, 1.0, 2.0)  # in ranges of a dimension
NOISES = (0.0004, 0.0025, 0.01, 0.04)  # variances, where that of all measurements is 1
MOST = 48  # measurements that a model is made of; of more the best and the last
Points = Sequence[Sequence[float]]


def features(candidates: Sequence[Candidate]) -> dict[str, tuple[float, ...]]:
    """Of each candidate by its name: a coordinate from 0 to 1 for each dimension in which the space has more than one value."""
    told = [_told(candidate) for candidate in candidates]
    columns = [_column([each.get(key) for each in told]) for key in dict.fromkeys(key for each in told for key in each)]
    rows = zip(*(coordinates for column in columns for coordinates in column))
    names = [candidate.name for candidate in candidates]
    return dict(zip(names, rows)) if columns and any(columns) else dict.fromkeys(names, ())


def _told(candidate: Candidate) -> dict[str, Any]:
    own = {"micro": candidate.micro, "steps": candidate.steps, "stage": candidate.stage, "offload": candidate.offload}
    return {**own, **candidate.others}


def _column(values: Sequence[Any]) -> list[list[float]]:
    """One coordinate for numbers and for two values, one for each of more."""
    texts = [json.dumps(value, sort_keys=True) for value in values]
    kinds = sorted(set(texts))
    if len(kinds) < 2:
        return []
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(values):
        return [_scaled(known)]
    if len(kinds) == 2:
        return [[float(text == kinds[1]) for text in texts]]
    return [[float(text == kind) for text in texts] for kind in kinds]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 else None


def _scaled(numbers: Sequence[float]) -> list[float]:
    """By their powers of two where they are that far apart."""
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= 4:
        return [(math.log2(number) - math.log2(low)) / (math.log2(high) - math.log2(low)) for number in numbers]
    return [(number - low) / (high - low) for number in numbers]


class Surrogate:
    """points: of measurements, values: theirs, larger is better."""

    def __init__(self, points: Points, values: Sequence[float]) -> None:
        kept = _kept(values)
        self._points = [points[at] for at in kept]
        values = [values[at] for at in kept]
        self.mean = sum(values) / len(values)
        spread = math.sqrt(sum((value - self.mean) ** 2 for value in values) / len(values))
        self.spread = spread or 1.0
        self._values = [(value - self.mean) / self.spread for value in values]
        self._fit()

    def _fit(self) -> None:
        dimensions = len(self._points[0])
        choices = [([length] * dimensions, noise) for length in LENGTHS for noise in NOISES]
        best, self._lengths, self._noise = max((self._likelihood(*choice), *choice) for choice in choices)
        for at in range(dimensions):
            for factor in (0.5, 2.0, 4.0):
                lengths = [*self._lengths[:at], self._lengths[at] * factor, *self._lengths[at + 1 :]]
                found = self._likelihood(lengths, self._noise)
                if found > best:
                    best, self._lengths = found, lengths
        self._root = self._cholesky(self._lengths, self._noise)
        self._weights = _backward(self._root, _forward(self._root, self._values))

    def _cholesky(self, lengths: Sequence[float], noise: float) -> list[list[float]]:
        root: list[list[float]] = []
        for row, one in enumerate(self._points):
            line: list[float] = []
            for column in range(row):
                known = root[column]
                rest = _likeness(one, self._points[column], lengths) - sum(a * b for a, b in zip(line, known))
                line.append(rest / known[column])
            line.append(math.sqrt(max(1e-9, 1.0 + noise - sum(a * a for a in line))))
            root.append(line)
        return root

    def _likelihood(self, lengths: Sequence[float], noise: float) -> float:
        """Its logarithm, but for a constant; lengths are rather long than short."""
        root = self._cholesky(lengths, noise)
        solved = _forward(root, self._values)
        usual = sum(math.log2(length) ** 2 for length in lengths) * 0.05
        return -0.5 * sum(a * a for a in solved) - sum(math.log(line[-1]) for line in root) - usual

    def predicted(self, point: Sequence[float]) -> tuple[float, float]:
        """Mean and standard deviation, in the units of the values."""
        likeness = [_likeness(point, other, self._lengths) for other in self._points]
        mean = sum(a * b for a, b in zip(likeness, self._weights))
        solved = _forward(self._root, likeness)
        variance = max(1e-9, 1.0 - sum(a * a for a in solved))
        return self.mean + mean * self.spread, math.sqrt(variance) * self.spread

    def improvement(self, point: Sequence[float], best: float) -> float:
        """How much better than the best it is expected to be."""
        mean, deviation = self.predicted(point)
        ahead = (mean - best) / deviation
        density = math.exp(-0.5 * ahead * ahead) / math.sqrt(2 * math.pi)
        return (mean - best) * 0.5 * (1 + math.erf(ahead / math.sqrt(2))) + deviation * density


def _kept(values: Sequence[float]) -> list[int]:
    if len(values) <= MOST:
        return list(range(len(values)))
    last = range(len(values) - MOST // 2, len(values))
    best = sorted(range(len(values) - MOST // 2), key=lambda at: -values[at])[: MOST // 2]
    return sorted({*best, *last})


def _likeness(one: Sequence[float], other: Sequence[float], lengths: Sequence[float]) -> float:
    """Of two points, from 0 to 1: Matern's kernel of 5/2, for speeds have bends."""
    apart = math.sqrt(5 * sum(((a - b) / length) ** 2 for a, b, length in zip(one, other, lengths)))
    return (1 + apart + apart * apart / 3) * math.exp(-apart)


def _forward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for line, value in zip(root, values):
        solved.append((value - sum(a * b for a, b in zip(line, solved))) / line[-1])
    return solved


def _backward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    solved = [0.0] * len(values)
    for row in range(len(values) - 1, -1, -1):
        below = sum(root[lower][row] * solved[lower] for lower in range(row + 1, len(values)))
        solved[row] = (values[row] - below) / root[row][row]
    return solved


Known = Mapping[str, tuple[float, ...]]
