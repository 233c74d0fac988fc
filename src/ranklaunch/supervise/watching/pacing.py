"""The companion of an attempt that writes down how ranks get on: their steps and saves become events, few enough for a job of weeks. The
same steps show whether the job is slow.

A rank is looked at when it has written something, so the time of a step is that of its line; and seldom enough for that to cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ranklaunch.supervise.companions import Attended, Companion
from ranklaunch.supervise.output.pipe import Output
from ranklaunch.supervise.watching.slowness import Slowness
from ranklaunch.watch.pace import Pace

READ = 2 * 1024  # bytes of what is new, the last, that are looked at
MOST_RANKS = 64  # of a node, that are followed: half of them its first, half its last
WRITES = (1.0, 200.0)  # seconds between two events at least, and what share of the time since the launch that becomes
LOOKS = (0.1, 1.0, 600.0)  # seconds between two looks at a rank at least and at most, and the same share


class Pacing(Companion):
    def __init__(self, attended: Attended) -> None:
        self._of = attended
        self._pace = Pace()
        self._slowness = Slowness(attended) if attended.plan().watch.slow else None
        self._began = attended.loop.clock()
        self._followed: dict[int, Output] = {}
        self._read: dict[int, int] = {}
        self._looked: dict[int, float] = {}
        self._tick()

    @property
    def slow(self) -> bool:
        return self._slowness is not None and self._slowness.slow

    def stopped(self) -> None:
        self._write()
        for output in self._followed.values():
            output.heard = None

    def _tick(self) -> None:
        if self._of.ending():
            return
        for rank in _chosen(self._of.outputs()):
            if rank not in self._followed:
                output = self._followed[rank] = self._of.outputs()[rank]
                output.heard = partial(self._hear, rank, output)
        self._write()
        least, share = WRITES
        self._of.loop.after(max(least, (self._of.loop.clock() - self._began) / share), self._tick)

    def _hear(self, rank: int, output: Output) -> None:
        """Something is new. What is passed over now is looked at with what comes next, or when it is written down."""
        now = self._of.loop.clock()
        least, most, share = LOOKS
        if now - self._looked.get(rank, 0.0) >= min(most, max(least, (now - self._began) / share)):
            self._look(rank, output)

    def _look(self, rank: int, output: Output) -> None:
        """Whatever is wrong with it, the rank's output goes on."""
        new = output.taken - self._read.get(rank, 0)
        if new <= 0 or output.written_at is None:
            return
        self._read[rank], self._looked[rank] = output.taken, output.written_at
        data = output.tail[-new:]
        try:
            step = self._pace.feed(rank, data if len(data) <= READ else b"\n" + data[-READ:].partition(b"\n")[2], output.written_at)
            if step and self._slowness:
                self._slowness.feed(rank, step)
        except Exception as error:  # ours
            output.heard = None
            self._of.say(f"nobody follows the steps of rank {rank} any more: a defect in ranklaunch: {type(error).__name__}: {error}")

    def _write(self) -> None:
        for rank, output in self._followed.items():
            self._look(rank, output)
        now = self._of.loop.clock()
        ranks = self._pace.taken(now)
        if ranks:
            self._of.record.event("steps", ranks=ranks)
        for seconds, ago_s in self._pace.saved(now):
            self._of.record.event("saved", seconds=seconds, ago_s=ago_s)


def _chosen(ranks: Iterable[int]) -> list[int]:
    """A trainer lets its first rank speak, or its last, or all."""
    every = sorted(ranks)
    return every if len(every) <= MOST_RANKS else [*every[: MOST_RANKS // 2], *every[-MOST_RANKS // 2 :]]
