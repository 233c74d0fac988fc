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


def below(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of lines right below one, which name an exception."""
    inside = False
    for number, line in enumerate(lines):
        if inside and line.startswith(_ENDS):
            yield number + 1
        inside = (inside and not line.startswith(_ENDS)) or (line.startswith("╭") and _TITLE in line)


def wrapped(lines: Sequence[str], number: int) -> range:
    """The lines that go on from the first one of a message: no line is wider than the panel, and one goes on where the next word did not
    fit in."""
    width = len(lines[number - 1])
    for below in range(number + 1, min(len(lines), number + _MOST_LINES)):
        if not lines[below].strip() or len(lines[below - 1]) + 1 + len(lines[below].split()[0]) <= width:
            return range(number + 1, below)
    return range(number + 1, min(len(lines), number + _MOST_LINES))
