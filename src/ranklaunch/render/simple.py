"""The part of Jinja's language that most commands keep to, without Jinja, whose import takes as long as the start of a Python.

Text, {{ names.and.attributes }}, {% if %} on these, {% include %} and comments. A template that holds anything else, or that goes wrong,
is left to Jinja, which gives the same text or the right error.
"""

from __future__ import annotations

import functools
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.errors import ConfigError
from ranklaunch.files import BYTE_ORDER_MARK

OURS = "shipped/"  # before a name that is looked for in the last folder alone, whatever the others have of it
_PATH = r"[a-z]\w*(?:\.[a-z]\w*)*"
_FILE = r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*"
_TAG = re.compile(
    rf"""(\{{\{{ {_PATH} \}}\}}|\{{% (?:(?:if|elif) (?:not )?{_PATH}|else|endif|include "{_FILE}") %\}}|\{{# [^{{}}]* #\}})""",
    re.ASCII,
)
_BEGINS = ("{{", "{%", "{#")
_BLOCKS = ("{%", "{#")  # alone on a line, they take the line with them
_INCLUDE, _CHOICES = '{% include "', ("{% if ", "{% elif ", "{% else ", "{% endif ")
_LONGEST = 65536  # characters of a template; Jinja renders a longer one
_MOST = 256 * 1024  # characters and pieces of what is rendered: templates that include each other can make much of little
_DEEPEST = 20  # of {% if %} in each other

Pieces = Sequence[str]  # texts and tags


class NotSimple(Exception):
    """Jinja is needed."""


@dataclass
class Choice:
    """An open {% if %}. is_on: its present case is rendered. taken: one of its cases was. is_last: the present one is {% else %}."""

    is_on: bool = False
    taken: bool = False
    is_last: bool = False


class Simple:
    """Templates of these folders, the first that has one. finalize: what becomes of each value, as in Jinja."""

    def __init__(self, folders: Sequence[str], finalize: Callable[[object], str]) -> None:
        self._folders = folders
        self._finalize = finalize
        self._parsed: dict[str, tuple[Pieces, str] | None] = {}  # None: not simple

    def render(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        """(text, path of the template). Raises NotSimple."""
        pieces, path = self._template(name)
        return self._text(pieces, values), path

    def inline(self, source: str, values: Mapping[str, object]) -> str:
        """The text of a template that is given. Raises NotSimple."""
        return self._text(parse(source), values)

    def _text(self, pieces: Pieces, values: Mapping[str, object]) -> str:
        texts, left = [], _MOST
        try:
            for text in self._rendered(pieces, values):
                texts.append(text)
                left -= len(text) + 1
                if left < 0:
                    raise NotSimple
            return "".join(texts)
        except (AttributeError, KeyError, ValueError, RecursionError):
            raise NotSimple from None

    def _rendered(self, pieces: Pieces, values: Mapping[str, object]) -> Iterator[str]:
        choices: list[Choice] = []  # the innermost last
        for piece in pieces:
            if piece.startswith(_CHOICES):
                _choose(choices, piece[2:-2].split(), values)
            elif not choices or all(choice.is_on for choice in choices):
                yield from self._shown(piece, values)
        if choices:
            raise NotSimple

    def _shown(self, piece: str, values: Mapping[str, object]) -> Iterator[str]:
        if piece.startswith("{{"):
            yield self._finalize(_value(piece[3:-3], values))
        elif piece.startswith(_INCLUDE):
            yield ""  # one step, also where it holds nothing
            yield from self._rendered(self._template(piece[len(_INCLUDE) : -len('" %}')])[0], values)
        else:
            yield piece

    def _template(self, name: str) -> tuple[Pieces, str]:
        if name not in self._parsed:
            self._parsed[name] = None
            ours = name.startswith(OURS)
            folders, within = (self._folders[-1:], name[len(OURS) :]) if ours else (self._folders, name)
            path = _first(os.path.join(folder, within) for folder in folders)
            self._parsed[name] = (parse(_source(path)), path)
        template = self._parsed[name]
        if not template:
            raise NotSimple
        return template


def _choose(choices: list[Choice], words: Sequence[str], values: Mapping[str, object]) -> None:
    """Open, change or close a choice by if, elif, else or endif."""
    keyword, *condition = words
    if keyword == "if":
        choices.append(Choice())
    if not 0 < len(choices) <= _DEEPEST:
        raise NotSimple
    choice = choices[-1]
    if keyword == "endif":
        choices.pop()
        return
    if choice.is_last:
        raise NotSimple
    choice.is_last = keyword == "else"
    choice.is_on = not choice.taken and all(outer.is_on for outer in choices[:-1]) and _holds(condition, values)
    choice.taken |= choice.is_on


def _holds(condition: Sequence[str], values: Mapping[str, object]) -> bool:
    """Return True for NAME, "not NAME" or no condition at all, if it holds."""
    return not condition or bool(_value(condition[-1], values)) != (condition[0] == "not")


def require_files(shipped: str) -> None:
    """Raises ConfigError where ranklaunch's own templates are none."""
    if not os.path.isfile(os.path.join(shipped, "program.j2")):
        msg = (
            f"ranklaunch's own templates are no files in {shipped}: it seems to run from an archive (a zipapp): unpack that into a folder, "
            "or install ranklaunch with pip"
        )
        raise ConfigError(msg)


def _first(paths: Iterable[str]) -> str:
    """Return the first path that exists. Raises ConfigError for one that is no file: no other template takes its place."""
    for path in paths:
        if os.path.isfile(path):
            return path
        if os.path.lexists(path):
            msg = f"template {path}: expected a file, or a link to one"
            raise ConfigError(msg)
    return ""


def _source(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read(_LONGEST + 1).removeprefix(BYTE_ORDER_MARK)
    except (OSError, UnicodeError):
        raise NotSimple from None


def _value(path: str, values: Mapping[str, object]) -> object:
    name, *attributes = path.split(".")
    value = values[name]
    for attribute in attributes:
        value = getattr(value, attribute)
    if callable(value):  # some may not be touched: Jinja knows which
        raise NotSimple
    return value


@functools.lru_cache(maxsize=16)
def parse(source: str) -> Pieces:
    """Split a template into text and tags, without the white space that Jinja drops (trim_blocks, lstrip_blocks).

    Dropped: white space before a block or a comment that begins its line, and the newline after it. The newline after
    an include stays. Raises NotSimple.
    """
    if "\r" in source or len(source) > _LONGEST:
        raise NotSimple
    pieces = _TAG.split(source[:-1] if source.endswith("\n") else source)
    for i in range(0, len(pieces), 2):
        text = pieces[i]
        if text.endswith("{") or any(begin in text for begin in _BEGINS):  # another tag, or an end that is not plain
            raise NotSimple
        pieces[i] = _trimmed(text, pieces[i - 1] if i else "\n", "".join(pieces[i + 1 : i + 2]))
    return [piece for piece in pieces if piece and not piece.startswith("{#")]


def _trimmed(text: str, before: str, after: str) -> str:
    """A text without that white space. before, after: the tags beside it; before the first text a line end."""
    starts_line = before == "\n"
    if before.startswith(_BLOCKS) and text.startswith("\n"):
        text, starts_line = text if before.startswith(_INCLUDE) else text[1:], True
    above, newline, line = text.rpartition("\n")
    is_indent = after.startswith(_BLOCKS) and bool(newline or starts_line) and not line.strip()
    return above + newline if is_indent else text
