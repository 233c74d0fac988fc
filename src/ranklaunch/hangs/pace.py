"""Progress of ranks as events: the plugin of an attempt that records steps and saves, few enough for a job of weeks.

The same steps show a slow job. A rank's output is read when new output comes, so the time of a step is the time of its line. LOOKS limits
how often, so that this costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from ranklaunch.hangs.slow_job import Slowness
from ranklaunch.hangs.steps import Saves, Step, StepReader, Steps, step_reader
from ranklaunch.output.pipe import Output
from ranklaunch.supervise.context import Companion

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

TOGETHER_S = 0.05  # steps of neighbouring ranks that differ by no more are reported as one
MOST_RANKS = 64  # of a node: half of them its first, half its last
WRITES = (1.0, 200.0)  # (least, divisor): seconds between two events: the time since the launch divided by divisor, at least `least`
LOOKS = (0.1, 1.0, 600.0)  # (least, most, divisor): the same for two looks at a rank, at most `most`


class Pacing(Companion):
    """Plugin of an attempt that records steps and saves as events."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._pace = Pace()
        self._slowness = Slowness(attempt) if attempt.plan.watch.slow else None
        self._began = attempt.loop.clock()
        self._outputs: dict[int, Output] = {}
        self._readers: dict[int, StepReader] = {}
        self._looked: dict[int, float] = {}
        self._tick()

    @property
    def slow(self) -> bool:
        return self._slowness is not None and self._slowness.slow

    def stopped(self) -> None:
        self._write()
        for output in self._outputs.values():
            output.heard = None

    def _tick(self) -> None:
        if self._attempt.ending:
            return
        outputs = self._attempt.logs.by_rank
        for rank in _followed(outputs):
            if rank not in self._outputs:
                self._follow(rank, outputs[rank])
        self._write()
        least, divisor = WRITES
        self._attempt.loop.after(max(least, (self._attempt.loop.clock() - self._began) / divisor), self._tick)

    def _follow(self, rank: int, output: Output) -> None:
        reader = step_reader(output)
        reader.saves = Saves()
        self._outputs[rank], self._readers[rank] = output, reader
        output.heard = partial(self._hear, rank)

    def _hear(self, rank: int) -> None:
        """Look at a rank with new output, unless the last look was a moment ago: then a later look reads this output too."""
        now = self._attempt.loop.clock()
        least, most, divisor = LOOKS
        if now - self._looked.get(rank, 0.0) >= min(most, max(least, (now - self._began) / divisor)):
            self._look(rank)

    def _look(self, rank: int) -> None:
        """Read the steps of a rank. An error here must not end the job."""
        output, reader = self._outputs[rank], self._readers[rank]
        self._looked[rank] = output.written_at or 0.0
        try:
            reader.look()
            if reader.steps.last and self._slowness:
                self._slowness.feed(rank, reader.steps.last)
        except Exception as error:  # a defect of this module
            output.heard = None
            self._attempt.say(f"the steps of rank {rank} are no longer followed: a defect in ranklaunch: {type(error).__name__}: {error}")

    def _write(self) -> None:
        for rank in self._outputs:
            self._look(rank)
        now = self._attempt.loop.clock()
        ranks = self._pace.taken({rank: reader.steps for rank, reader in self._readers.items()}, now)
        if ranks:
            self._attempt.record.event("steps", ranks=ranks)
        saves = [save for reader in self._readers.values() if reader.saves for save in reader.saves.taken()]
        for began, ended in sorted(saves, key=itemgetter(1)):
            self._attempt.record.event("saved", seconds=round(ended - began, 3), ago_s=round(max(0.0, now - ended), 3))


def _followed(ranks: Iterable[int]) -> list[int]:
    """Return at most MOST_RANKS ranks: a trainer prints by its first rank, its last, or all."""
    every = sorted(ranks)
    return every if len(every) <= MOST_RANKS else [*every[: MOST_RANKS // 2], *every[-MOST_RANKS // 2 :]]


class Pace:
    """Steps of a node's ranks that were not reported yet. The first step of a rank is reported with its own time; of later steps between
    two reports, the last one."""

    def __init__(self) -> None:
        self._reported: dict[int, Step] = {}

    def taken(self, ranks: Mapping[int, Steps], now: float) -> list[list[float]]:
        """Return [first rank, last rank, epoch, step, of, seconds ago] for each group of neighbouring ranks at the same place."""
        first: dict[int, Step] = {}
        last: dict[int, Step] = {}
        for rank, steps in ranks.items():
            if not steps.last or steps.last == self._reported.get(rank):
                continue
            if rank not in self._reported and steps.first:
                first[rank] = steps.first
            if steps.last != first.get(rank):
                last[rank] = steps.last
            self._reported[rank] = steps.last
        return [*_groups(first, now), *_groups(last, now)]


def _groups(steps: Mapping[int, Step], now: float) -> list[list[float]]:
    groups: list[list[tuple[int, Step]]] = []
    for rank, step in sorted(steps.items()):
        if not groups or not _is_next(groups[-1], rank, step):
            groups.append([])
        groups[-1].append((rank, step))
    ends = [(group[0][0], group[-1][0], group[0][1].place, max(step.at for _, step in group)) for group in groups]
    return [[first, last, *place, round(max(0.0, now - at), 3)] for first, last, place, at in ends]


def _is_next(group: list[tuple[int, Step]], rank: int, step: Step) -> bool:
    """Return True if a rank follows the last rank of a group, with the same place and nearly the same time."""
    first = group[0][1]
    return rank == group[-1][0] + 1 and step.place == first.place and abs(step.at - first.at) <= TOGETHER_S
