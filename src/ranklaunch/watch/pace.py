"""How ranks get on, for the record: when each step was seen, and what was saved while nothing else went on. Pure: bytes and times go in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ranklaunch.watch.steps import Step, Steps

TOGETHER_S = 0.05  # by which steps of neighbouring ranks differ that are told as one
# Megatron, DeepSpeed, torchtitan, Hugging Face's Trainer, MindFormers, and programs that say it as they do.
_BEGINS = re.compile(r"(?i)(?<!finished )\bsaving (?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b|\[torch\] saving ")
_ENDS = re.compile(
    r"(?i)\b(?:successfully saved|finished saving|saved) (?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b|\[torch\] saved "
    r"|\bcheckpoint (?:was |is )?saved\b"
)


class Pace:
    """Of the ranks of a node. feed() what each has written, as soon as it is there; taken() and saved() give what is new since the last
    time. The first step of a rank is told with its own time, and of those that follow between two times, the last."""

    def __init__(self) -> None:
        self._steps: dict[int, Steps] = {}
        self._first: dict[int, Step] = {}
        self._last: dict[int, Step] = {}
        self._saving: dict[int, float] = {}  # since when
        self._saved: list[tuple[float, float]] = []

    def feed(self, rank: int, data: bytes, at: float) -> Step | None:
        """Return the newest step in the data."""
        steps = self._steps.setdefault(rank, Steps())
        begun = steps.last is not None
        stepped = steps.feed(data, at)
        if stepped and steps.last:
            (self._last if begun else self._first)[rank] = steps.last
        if b"sav" in data or b"Sav" in data:
            self._look_for_saves(rank, data, at, stepped)
        elif stepped:
            self._saving.pop(rank, None)  # what goes on meanwhile is no time that is lost
        return steps.last if stepped else None

    def taken(self, now: float) -> list[list[float]]:
        """[first rank, last rank, epoch, step, of, seconds ago], of ranks that stand at the same place."""
        told = [*_groups(self._first, now), *_groups(self._last, now)]
        self._first, self._last = {}, {}
        return told

    def saved(self, now: float) -> list[tuple[float, float]]:
        """Seconds that it took, and how long ago it ended."""
        told = [(round(ended - began, 3), round(max(0.0, now - ended), 3)) for began, ended in self._saved]
        self._saved = []
        return told

    def _look_for_saves(self, rank: int, data: bytes, at: float, stepped: bool) -> None:
        """That begins and ends in one piece took no time worth telling, or nobody knows how long."""
        text = data.decode(errors="replace")
        begins, ends = (max((found.start() for found in pattern.finditer(text)), default=-1) for pattern in (_BEGINS, _ENDS))
        began = self._saving.pop(rank, None)
        if began is not None and ends >= 0:
            self._saved.append((began, at))
        elif began is not None and not stepped:
            self._saving[rank] = began
        if begins > ends:
            self._saving.setdefault(rank, at)


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
