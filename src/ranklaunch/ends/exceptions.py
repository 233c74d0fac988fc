"""Texts of exception records: the exception, its place, and its cause. Example:

ValueError: loss is nan at train.py:88 in step
caused by KeyError: 'loss' at data.py:12 in batch
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace

from ranklaunch import errors, showing
from ranklaunch.ends.model import Frame, Raised, Record

MOST_LINE = 300  # characters
MOST_MESSAGE = 200
MOST_NAME = 80
BEGINS = "Traceback (most recent call last):"
CHAINED = {  # Python's lines between two exceptions
    "cause": "The above exception was the direct cause of the following exception:",
    "context": "During handling of the above exception, another exception occurred:",
}
LINKS = {"cause": "caused by", "context": "while handling", "group": "with"}


# Ray raises a task's exception again in the program, with the task's traceback as the message.
_TASK = re.compile(r"(?:\x1b\[\d+m)?(ray::[^\s()]+)\(\)(?:\x1b\[\d+m)? \((pid=\d+, ip=[^\s,)]+)")
_CREATION = re.compile(
    r"(?:ray\.exceptions\.ActorDiedError: )?"
    r"The actor died because of an error raised in its creation task, "
)
_ACTOR = re.compile(r"^\t(class_name|name|pid|ip): (\S+)$", re.MULTILINE)


def line(record: Record) -> str:
    """Return the uncaught exception of a record as one line, safe for a terminal. shown() hides secrets."""
    return line_of(record.chain)


def line_of(chain: Sequence[Raised]) -> str:
    """Return the first exception of a chain as one line; "" for an empty chain."""
    return _line(chain[0]) if chain else ""


def bare_line_of(chain: Sequence[Raised]) -> str:
    """Return the first exception of a chain as one line, without its place."""
    return _line(replace(chain[0], frames=(), library=None)) if chain else ""


def traceback(chain: Sequence[Raised]) -> str:
    """Return a chain of exceptions as Python prints it, causes first, with the recorded frames."""
    parts = []
    for raised in reversed(chain):
        frames = [*raised.frames, *((raised.library,) if raised.library else ())]
        lines = [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in frames]
        message = f"{raised.type.removeprefix('builtins.')}: {raised.message}" if raised.message else raised.type
        message = _CREATION.sub("", message)  # the traceback that follows has the real error
        parts.append("\n".join([BEGINS, *lines, message, "", *((CHAINED[raised.link], "") if raised.link in CHAINED else ())]))
    return "\n".join(parts)


def cause(record: Record) -> str:
    """Return the first cause of the exception as one line, or else the exception in handling; "" for neither."""
    for link, words in LINKS.items():
        for raised in record.chain[1:]:
            if raised.link == link:
                return f"{words} {_line(raised)}"[:MOST_LINE]
    return ""


def shown(text: str) -> str:
    """Return such a line with secrets hidden."""
    return showing.printable(" ".join(errors.quoted([text]))) if text else ""


def _line(raised: Raised) -> str:
    lines = [each.strip() for each in showing.in_lines(raised.message).split("\n")]
    message = next((each for each in lines if any(map(str.isalnum, each))), lines[0])
    what = f"{_cut(raised.type, MOST_NAME)}: {_cut(message, MOST_MESSAGE)}" if message else _cut(raised.type, MOST_NAME)
    if raised.type.startswith("ray.exceptions."):
        what = _in_task(raised.message) or what
        what += _actor(raised.message)
    frame = raised.frames[-1] if raised.frames else raised.library
    text = f"{what}{_place(frame) if frame else ''}".replace("\n", " ")
    return showing.printable(text.encode(errors="replace").decode())[:MOST_LINE]


def _in_task(message: str) -> str:
    """Return the exception of Ray's innermost task, with the task's name and process; "" without a task."""
    tasks = list(_TASK.finditer(message))
    if not tasks:
        return ""
    lines = message[tasks[-1].end() :].split("\n")[1:]
    exception = next((each.strip() for each in lines if each[:1].strip()), "")  # the first line without indentation
    if not exception:
        return ""
    task = f", in {_cut(tasks[-1][1], MOST_NAME)} ({tasks[-1][2]})"
    within = "" if _ACTOR.search(message) else task
    return f"{_cut(exception, MOST_MESSAGE)}{within}"


def _actor(message: str) -> str:
    """Return the name, class and process of the Ray actor that died; "" if none did."""
    fields = dict(_ACTOR.findall(message))
    words = [_cut(fields[name], MOST_NAME) for name in ("name", "class_name") if name in fields]
    words += [f"{name}={fields[name]}" for name in ("pid", "ip") if name in fields]
    return f" ({', '.join(words)})" if words else ""


def _place(frame: Frame) -> str:
    function = "" if frame.function.startswith("<module") else f" in {_cut(frame.function, MOST_NAME)}"
    return f" at {_cut(posixpath.basename(frame.file), MOST_NAME)}:{frame.line}{function}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
