"""The part of Jinja's language that most commands keep to, without Jinja, whose import takes as long as the start of a Python.

Text, {{ names.and.attributes }}, {% if %} on these, {% include %} and comments. A template that holds anything else, or that goes wrong,
is left to Jinja, which gives the same text or the right error.
"""

from __future__ import annotations

import functools
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ranklaunch.errors import ConfigError
from ranklaunch.files import BYTE_ORDER_MARK

OURS = "shipped/"  # before a name that is looked for in the last folder alone, whatever the others have of it
_CLOSING = {"{{": "}}", "{%": "%}", "{#": "#}"}
_ELSE, _END = "{% else %}", "{% endif %}"
_ENDS = (_ELSE, _END, "{% elif ")
_BEGINS = ("{{", "{%", "{#")
_BLOCKS = ("{%", "{#")  # their lines are their own
_INCLUDE = '{% include "'
_LONGEST = 65536  # characters of a template; of more, whoever wrote it can wait for Jinja
_MOST = 256 * 1024  # characters and pieces of what is rendered: templates that include each other can make much of little


class NotSimple(Exception):
    """Jinja is needed."""


@dataclass(frozen=True)
class Insert:
    """Of what a name and its attributes say."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """path: empty for an else."""

    negated: bool
    path: tuple[str, ...]
    nodes: Nodes


@dataclass(frozen=True)
class Choice:
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Include:
    name: str


Node = Union[str, Insert, Choice, Include]
Nodes = tuple[Any, ...]  # of Node, some of which hold Nodes themselves


class Simple:
    """Templates of these folders, the first that has one. finalize: what becomes of each value, as in Jinja."""

    def __init__(self, folders: Sequence[str], finalize: Callable[[object], str]) -> None:
        self._folders = folders
        self._finalize = finalize
        self._parsed: dict[str, tuple[Nodes, str] | None] = {}  # None: not simple

    def render(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        """(text, path of the template). Raises NotSimple."""
        nodes, path = self._template(name)
        return self._text(nodes, values), path

    def inline(self, source: str, values: Mapping[str, object]) -> str:
        """The text of a template that is given. Raises NotSimple."""
        return self._text(parse(source), values)

    def _text(self, nodes: Nodes, values: Mapping[str, object]) -> str:
        pieces, left = [], _MOST
        try:
            for piece in self._rendered(nodes, values):
                pieces.append(piece)
                left -= len(piece) + 1
                if left < 0:
                    raise NotSimple
            return "".join(pieces)
        except (AttributeError, KeyError, ValueError, RecursionError):
            raise NotSimple from None

    def _rendered(self, nodes: Nodes, values: Mapping[str, object]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
            elif isinstance(node, Insert):
                yield self._finalize(_found(node.path, values))
            elif isinstance(node, Include):
                yield ""  # one step, also where it holds nothing
                yield from self._rendered(self._template(node.name)[0], values)
            else:
                for case in node.cases:
                    if not case.path or bool(_found(case.path, values)) != case.negated:
                        yield from self._rendered(case.nodes, values)
                        break

    def _template(self, name: str) -> tuple[Nodes, str]:
        if name not in self._parsed:
            self._parsed[name] = None
            ours = name.startswith(OURS)
            folders, within = (self._folders[-1:], name[len(OURS) :]) if ours else (self._folders, name)
            path = _first(os.path.join(folder, within) for folder in folders)
            self._parsed[name] = (parse(_source(path)), path)
        found = self._parsed[name]
        if not found:
            raise NotSimple
        return found


def require_files(shipped: str) -> None:
    """Raises ConfigError where ranklaunch's own templates are none."""
    if not os.path.isfile(os.path.join(shipped, "program.j2")):
        msg = (
            f"ranklaunch's own templates are no files in {shipped}: it seems to run from an archive (a zipapp): unpack that into a folder, "
            "or install ranklaunch with pip"
        )
        raise ConfigError(msg)


def _first(paths: Iterable[str]) -> str:
    """That is there. Raises ConfigError where one is no file: another template in its place would not be the one that somebody meant."""
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
    pieces = _trimmed(_split(source[:-1] if source.endswith("\n") else source))
    left = [piece for piece in reversed(pieces) if piece and not piece.startswith("{#")]
    try:
        nodes = _nodes(left)
    except RecursionError:
        raise NotSimple from None
    if left:
        raise NotSimple
    return nodes


def _split(source: str) -> list[str]:
    """Text and tags in turn. In one pass, whatever it holds: a regular expression would look for each end anew."""
    pieces: list[str] = []
    at = looked = 0
    while (start := source.find("{", looked)) >= 0:
        closing = _CLOSING.get(source[start : start + 2])
        if not closing:
            looked = start + 1
            continue
        end = source.find(closing, start + 2)
        if end < 0:
            raise NotSimple
        pieces += [source[at:start], source[start : end + 2]]
        at = looked = end + 2
    return [*pieces, source[at:]]


def _trimmed(pieces: list[str]) -> list[str]:
    """Without the white space before a block or a comment that begins its line, and the newline after it, as trim_blocks and
    lstrip_blocks of Jinja do. The newline after an include stays. Every second piece is a tag."""
    for i in range(0, len(pieces), 2):
        text = pieces[i]
        if text.endswith("{") or any(begin in text for begin in _BEGINS):  # where a tag begins is not plain then
            raise NotSimple
        starts_line = not i
        if i and pieces[i - 1].startswith(_BLOCKS) and text.startswith("\n"):
            text, starts_line = text if pieces[i - 1].startswith(_INCLUDE) else text[1:], True
        if i + 1 < len(pieces) and pieces[i + 1].startswith(_BLOCKS):
            before, newline, line = text.rpartition("\n")
            if (newline or starts_line) and not line.strip():
                text = before + newline
        pieces[i] = text
    return pieces


def _nodes(left: list[str]) -> Nodes:
    """Up to what ends a block. left: the pieces from here on, the next one last; what was read is taken away."""
    nodes: list[Node] = []
    while left and not left[-1].startswith(_ENDS):
        piece = left.pop()
        if piece.startswith("{% if "):
            nodes.append(_choice(piece, left))
        elif piece.startswith("{% "):
            nodes.append(Include(_file(_inside(piece, _INCLUDE, '" %}'))))
        else:
            nodes.append(Insert(_path(_inside(piece, "{{ ", " }}"))) if piece.startswith(_BEGINS) else piece)
    return tuple(nodes)


def _choice(piece: str, left: list[str]) -> Choice:
    cases: list[Case] = []
    while piece != _END:
        condition = "" if piece == _ELSE else _inside(piece, "{% elif " if cases else "{% if ", " %}")
        negated = condition.startswith("not ")
        path = _path(condition[4:] if negated else condition) if condition else ()
        cases.append(Case(negated, path, _nodes(left)))
        if not left or (not path and left[-1] != _END):
            raise NotSimple
        piece = left.pop()
    return Choice(tuple(cases))


def _inside(piece: str, begin: str, end: str) -> str:
    if not piece.startswith(begin) or not piece.endswith(end) or len(piece) <= len(begin) + len(end):
        raise NotSimple
    return piece[len(begin) : -len(end)]


def _path(text: str) -> tuple[str, ...]:
    names = tuple(text.split("."))
    if not all(name.isascii() and name.isidentifier() and name[0].islower() for name in names):
        raise NotSimple
    return names


def _file(name: str) -> str:
    if not all(part.strip(".") and part.replace(".", "").replace("-", "").isidentifier() for part in name.split("/")):
        raise NotSimple
    return name
