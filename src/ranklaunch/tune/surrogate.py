"""Gaussian process over the dimensions of the search space: predicts the speed of candidates without a trial,
with a standard deviation. The length of each dimension and the noise are fitted by likelihood.

Reasons against a package for such searches: docs/adr/0029-search-of-tune.md."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from ranklaunch.tune.model import Candidate

LENGTHS = (0.25, 0.5, 1.0, 2.0)  # as shares of the range of a dimension
NOISES = (0.0004, 0.0025, 0.01, 0.04)  # variances, as shares of the variance of all measurements
MOST = 48  # measurements in a model; of more, the best and the last
Points = Sequence[Sequence[float]]


def features(candidates: Sequence[Candidate]) -> dict[str, tuple[float, ...]]:
    """Return the coordinates of each candidate by name: from 0 to 1 for each dimension with several values."""
    points = [_values(candidate) for candidate in candidates]
    keys = dict.fromkeys(key for point in points for key in point)
    columns = [_column([point.get(key) for point in points]) for key in keys]
    rows = zip(*(coordinates for column in columns for coordinates in column))
    names = [candidate.name for candidate in candidates]
    return dict(zip(names, rows)) if columns and any(columns) else dict.fromkeys(names, ())


def _values(candidate: Candidate) -> dict[str, Any]:
    values = {"micro": candidate.micro, "steps": candidate.steps, "stage": candidate.stage, "offload": candidate.offload}
    return {**values, **candidate.others}


def _column(values: Sequence[Any]) -> list[list[float]]:
    """Return the coordinates of one dimension: one coordinate for numbers and for two values, else one for each value."""
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
    """Scale numbers to 0..1, on a logarithmic scale if the largest is at least four times the smallest."""
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
        self._distances = [[_squared_distances(one, other) for other in self._points[:row]] for row, one in enumerate(self._points)]
        best = -math.inf
        for lengths in ([length] * dimensions for length in LENGTHS):
            best = self._try(lengths, NOISES, best)
        for at in range(dimensions):
            for factor in (0.5, 2.0, 4.0):
                best = self._try([*self._lengths[:at], self._lengths[at] * factor, *self._lengths[at + 1 :]], (self._noise,), best)
        self._weights = _backward(self._root, _forward(self._root, self._values))

    def _try(self, lengths: Sequence[float], noises: Sequence[float], best: float) -> float:
        """Keep these lengths and the best noise if their likelihood is above `best`. The prior prefers lengths near 1."""
        prior = sum(math.log2(length) ** 2 for length in lengths) * 0.05
        scale = [1 / (length * length) for length in lengths]
        covariances = [[_covariance(distances, scale) for distances in line] for line in self._distances]
        for noise in noises:
            root = _cholesky(covariances, noise)
            solved = _forward(root, self._values)
            likelihood = -0.5 * sum(map(mul, solved, solved)) - sum(math.log(line[-1]) for line in root) - prior
            if likelihood > best:
                best, self._lengths, self._scale, self._noise, self._root = likelihood, list(lengths), scale, noise, root
        return best

    def predicted(self, point: Sequence[float]) -> tuple[float, float]:
        """Return the mean and the standard deviation of a prediction, in the unit of the values."""
        covariances = [_covariance(_squared_distances(point, other), self._scale) for other in self._points]
        mean = sum(map(mul, covariances, self._weights))
        solved = _forward(self._root, covariances)
        variance = max(1e-9, 1.0 - sum(map(mul, solved, solved)))
        return self.mean + mean * self.spread, math.sqrt(variance) * self.spread

    def improvement(self, point: Sequence[float], best: float) -> float:
        """Return the expected improvement of a point over the value `best`."""
        mean, deviation = self.predicted(point)
        ahead = (mean - best) / deviation
        density = math.exp(-0.5 * ahead * ahead) / math.sqrt(2 * math.pi)
        return (mean - best) * 0.5 * (1 + math.erf(ahead / math.sqrt(2))) + deviation * density


def _kept(values: Sequence[float]) -> list[int]:
    """Return the indices of the values to model: all; of more than MOST, the best and the last."""
    if len(values) <= MOST:
        return list(range(len(values)))
    last = range(len(values) - MOST // 2, len(values))
    best = sorted(range(len(values) - MOST // 2), key=lambda at: -values[at])[: MOST // 2]
    return sorted({*best, *last})


def _squared_distances(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the squared distance in each dimension."""
    return [(a - b) ** 2 for a, b in zip(one, other)]


def _covariance(distances: Sequence[float], scale: Sequence[float]) -> float:
    """Return the covariance of two points, from 0 to 1, by Matern's kernel of 5/2, which allows the bends that speeds have."""
    distance = math.sqrt(5 * sum(map(mul, distances, scale)))
    return (1 + distance + distance * distance / 3) * math.exp(-distance)


def _cholesky(covariances: Sequence[Sequence[float]], noise: float) -> list[list[float]]:
    """Return the lower triangular root of a matrix of covariances plus noise. covariances: the matrix below its diagonal, line by line."""
    root: list[list[float]] = []
    for covariance_line in covariances:
        line: list[float] = []
        for covariance, known in zip(covariance_line, root):
            line.append((covariance - sum(map(mul, line, known))) / known[-1])
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
        lower_part = sum(root[lower][row] * solved[lower] for lower in range(row + 1, len(values)))
        solved[row] = (values[row] - lower_part) / root[row][row]
    return solved
