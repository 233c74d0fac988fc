"""What a filter has passed on too late: `python train.py > >(tee out.txt)` writes its exception past tee, which has yet to pass on the line
before it. That line is no sign of a program that has gone on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.catalogue.survival import LOGGED, counted_on, said_more, went_on
from ranklaunch.catalogue.tracebacks import BEGINS, NAMES


def settled(tail: bytes, together: int) -> bytes:
    """tail, whose last bytes came at once; if the last traceback is among these, and lines behind it look as if the program had gone on,
    with the traceback behind them."""
    at_once = tail[-together:].decode(errors="surrogateescape") if together else ""
    if BEGINS not in at_once:
        return tail
    moved = _with_traceback_last(at_once.split("\n"))
    return tail[:-together] + "\n".join(moved).encode(errors="surrogateescape") if moved else tail


def _with_traceback_last(lines: Sequence[str]) -> list[str]:
    """Nothing where it is so already."""
    begins = [number for number, line in enumerate(lines) if line.endswith(BEGINS)]
    if not begins:
        return []
    below = [number for number in range(begins[-1] + 1, len(lines)) if lines[number].strip() and lines[number][0] not in " \t"]
    end = next((number for number in below if re.match(NAMES, lines[number])), len(lines))
    within = {number for number in below if number < end}  # while Python wrote the traceback
    behind = lines[end + 1 :]
    if end == len(lines) or not (within or went_on(lines, lines, end, raised=True) >= 0 or said_more(lines, end)):
        return []
    first = begins[0]  # of those, perhaps, that it was raised from
    if (first and re.search(LOGGED, lines[first - 1])) or counted_on(lines, end, len(lines)):
        return []  # it was caught
    traceback = [line for number, line in enumerate(lines[first : end + 1], first) if number not in within]
    said = [*(lines[number] for number in sorted(within)), *behind]
    return [*lines[:first], *filter(None, said), *traceback, ""]
