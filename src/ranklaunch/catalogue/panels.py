"""How rich shows a traceback: frames, the program's lines around them and its values in panels, and the exception below, wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MARK = "╯"
_ENDS = "╰"
_TITLE = "Traceback (most recent call last)"
_MARGIN = re.compile(r"^ {1,80}(?=[╭│╰])|(?<=╯\n) {1,80}", re.MULTILINE)  # of its handler of logging, which puts it below the message
_MOST_LINES = 40  # of a message


def without_columns(text: str) -> str:
    """Without those of its handler of logging before each line, and the blanks with which it fills lines up."""
    return _MARGIN.sub("", "\n".join(map(str.rstrip, text.split("\n"))))


def within(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of lines in panels, but for the last of each, which stands above the exception."""
    inside = False
    for number, line in enumerate(lines):
        inside = (inside and not line.startswith(_ENDS)) or (line.startswith("╭") and _TITLE in line)
        if inside:
            yield number


def is_below(lines: Sequence[str], number: int) -> bool:
    return number > 0 and lines[number - 1].startswith(_ENDS)


def unwrapped(lines: Sequence[str], number: int, line: str) -> str:
    """The first line of the message, with those that go on from it: no line is wider than the panel, and one goes on where the next word
    did not fit in."""
    width, last = len(lines[number - 1]), len(lines[number])
    for below in lines[number + 1 : number + _MOST_LINES]:
        if not below.strip() or last + 1 + len(below.split()[0]) <= width:
            break
        line, last = f"{line} {below.strip()}", len(below)
    return line
