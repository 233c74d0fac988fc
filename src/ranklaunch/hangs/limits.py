"""Limits on numbers that ranks write, from RANKLAUNCH_EXPECT. Pure: texts and times go in.

A value that breaks a limit starts a run, which ends at the next value that keeps the limit. A run breaks the rule once it is as long as
the limit's `hold_s`.
"""

from __future__ import annotations

import bisect
import math
import operator
import re
from collections import deque
from typing import NamedTuple

LEAST_VALUES = 20  # values of a rank before its median counts
MOST_VALUES = 200  # values that the median is taken of: the rank's last that kept the limit
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_AROUND, _BEHIND = " \t'\"", " \t'\",;%)]}"  # what programs write beside a number
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")


class Limit(NamedTuple):
    """number: the bound, or with `of_median` the factor by which the median is multiplied. hold_s: seconds for which every value must
    break the limit. text: as the user wrote it."""

    compare: str
    number: float
    of_median: bool = False
    hold_s: float = 0.0
    text: str = ""


class Breach(NamedTuple):
    """value: as the rank wrote it. since: time of the first value of the run. bound: the multiple of the median that the value broke, None
    for a fixed number."""

    value: str
    since: float
    bound: float | None = None


def number(text: str) -> float | None:
    """Return the number that a program wrote (1,234 and 95.2% and '0.5', too), perhaps inf or nan; None for other text."""
    bare = _bare(text)
    try:
        return float(bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare)
    except ValueError:
        return None


def _bare(text: str) -> str:
    return text.strip(_AROUND).rstrip(_BEHIND)


class _Median:
    """Median of the last MOST_VALUES values."""

    def __init__(self) -> None:
        self._values: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        self._values.append(value)
        bisect.insort(self._sorted, value)
        if len(self._values) > MOST_VALUES:
            del self._sorted[bisect.bisect_left(self._sorted, self._values.popleft())]

    def times(self, factor: float) -> float | None:
        """Return the multiple; None before LEAST_VALUES values, and for a median of 0 or less, which has no sensible multiples."""
        if len(self._sorted) < LEAST_VALUES:
            return None
        half = len(self._sorted) // 2
        median = self._sorted[half] if len(self._sorted) % 2 else self._sorted[half - 1] / 2 + self._sorted[half] / 2
        bound = factor * median
        return bound if median > 0 and math.isfinite(bound) else None


class _OnRank:
    """Values of one rank. since: time of the first value of the run; None while the limit is kept."""

    def __init__(self, limit: Limit) -> None:
        self.since: float | None = None
        self._limit = limit
        self._median = _Median()

    def feed(self, value: float, text: str, at: float) -> Breach | None:
        """Return a breach if the run that the value belongs to is long enough."""
        bound = self._median.times(self._limit.number) if self._limit.of_median else self._limit.number
        if math.isfinite(value) and (bound is None or _COMPARED[self._limit.compare](value, bound)):
            self.since = None
            if self._limit.of_median:
                self._median.add(value)
            return None
        self.since = at if self.since is None else self.since
        if at - self.since < self._limit.hold_s:
            return None
        return Breach(_bare(text), self.since, bound if self._limit.of_median else None)


class OnNode:
    """Values of all ranks of a node, for one limit."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._ranks: dict[int, _OnRank] = {}
        self._breaches: dict[int, Breach] = {}
        self._recovered: set[int] = set()  # ranks whose breach is over, and is still to be reported

    def feed(self, rank: int, text: str, at: float) -> None:
        """Judge a value. Text that is no number neither keeps nor breaks a limit."""
        value = number(text)
        if value is None:
            return
        known = self._ranks.setdefault(rank, _OnRank(self._limit))
        breach = known.feed(value, text, at)
        if breach:
            self._breaches.setdefault(rank, breach)
            self._recovered.discard(rank)
        elif known.since is None and rank in self._breaches:
            self._recovered.add(rank)

    def report(self) -> tuple[int, Breach] | None:
        """Return the earliest breach that stands or stood since the last report, with its rank. A breach that is over is forgotten."""
        first = min(self._breaches.items(), key=_by_time, default=None)
        for rank in self._recovered:
            del self._breaches[rank]
        self._recovered.clear()
        return first


def _by_time(found: tuple[int, Breach]) -> tuple[float, int]:
    rank, breach = found
    return breach.since, rank
