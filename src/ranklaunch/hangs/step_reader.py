"""Reader of one rank's steps and saves, shared by the hang detector, the pace for the report, and the comparison of ranks with the plan.

Each piece of output is read once: by whichever of the three looks first. The other two see the same steps.
"""

from __future__ import annotations

import re
from typing import Protocol

from ranklaunch.hangs.steps import MOST_LINE, Steps

READ = 2 * 1024  # bytes at the end of new output that are read: ranks are read for as long as the job lasts
# Megatron, DeepSpeed, torchtitan, Hugging Face's Trainer, MindFormers, and programs that print the same words.
_WHAT = r"(?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b"
_BEGINS = re.compile(rf"(?i)(?<!finished )\bsaving {_WHAT}|\[torch\] saving ")
_ENDS = re.compile(rf"(?i)\b(?:successfully saved|finished saving|saved) {_WHAT}|\[torch\] saved |\bcheckpoint (?:was |is )?saved\b")


class Written(Protocol):
    """Output of a rank. tail: its last bytes. taken: bytes in all. written_at: time of the newest."""

    tail: bytes
    taken: int
    written_at: float | None
    step_reader: StepReader | None


class StepReader:
    """Steps of one rank. saves: saves of checkpoints, None until somebody asks for them."""

    def __init__(self, output: Written) -> None:
        self.steps = Steps()
        self.saves: Saves | None = None
        self.output = output
        self._taken = 0  # bytes of the output that were read or passed over

    def look(self) -> None:
        """Read the output since the last look. The time of a step is that of the newest output."""
        output = self.output
        new = output.taken - self._taken
        if new <= 0 or output.written_at is None:
            return
        self._taken = output.taken
        data = _end(output.tail, new)
        stepped = self.steps.feed(data, output.written_at)
        if self.saves:
            self.saves.feed(data, output.written_at, stepped)


def step_reader(output: Written) -> StepReader:
    """Return the one reader of an output."""
    if output.step_reader is None:
        output.step_reader = StepReader(output)
    return output.step_reader


def _end(tail: bytes, new: int) -> bytes:
    """Return the last READ of the `new` bytes, and the beginning of their first line if the line is no longer than MOST_LINE.

    A newline stands before data that does not continue the piece before."""
    data = tail[-new:]
    if new <= READ:
        return data
    start = len(data) - READ
    begins = max(data.rfind(b"\n", 0, start), data.rfind(b"\r", 0, start)) + 1
    if start - begins > MOST_LINE or (begins == 0 and new > len(tail)):
        return b"\n" + data[start:].partition(b"\n")[2]
    return b"\n" + data[begins:] if begins else data


class Saves:
    """Saves of checkpoints by one rank, during which the rank printed no step."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._saved: list[tuple[float, float]] = []

    def feed(self, data: bytes, at: float, stepped: bool) -> None:
        """Read a piece of output that came at `at`. stepped: a new step is in the piece.

        A save that begins and ends in one piece is not counted: it was short, or its duration is unknown.
        """
        if b"sav" not in data and b"Sav" not in data:
            self._began = None if stepped else self._began  # a save in the background costs no time
            return
        text = data.decode(errors="replace")
        begins, ends = _last(_BEGINS, text), _last(_ENDS, text)
        began, self._began = self._began, None
        if began is not None and ends >= 0:
            self._saved.append((began, at))
        elif began is not None and not stepped:
            self._began = began
        if begins > ends and self._began is None:
            self._began = at

    def taken(self) -> list[tuple[float, float]]:
        """Return the begin and end of each save since the last call."""
        saved, self._saved = self._saved, []
        return saved


def _last(pattern: re.Pattern[str], text: str) -> int:
    """Return where the last match begins, -1 for none."""
    return max((match.start() for match in pattern.finditer(text)), default=-1)
