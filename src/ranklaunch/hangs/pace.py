"""Progress of ranks, for the record: when each step came, and the saves during which nothing else went on. Pure: bytes and times go in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ranklaunch.hangs.steps import Step, Steps

TOGETHER_S = 0.05  # by which steps of neighbouring ranks differ that are reported as one
# Megatron, DeepSpeed, torchtitan, Hugging Face's Trainer, MindFormers, and programs that say it as they do.
_BEGINS = re.compile(r"(?i)(?<!finished )\bsaving (?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b|\[torch\] saving ")
_ENDS = re.compile(
    r"(?i)\b(?:successfully saved|finished saving|saved) (?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b|\[torch\] saved "
    r"|\bcheckpoint (?:was |is )?saved\b"
)


class Pace:
    """Steps of the ranks of a node that were not reported yet. The first step of a rank is reported with its own time, and of those that
    follow between two reports, the last."""

    def __init__(self) -> None:
        self._reported: dict[int, Step] = {}

    def taken(self, ranks: Mapping[int, Steps], now: float) -> list[list[float]]:
        """Return [first rank, last rank, epoch, step, of, seconds ago], of ranks that stand at the same place."""
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


class Saves:
    """Times that one rank spent on saving checkpoints while it printed no step."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._saved: list[tuple[float, float]] = []

    def feed(self, data: bytes, at: float, stepped: bool) -> None:
        """Read a piece of output. at: when it came. stepped: a new step is among it."""
        if b"sav" in data or b"Sav" in data:
            self._look_for_saves(data, at, stepped)
        elif stepped:
            self._began = None  # what goes on meanwhile is no time that is lost

    def taken(self) -> list[tuple[float, float]]:
        """Return the saves since the last call: when each began and ended."""
        saved, self._saved = self._saved, []
        return saved

    def _look_for_saves(self, data: bytes, at: float, stepped: bool) -> None:
        """A save that begins and ends in one piece took no time worth an event, or nobody knows how long."""
        text = data.decode(errors="replace")
        begins, ends = (max((match.start() for match in pattern.finditer(text)), default=-1) for pattern in (_BEGINS, _ENDS))
        began, self._began = self._began, None
        if began is not None and ends >= 0:
            self._saved.append((began, at))
        elif began is not None and not stepped:
            self._began = began
        if begins > ends and self._began is None:
            self._began = at


def _groups(steps: dict[int, Step], now: float) -> Iterator[list[float]]:
    for run in _runs((rank, steps[rank]) for rank in sorted(steps)):
        (first, step), (last, _) = run[0], run[-1]
        at = max(each.at for _, each in run)
        yield [first, last, step.place.epoch, step.place.step, step.place.of, round(max(0.0, now - at), 3)]


def _runs(steps: Iterable[tuple[int, Step]]) -> Iterator[list[tuple[int, Step]]]:
    """Neighbours that have come to the same step at the same time."""
    run: list[tuple[int, Step]] = []
    for rank, step in steps:
        if run and (rank != run[-1][0] + 1 or step.place != run[0][1].place or abs(step.at - run[0][1].at) > TOGETHER_S):
            yield run
            run = []
        run.append((rank, step))
    if run:
        yield run
