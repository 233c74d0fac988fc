"""A model of what has been measured, and by it what a candidate that has not been may be worth: a Gaussian process over the space's
dimensions, with a length for each of them and the noise as the measurements make them likely. At the few dozens of measurements that a
search has, it needs fewer of them than boosted trees do, tells how sure it is, and is small enough to be here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from operator import mul
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
        self._apart = [[_apart(one, other) for other in self._points[:row]] for row, one in enumerate(self._points)]
        best = -math.inf
        for lengths in ([length] * dimensions for length in LENGTHS):
            best = self._try(lengths, NOISES, best)
        for at in range(dimensions):
            for factor in (0.5, 2.0, 4.0):
                best = self._try([*self._lengths[:at], self._lengths[at] * factor, *self._lengths[at + 1 :]], (self._noise,), best)
        self._weights = _backward(self._root, _forward(self._root, self._values))

    def _try(self, lengths: Sequence[float], noises: Sequence[float], best: float) -> float:
        """Keeps them where they make the measurements more likely; lengths are rather long than short."""
        usual = sum(math.log2(length) ** 2 for length in lengths) * 0.05
        scale = [1 / (length * length) for length in lengths]
        alike = [[_likeness(apart, scale) for apart in line] for line in self._apart]
        for noise in noises:
            root = _cholesky(alike, noise)
            solved = _forward(root, self._values)
            found = -0.5 * sum(map(mul, solved, solved)) - sum(math.log(line[-1]) for line in root) - usual
            if found > best:
                best, self._lengths, self._scale, self._noise, self._root = found, list(lengths), scale, noise, root
        return best

    def predicted(self, point: Sequence[float]) -> tuple[float, float]:
        """Mean and standard deviation, in the units of the values."""
        likeness = [_likeness(_apart(point, other), self._scale) for other in self._points]
        mean = sum(map(mul, likeness, self._weights))
        solved = _forward(self._root, likeness)
        variance = max(1e-9, 1.0 - sum(map(mul, solved, solved)))
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


def _apart(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """In each dimension, squared."""
    return [(a - b) ** 2 for a, b in zip(one, other)]


def _likeness(apart: Sequence[float], scale: Sequence[float]) -> float:
    """Of two points, from 0 to 1: Matern's kernel of 5/2, for speeds have bends."""
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
