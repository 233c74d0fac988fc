"""A Gaussian process over the dimensions of the space: predicts the speed of candidates without a trial,
with a standard deviation. The length of each dimension and the noise are fitted by likelihood.

It replaces a package for such searches: docs/adr/0029-search-of-tune.md."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from ranklaunch.tune.model import Candidate

LENGTHS = (0.25, 0.5, 1.0, 2.0)  # as parts of the range of a dimension
NOISES = (0.0004, 0.0025, 0.01, 0.04)  # variances, as parts of the variance of all measurements
MOST = 48  # measurements of a model: the best and the last of more
Points = Sequence[Sequence[float]]


def features(candidates: Sequence[Candidate]) -> dict[str, tuple[float, ...]]:
    """Return coordinates of each candidate by its name: from 0 to 1 for each dimension with several values."""
    points = [_values(candidate) for candidate in candidates]
    keys = dict.fromkeys(key for point in points for key in point)
    columns = [_column([point.get(key) for point in points]) for key in keys]
    rows = zip(*(coordinates for column in columns for coordinates in column))
    names = [candidate.name for candidate in candidates]
    return dict(zip(names, rows)) if columns and any(columns) else dict.fromkeys(names, ())


def _values(candidate: Candidate) -> dict[str, Any]:
    own = {"micro": candidate.micro, "steps": candidate.steps, "stage": candidate.stage, "offload": candidate.offload}
    return {**own, **candidate.others}


def _column(values: Sequence[Any]) -> list[list[float]]:
    """Return one coordinate for numbers and for two values, else one for each value."""
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
    """Scale to 0 to 1, on a logarithmic scale if the largest is at least four times the smallest."""
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= 4:
        return [(math.log2(number) - math.log2(low)) / (math.log2(high) - math.log2(low)) for number in numbers]
    return [(number - low) / (high - low) for number in numbers]


class Surrogate:
    """Model of measurements. points: their coordinates. values: larger is better."""

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
        self._apart = [[_apart(one, other) for other in self._points[:row]] for row, one in enumerate(self._points)]
        best = -math.inf
        for lengths in ([length] * dimensions for length in LENGTHS):
            best = self._try(lengths, NOISES, best)
        for at in range(dimensions):
            for factor in (0.5, 2.0, 4.0):
                best = self._try([*self._lengths[:at], self._lengths[at] * factor, *self._lengths[at + 1 :]], (self._noise,), best)
        self._weights = _backward(self._root, _forward(self._root, self._values))

    def _try(self, lengths: Sequence[float], noises: Sequence[float], best: float) -> float:
        """Keep these lengths and the best noise if their likelihood is above `best`; prior: lengths near 1."""
        usual = sum(math.log2(length) ** 2 for length in lengths) * 0.05
        scale = [1 / (length * length) for length in lengths]
        alike = [[_likeness(apart, scale) for apart in line] for line in self._apart]
        for noise in noises:
            root = _cholesky(alike, noise)
            solved = _forward(root, self._values)
            likelihood = -0.5 * sum(map(mul, solved, solved)) - sum(math.log(line[-1]) for line in root) - usual
            if likelihood > best:
                best, self._lengths, self._scale, self._noise, self._root = likelihood, list(lengths), scale, noise, root
        return best

    def predicted(self, point: Sequence[float]) -> tuple[float, float]:
        """Return the mean and the standard deviation of a prediction, in the unit of the values."""
        likeness = [_likeness(_apart(point, other), self._scale) for other in self._points]
        mean = sum(map(mul, likeness, self._weights))
        solved = _forward(self._root, likeness)
        variance = max(1e-9, 1.0 - sum(map(mul, solved, solved)))
        return self.mean + mean * self.spread, math.sqrt(variance) * self.spread

    def improvement(self, point: Sequence[float], best: float) -> float:
        """Return the expected improvement over the best."""
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


def _apart(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the squared distance in each dimension."""
    return [(a - b) ** 2 for a, b in zip(one, other)]


def _likeness(apart: Sequence[float], scale: Sequence[float]) -> float:
    """Return the covariance of two points, from 0 to 1: Matern's kernel of 5/2, as speeds have bends."""
    far = math.sqrt(5 * sum(map(mul, apart, scale)))
    return (1 + far + far * far / 3) * math.exp(-far)


def _cholesky(alike: Sequence[Sequence[float]], noise: float) -> list[list[float]]:
    root: list[list[float]] = []
    for below in alike:
        line: list[float] = []
        for like, known in zip(below, root):
            line.append((like - sum(map(mul, line, known))) / known[-1])
        line.append(math.sqrt(max(1e-9, 1.0 + noise - sum(map(mul, line, line)))))
        root.append(line)
    return root


def _forward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for line, value in zip(root, values):
        solved.append((value - sum(map(mul, line, solved))) / line[-1])
    return solved


def _backward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    solved = [0.0] * len(values)
    for row in range(len(values) - 1, -1, -1):
        below = sum(root[lower][row] * solved[lower] for lower in range(row + 1, len(values)))
        solved[row] = (values[row] - below) / root[row][row]
    return solved
