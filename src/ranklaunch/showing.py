"""How values and lines are shown: short, harmless to a terminal, and without the secrets in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from ranklaunch.redact import forms, redact

SHOWN = 120  # characters of a value that an error or a plan's provenance shows
_LOOKED_AT = 20 * SHOWN  # for secrets, of a value of which only the beginning is shown: the hosts of 10,000 nodes are a megabyte
# What PyTorch says of a process group, Python of semaphores and of files, and MindSpore of its connections, on the way out of a process
# that ends for another reason.
_WARNS = re.compile(
    r"(?:\[rank[0-9]{1,7}\]: ?)?\[W[0-9]{3,4} |\S{1,300}:[0-9]{1,6}: \w*Warning: |\[(?:INFO|WARNING)\] [A-Z_]{2,20}\(\S{1,80} \[mindspore/"
)
_WORD = re.compile(r"\w")
# As `train.sh: 3: foo\r: not found`, by a shell: what a line end of Windows has made a part of a name, and no line that redraws itself.
_OF_NAME = re.compile(r"\r(?=: [A-Za-z])")
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"


def begun(text: str) -> str:
    """For messages: how a line begins that is none of an environment, as far as that looks like a variable; the rest may be anything, a
    part of a key too."""
    match = re.match(r"(?:export )?[A-Z_][A-Z0-9_]{0,30}(?![\w.+/-])", text)
    shown, more = (repr(match[0]), len(text) - match.end()) if match else ("", len(text))
    rest = f"{more} character{'' if more == 1 else 's'}{' more' if shown else ''}" if more else ""
    return " and ".join(filter(None, (shown, rest)))


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


@functools.lru_cache(maxsize=1024)  # plans of many nodes show the same again and again
def shown(source: str, value: str) -> str:
    """Return a value for display. source: its name: a variable, an option or a file path (folders say nothing of the content)."""
    if forms.is_secret(source.rpartition("/")[2]):
        return forms.HIDDEN
    if redact.HARMLESS.fullmatch(value):
        return value
    if len(value) <= _LOOKED_AT:
        return clipped(redact.text(value))
    return f"{redact.text(value[:_LOOKED_AT])[:SHOWN]}... ({len(value)} characters)"


class _Escapes(dict[int, str]):
    """Shown form of each character, computed once."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character.isprintable() or character == "\t" or 0xDC80 <= code <= 0xDCFF
        self[code] = shown = character if kept else ascii(character)[1:-1]
        return shown


_ESCAPES = _Escapes()


def one_line(text: str) -> str:
    """Text from elsewhere as one line, which cannot look like several."""
    return printable("; ".join(text.split("\n")))


def fit_to_show(text: str, own: bool = False) -> str:
    """Return output of a process, or a reason, without secrets and with harmless control characters.

    own: as with `lines.shown`. Logs of ranks and the stream on the console keep what was written.
    """
    from ranklaunch.redact import lines  # large, and only failures need it

    return "\n".join(map(printable, lines.shown(text.split("\n"), own)))


def printable(line: str) -> str:
    """Control characters as their escapes, but for colours, which are left out: a text must not move the terminal's cursor, nor look
    like another line."""
    return line if line.isprintable() else re.sub(_COLOUR, "", line).translate(_ESCAPES)


def with_returns_told(text: str) -> str:
    """Make a carriage return within a name visible, in bash's form; leave a carriage return that draws over a line."""
    return _OF_NAME.sub(r"\\r", text) if "\r: " in text else text


def in_lines(text: str) -> str:
    """Output of programs, with each state of a line that redraws itself in a line of its own."""
    return with_returns_told(text).replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def last_line(lines: Sequence[str]) -> str:
    """Return the last line of an output, no warning or rule if there is another line; "" for an empty output."""
    warned = [bool(_WARNS.match(line)) for line in lines]
    quoted = [above and line[:1].isspace() for above, line in zip([False, *warned], lines)]  # the line of code that Python shows below
    shown = [(line, warns) for line, warns, quotes in zip(lines, warned, quoted) if not quotes and _WORD.search(line)]
    return next(reversed([line for line, warns in shown if not warns] or [line for line, _ in shown] or lines), "")
