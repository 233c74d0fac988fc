"""Bytes that all ranks of a round have written, over time, from times_<node> beside their logs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ranklaunch.logs.times import Times

Point = tuple[float, int]  # seconds since 1970; bytes up to this time
MOST_KEPT = 2000  # points of a node; beyond this, every second point is dropped
MOST_SHOWN = 240


class Written:
    """Reader of one times_<node>. points: bytes of all its logs together, over time."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._total = 0
        self._every_s = 0.0

    def feed_all(self, blocks: Iterable[bytes]) -> None:
        """Read all blocks of the file; a block may end within a line."""
        times, ends = Times(), dict[str, int]()
        for block in blocks:
            for part in times.feed(block):
                self._total += part.end - ends.get(part.name, 0)
                ends[part.name] = part.end
                self._add((part.at / 1e6, self._total))

    def _add(self, point: Point) -> None:
        if len(self.points) > 1 and point[0] - self.points[-2][0] < self._every_s:
            self.points[-1] = point
            return
        self.points.append(point)
        if len(self.points) > MOST_KEPT:
            del self.points[1:-1:2]
            self._every_s = 2 * max(self._every_s, (self.points[-1][0] - self.points[0][0]) / MOST_KEPT)


def together(nodes: Mapping[int, Iterable[Sequence[Point]]], shift: Mapping[int, float]) -> tuple[Point, ...]:
    """Return the points of all nodes together, at up to MOST_SHOWN equal intervals.

    nodes: points of each file of times, by the node of its folder. shift: seconds to add to a node's times to get node 0's.
    """
    moved = [[(at + shift[node], total) for at, total in points] for node, files in nodes.items() for points in files if points]
    if not moved:
        return ()
    first, last = min(points[0][0] for points in moved), max(points[-1][0] for points in moved)
    sums = [0] * (MOST_SHOWN + 1)
    for points in moved:
        previous = 0
        for at, total in points:
            sums[_place(at, first, last)] += total - previous
            previous = total
    return tuple(_sampled(sums, first, last))


def _place(at: float, first: float, last: float) -> int:
    """Return the index of the first interval end that is not before a time."""
    return 0 if last <= first else min(MOST_SHOWN, math.ceil(MOST_SHOWN * (at - first) / (last - first)))


def _sampled(sums: Sequence[int], first: float, last: float) -> Iterable[Point]:
    total = 0
    for number, more in enumerate(sums if last > first else sums[:1]):
        total += more
        yield round(first + number * (last - first) / MOST_SHOWN, 3), total
