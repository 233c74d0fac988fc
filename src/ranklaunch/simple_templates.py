"""The part of Jinja's language that most commands keep to, without Jinja, whose import takes as long as the start of a Python.

Text, {{ names.and.attributes }}, {% if %} on these, {% include %} and comments. A template that holds anything else, or that goes wrong,
is left to Jinja, which gives the same text or the right error.
"""

from __future__ import annotations

import functools
import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

_TAG = re.compile(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_VALUE = re.compile(r"\{\{ ([a-z]\w*(?:\.[a-z]\w*)*) \}\}")
_CONDITION = re.compile(r"\{% (?:el)?if (not )?([a-z]\w*(?:\.[a-z]\w*)*) %\}")
_INCLUDE = re.compile(r"\{% include \"([\w.-]+(?:/[\w.-]+)*)\" %\}")
_ELSE, _END = "{% else %}", "{% endif %}"
_BEGINS = ("{{", "{%", "{#")
_BLOCKS = ("{%", "{#")  # their lines are their own
_LONGEST = 65536  # characters of a template; of more, whoever wrote it can wait for Jinja


class NotSimple(Exception):
    """Jinja is needed."""


class Value(NamedTuple):
    path: tuple[str, ...]


class Case(NamedTuple):
    """path: empty for an else."""

    negated: bool
    path: tuple[str, ...]
    nodes: Nodes


class Choice(NamedTuple):
    cases: tuple[Case, ...]


class Include(NamedTuple):
    name: str


Node = Union[str, Value, Choice, Include]
Nodes = tuple[Any, ...]  # of Node: a type that holds itself is beyond what NamedTuple can say


class Simple:
    """Templates of these folders, the first that has one. finalize: what becomes of each value, as in Jinja."""

    def __init__(self, folders: Sequence[str], finalize: Callable[[object], str]) -> None:
        self._folders = folders
        self._finalize = finalize
        self._parsed: dict[str, tuple[Nodes, str]] = {}

    def render(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        """(text, path of the template). Raises NotSimple."""
        nodes, path = self._template(name)
        return self._text(nodes, values), path

    def inline(self, source: str, values: Mapping[str, object]) -> str:
        """The text of a template that is given. Raises NotSimple."""
        return self._text(parse(source), values)

    def _text(self, nodes: Nodes, values: Mapping[str, object]) -> str:
        try:
            return "".join(self._rendered(nodes, values))
        except (AttributeError, KeyError, ValueError, RecursionError):
            raise NotSimple from None

    def _rendered(self, nodes: Nodes, values: Mapping[str, object]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, Value):
                yield self._finalize(_found(node.path, values))
            elif isinstance(node, Include):
                yield from self._rendered(self._template(node.name)[0], values)
            else:
                for case in node.cases:
                    if not case.path or bool(_found(case.path, values)) != case.negated:
                        yield from self._rendered(case.nodes, values)
                        break

    def _template(self, name: str) -> tuple[Nodes, str]:
        if name not in self._parsed:
            path = next((path for folder in self._folders if os.path.isfile(path := os.path.join(folder, name))), "")
            self._parsed[name] = (parse(_source(path)), path)
        return self._parsed[name]


def _source(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read(_LONGEST + 1)
    except (OSError, UnicodeError):
        raise NotSimple from None


def _found(path: tuple[str, ...], values: Mapping[str, object]) -> object:
    value = values[path[0]]
    for name in path[1:]:
        value = getattr(value, name)
    if callable(value):  # some may not be touched: Jinja knows which
        raise NotSimple
    return value


@functools.lru_cache(maxsize=16)
def parse(source: str) -> Nodes:
    """Raises NotSimple."""
    if "\r" in source or len(source) > _LONGEST:
        raise NotSimple
    pieces = _trimmed(_TAG.split(source[:-1] if source.endswith("\n") else source))
    left = [piece for piece in reversed(pieces) if piece and not piece.startswith("{#")]
    try:
        nodes = _nodes(left)
    except RecursionError:
        raise NotSimple from None
    if left:
        raise NotSimple
    return nodes


def _trimmed(pieces: list[str]) -> list[str]:
    """Without the white space before a block or a comment that begins its line, and the newline after it: trim_blocks, lstrip_blocks.
    Every second piece is a tag."""
    for i in range(0, len(pieces), 2):
        text = pieces[i]
        if text.endswith("{") or any(begin in text for begin in _BEGINS):  # where a tag begins is not plain then
            raise NotSimple
        starts_line = not i
        if i and pieces[i - 1].startswith(_BLOCKS) and text.startswith("\n"):
            text, starts_line = text[1:], True
        if i + 1 < len(pieces) and pieces[i + 1].startswith(_BLOCKS):
            before, newline, line = text.rpartition("\n")
            if (newline or starts_line) and not line.strip():
                text = before + newline
        pieces[i] = text
    return pieces


def _nodes(left: list[str]) -> Nodes:
    """Up to what ends a block. left: the pieces from here on, the next one last; what was read is taken away."""
    nodes: list[Node] = []
    while left:
        piece = left.pop()
        if not piece.startswith(_BEGINS):
            nodes.append(piece)
        elif match := _VALUE.fullmatch(piece):
            nodes.append(Value(tuple(match[1].split("."))))
        elif match := _INCLUDE.fullmatch(piece):
            nodes.append(Include(match[1]))
        elif piece.startswith("{% if "):
            nodes.append(_choice(piece, left))
        else:
            left.append(piece)
            break
    return tuple(nodes)


def _choice(piece: str, left: list[str]) -> Choice:
    cases: list[Case] = []
    while piece != _END:
        match = _CONDITION.fullmatch(piece)
        if not match and (piece != _ELSE or not cases[-1].path):
            raise NotSimple
        path = tuple(match[2].split(".")) if match else ()
        cases.append(Case(bool(match and match[1]), path, _nodes(left)))
        if not left or (not path and left[-1] != _END):
            raise NotSimple
        piece = left.pop()
    return Choice(tuple(cases))
