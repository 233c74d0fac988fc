"""Exception records in a few words: what was raised, where, and what caused it.

ValueError: loss is nan at train.py:88 in step
caused by KeyError: 'loss' at data.py:12 in batch
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from ranklaunch import errors, showing
from ranklaunch.ends.model import Frame, Raised, Record

MOST_LINE = 300  # characters
MOST_MESSAGE = 200
MOST_NAME = 80
BEGINS = "Traceback (most recent call last):"
CHAINED = {  # lines of Python between two exceptions
    "cause": "The above exception was the direct cause of the following exception:",
    "context": "During handling of the above exception, another exception occurred:",
}
LINKS = {"cause": "caused by", "context": "while handling", "group": "with"}


def line(record: Record) -> str:
    """Return the exception that nobody caught as one line, harmless to a terminal; secrets in it are not hidden: see shown()."""
    return line_of(record.chain)


def line_of(chain: Sequence[Raised]) -> str:
    """Return the first exception of a chain in the same form; "" for an empty chain."""
    return _line(chain[0]) if chain else ""


def bare_line_of(chain: Sequence[Raised]) -> str:
    """Return the first exception of a chain in the same form, without its place."""
    return _line(replace(chain[0], frames=(), library=None)) if chain else ""


def traceback(chain: Sequence[Raised]) -> str:
    """Return a chain of exceptions as Python prints it, causes first, with the recorded frames."""
    parts = []
    for raised in reversed(chain):
        frames = [*raised.frames, *((raised.library,) if raised.library else ())]
        lines = [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in frames]
        message = f"{raised.type.removeprefix('builtins.')}: {raised.message}" if raised.message else raised.type
        parts.append("\n".join([BEGINS, *lines, message, "", *((CHAINED[raised.link], "") if raised.link in CHAINED else ())]))
    return "\n".join(parts)


def cause(record: Record) -> str:
    """Return the first cause behind the exception in the same form, else what was being handled, else "" for none."""
    for link, words in LINKS.items():
        for raised in record.chain[1:]:
            if raised.link == link:
                return f"{words} {_line(raised)}"[:MOST_LINE]
    return ""


def shown(text: str) -> str:
    """Hide the secrets in such a line."""
    return showing.printable(" ".join(errors.quoted([text]))) if text else ""


def _line(raised: Raised) -> str:
    lines = [each.strip() for each in showing.in_lines(raised.message).split("\n")]
    message = next((each for each in lines if any(map(str.isalnum, each))), lines[0])
    what = f"{_cut(raised.type, MOST_NAME)}: {_cut(message, MOST_MESSAGE)}" if message else _cut(raised.type, MOST_NAME)
    frame = raised.frames[-1] if raised.frames else raised.library
    text = f"{what}{_place(frame) if frame else ''}".replace("\n", " ")
    return showing.printable(text.encode(errors="replace").decode())[:MOST_LINE]


def _place(frame: Frame) -> str:
    function = "" if frame.function.startswith("<module") else f" in {_cut(frame.function, MOST_NAME)}"
    return f" at {_cut(posixpath.basename(frame.file), MOST_NAME)}:{frame.line}{function}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
