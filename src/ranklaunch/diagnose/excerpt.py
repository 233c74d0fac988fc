"""Last lines of an output for people: a long traceback of Python leaves out frames in libraries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ranklaunch.showing import with_returns_told
from ranklaunch.verdict.blame import LINES

_BEFORE = r"(?:\[rank ?[0-9]+\]:? ?)?"  # of PyTorch
_MARKS = re.compile(rf"{_BEFORE}\s{{4,}}[~^][~^ ]*")  # below a source line, since Python 3.11
_HEAD = re.compile(rf"{_BEFORE}\s*Traceback \(most recent call last\):")
_FRAME = re.compile(rf'{_BEFORE}(\s*)File "([^"]*)", line [0-9]+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[0-9.]+/|^<frozen ")
_INDENT = re.compile(rf"{_BEFORE}(\s*)")


def last_lines(text: str, most: int = LINES) -> tuple[str, ...]:
    """Return the last lines of an output that are not empty; of a line that was redrawn, its last state. A traceback that is too long keeps
    its beginning and leaves out frames in libraries."""
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in with_returns_told(text).replace("\r\n", "\n").split("\n")]
    lines = [line for line in drawn if line.strip()]
    plain = [line for line in lines if not _MARKS.fullmatch(line)]
    if len(plain) > most and any(map(_HEAD.match, plain)):
        plain = list(_without_libraries(plain))
    last = plain[-most:]
    head = next((i for i in range(len(plain) - 1, -1, -1) if _HEAD.match(plain[i])), -1)
    if 0 <= head < len(plain) - most and _reaches(plain[head + 1 :], len(last)):
        last = [plain[head], "  ...", *plain[-(most - 2) :]]
    return tuple(last)


def _reaches(rest: Sequence[str], most: int) -> bool:
    """True if a traceback goes on to the lines that are shown."""
    return all(_depth(line) for line in rest[: max(0, len(rest) - most)])


def _without_libraries(lines: Sequence[str]) -> Iterator[str]:
    left_out, depth = 0, -1
    for line in lines:
        frame = _FRAME.match(line)
        if frame and _LIBRARY.search(frame[2]):
            left_out, depth = left_out + 1, len(frame[1])
        elif depth >= 0 and not frame and _depth(line) > depth:
            continue
        else:
            if left_out:
                yield f"{' ' * depth}... {left_out} frame{'s' if left_out > 1 else ''} in libraries"
            left_out, depth = 0, -1
            yield line


def _depth(line: str) -> int:
    found = _INDENT.match(line)
    return len(found[1]) if found else 0
