"""Reader of one rank's steps, shared by the hang detector, the pace for the report, and the comparison of ranks with the plan.

Each piece of output is read once: by whichever of the three looks first. The other two see the same steps. So none depends on another
running: the pace always runs, the hang detector only where hangs are watched, the comparison only until the ranks of the plan are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranklaunch.hangs.pace import Saves
from ranklaunch.hangs.steps import MOST_LINE, Steps

if TYPE_CHECKING:
    from ranklaunch.output.pipe import Output

READ = 2 * 1024  # bytes of what is new, the last, that are looked at: it is done for as long as the job lasts


class StepReader:
    """Steps of one rank. saves: reader of the times that checkpoints took, None while nobody asks for them."""

    def __init__(self, output: Output) -> None:
        self.steps = Steps()
        self.saves: Saves | None = None
        self._output = output
        self._taken = 0  # bytes of the output that were read or passed over

    def look(self) -> None:
        """Read what the rank has printed since the last look. The time of a step is that of the newest output."""
        output = self._output
        new = output.taken - self._taken
        if new <= 0 or output.written_at is None:
            return
        self._taken = output.taken
        data = _end(output.tail, new)
        stepped = self.steps.feed(data, output.written_at)
        if self.saves:
            self.saves.feed(data, output.written_at, stepped)


def step_reader(output: Output) -> StepReader:
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
