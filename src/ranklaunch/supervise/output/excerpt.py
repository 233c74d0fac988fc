"""What is shown of a long output: the end of it, in which a long traceback of Python leaves room for what the program has to do with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_BEFORE = r"(?:\[rank ?[0-9]+\]:? ?)?"  # of PyTorch
_MARKS = re.compile(rf"{_BEFORE}\s{{4,}}[~^][~^ ]*")  # below a source line, since Python 3.11
_HEAD = re.compile(rf"{_BEFORE}\s*Traceback \(most recent call last\):")
_FRAME = re.compile(rf'{_BEFORE}(\s*)File "([^"]*)", line [0-9]+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[0-9.]+/|^<frozen ")
_INDENT = re.compile(rf"{_BEFORE}(\s*)")


def of(lines: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many of them, the last ones. Of the last traceback, where it is too long, the frames in libraries are left out, and its
    beginning stays."""
    plain = [line for line in lines if not _MARKS.fullmatch(line)]
    if len(plain) > most and any(map(_HEAD.match, plain)):
        plain = list(_without_libraries(plain))
    last = plain[-most:]
    head = next((i for i in range(len(plain) - 1, -1, -1) if _HEAD.match(plain[i])), -1)
    if 0 <= head < len(plain) - most and _reaches(plain[head + 1 :], len(last)):
        last = [plain[head], "  ...", *plain[-(most - 2) :]]
    return tuple(last)


def _reaches(rest: Sequence[str], most: int) -> bool:
    """Whether a traceback goes on to what is shown."""
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
