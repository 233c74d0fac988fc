"""How values and lines are shown: short, harmless to a terminal, and without the secrets in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from ranklaunch.redact import forms, redact

SHOWN = 120  # characters of a value that an error or a plan's provenance shows
# Beginning of a longer value that is searched for secrets; the rest is not shown. The hosts of 10,000 nodes are a megabyte.
_SEARCHED = 20 * SHOWN
# Warnings of a process that ends for another reason: PyTorch's about a process group, Python's about semaphores and open files, MindSpore's
# about its connections.
_WARNS = re.compile(
    r"(?:\[rank[0-9]{1,7}\]: ?)?\[W[0-9]{3,4} |\S{1,300}:[0-9]{1,6}: \w*Warning: |\[(?:INFO|WARNING)\] [A-Z_]{2,20}\(\S{1,80} \[mindspore/"
)
_WORD = re.compile(r"\w")
# A shell's `train.sh: 3: foo\r: not found`: a Windows line end has made \r a part of the name. Such a \r does not redraw the line.
_RETURN_IN_NAME = re.compile(r"\r(?=: [A-Za-z])")
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"


def begun(text: str) -> str:
    """Describe a line that is not NAME=VALUE, for messages: its first word if that looks like a variable's name, and the number of further
    characters. These are not shown: they may be a part of a key."""
    match = re.match(r"(?:export )?[A-Z_][A-Z0-9_]{0,30}(?![\w.+/-])", text)
    shown, more = (repr(match[0]), len(text) - match.end()) if match else ("", len(text))
    rest = f"{more} character{'' if more == 1 else 's'}{' more' if shown else ''}" if more else ""
    return " and ".join(filter(None, (shown, rest)))


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


@functools.lru_cache(maxsize=1024)  # the plans of many nodes show the same values
def shown(source: str, value: str) -> str:
    """Return a value for display. source: its name: a variable, an option or a file path (folders say nothing of the content)."""
    if forms.is_secret(source.rpartition("/")[2]):
        return forms.HIDDEN
    if redact.HARMLESS.fullmatch(value):
        return value
    if len(value) <= _SEARCHED:
        return clipped(redact.text(value))
    return f"{redact.text(value[:_SEARCHED])[:SHOWN]}... ({len(value)} characters)"


class _Escapes(dict[int, str]):
    """Shown form of each character, computed once."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character.isprintable() or character == "\t" or 0xDC80 <= code <= 0xDCFF
        self[code] = shown = character if kept else ascii(character)[1:-1]
        return shown


_ESCAPES = _Escapes()


def one_line(text: str) -> str:
    """Return text from elsewhere as one line, so that the text cannot look like several messages."""
    return printable("; ".join(text.split("\n")))


def fit_to_show(text: str, own: bool = False) -> str:
    """Return output of a process, or a reason, without secrets and with harmless control characters.

    own: as in `lines.shown`. Ranks' logs and their lines on the console are not changed like this.
    """
    from ranklaunch.redact import lines  # imported here: large, and only failures need it

    return "\n".join(map(printable, lines.shown(text.split("\n"), own)))


def printable(line: str) -> str:
    """Return a line with escapes in place of control characters, and without colours. A shown text must not move the terminal's cursor, nor
    look like another line."""
    return line if line.isprintable() else re.sub(_COLOUR, "", line).translate(_ESCAPES)


def with_returns_told(text: str) -> str:
    """Return text with each carriage return within a name written as \\r, as bash does; one that redraws a line stays."""
    return _RETURN_IN_NAME.sub(r"\\r", text) if "\r: " in text else text


def in_lines(text: str) -> str:
    """Return the output of a program with each state of a line that redraws itself (a progress bar) as a line of its own."""
    return with_returns_told(text).replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def last_line(lines: Sequence[str]) -> str:
    """Return the last line of an output; a warning, or a line without letters and digits, only if there is no other. "" if empty."""
    warned = [bool(_WARNS.match(line)) for line in lines]
    quoted = [above and line[:1].isspace() for above, line in zip([False, *warned], lines)]  # source line that Python shows below a warning
    shown = [(line, warns) for line, warns, quotes in zip(lines, warned, quoted) if not quotes and _WORD.search(line)]
    return next(reversed([line for line, warns in shown if not warns] or [line for line, _ in shown] or lines), "")
