"""The companion of an attempt that writes down how ranks get on: their steps and saves become events, few enough for a job of weeks. The
same steps show whether the job is slow.

A rank is looked at when it has written something, so the time of a step is that of its line; and seldom enough for that to cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ranklaunch.hangs.pace import Pace, Saves
from ranklaunch.hangs.slow_job import Slowness
from ranklaunch.hangs.step_reader import StepReader, step_reader
from ranklaunch.output.pipe import Output
from ranklaunch.supervise.plugins import Attended, Companion

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
        self._readers: dict[int, StepReader] = {}
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
                self._follow(rank, self._of.outputs()[rank])
        self._write()
        least, share = WRITES
        self._of.loop.after(max(least, (self._of.loop.clock() - self._began) / share), self._tick)

    def _follow(self, rank: int, output: Output) -> None:
        reader = step_reader(output)
        reader.saves = Saves()
        self._followed[rank], self._readers[rank] = output, reader
        output.heard = partial(self._hear, rank, output)

    def _hear(self, rank: int, output: Output) -> None:
        """Something is new. What is passed over now is looked at with what comes next, or when it is written down."""
        now = self._of.loop.clock()
        least, most, share = LOOKS
        if now - self._looked.get(rank, 0.0) >= min(most, max(least, (now - self._began) / share)):
            self._look(rank, output)

    def _look(self, rank: int, output: Output) -> None:
        """Whatever is wrong with it, the rank's output goes on."""
        self._looked[rank] = output.written_at or 0.0
        try:
            self._readers[rank].look()
            step = self._readers[rank].steps.last
            if step and self._slowness:
                self._slowness.feed(rank, step)
        except Exception as error:  # ours
            output.heard = None
            self._of.say(f"nobody follows the steps of rank {rank} any more: a defect in ranklaunch: {type(error).__name__}: {error}")

    def _write(self) -> None:
        for rank, output in self._followed.items():
            self._look(rank, output)
        now = self._of.loop.clock()
        ranks = self._pace.taken({rank: reader.steps for rank, reader in self._readers.items()}, now)
        if ranks:
            self._of.record.event("steps", ranks=ranks)
        saves = [save for reader in self._readers.values() if reader.saves for save in reader.saves.taken()]
        for began, ended in sorted(saves, key=lambda save: save[1]):
            self._of.record.event("saved", seconds=round(ended - began, 3), ago_s=round(max(0.0, now - ended), 3))


def _chosen(ranks: Iterable[int]) -> list[int]:
    """A trainer lets its first rank speak, or its last, or all."""
    every = sorted(ranks)
    return every if len(every) <= MOST_RANKS else [*every[: MOST_RANKS // 2], *every[-MOST_RANKS // 2 :]]
