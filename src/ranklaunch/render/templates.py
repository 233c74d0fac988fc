"""Templates of commands, written like a command line and rendered to an argv; also templates of files and of single lines.

Each `{{ value }}` of a command template becomes a mark. After the text is split into words, the marks are replaced by their values. So a
value stays one word (or a part of a word), also with spaces, quotes, $ or newlines, and no shell sees it. A list becomes several words,
so it must be a word of its own.
"""

from __future__ import annotations

import functools
import itertools
import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ranklaunch.errors import ConfigError
from ranklaunch.files import BYTE_ORDER_MARK
from ranklaunch.render import OURS

if TYPE_CHECKING:
    from ranklaunch.render.jinja import Jinja

SHIPPED = os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")

_MARK = re.compile("\0([0-9]+)\0")
_AT_ONCE = 4096  # one-line texts that one call of `bounded` makes
_LONGEST_LINE = 4096  # characters
_MOST = 16 * 1024**2  # characters of all values in one command, far more than the system accepts

# Function (work, name) that renders a user's template with limits, and names the template in its error. The result is a JSON value.
Bounded = Callable[[Callable[[], Any], str], Any]


def unbounded(work: Callable[[], Any], what: str) -> Any:
    """Render a shipped template, without limits."""
    return work()


class Templates:
    """Templates by name; the user's folders are searched before the shipped one.

    bounded: renders a user's template with limits. Templates in the syntax of Simple need no limits.
    """

    def __init__(self, folders: Iterable[str] = (), bounded: Bounded = unbounded) -> None:
        self._values: list[object] = []  # values of the present render, by the number of their mark
        self._room = _MOST  # characters that further values may have
        self._folders = (*folders, SHIPPED)
        self._bounded = bounded if len(self._folders) > 1 else unbounded
        self._bounded_lines = bounded
        self._lines: dict[tuple[object, ...], str] = {}
        self._sources: dict[tuple[str, ...], str] = {}
        self._simple = Simple(self._folders, self._mark)
        self._simple_texts = Simple(self._folders, _word)

    def command(self, name: str, **values: object) -> tuple[str, ...]:
        """Return the argv of a command template. Raises ConfigError with the template's file and line."""
        self._begin()
        try:
            rendered, where = self._simple.render(name, values)
        except NotSimple:
            jinja = self._jinja
            words, where = self._bounded(lambda: self._by_jinja(jinja, name, values), f"template {name}")
            argv = tuple(words)
        else:
            argv = self._argv(rendered, where)
        self._sources[argv] = name if where.startswith(SHIPPED) else where
        return argv

    def words(self, source: str, where: str, **values: object) -> tuple[str, ...]:
        """Return the words of a template in the setting `where`; there may be none."""
        self._begin()
        try:
            rendered = self._simple.inline(source, values)
        except NotSimple:
            jinja = self._jinja
            return tuple(self._bounded_lines(lambda: self._words_by_jinja(jinja, source, where, values), f"template {where}"))
        return self._words(rendered, where)

    def _words_by_jinja(self, jinja: Jinja, source: str, where: str, values: Mapping[str, object]) -> tuple[str, ...]:
        self._begin()
        return self._words(jinja.words(source, where, values), where)

    def _by_jinja(self, jinja: Jinja, name: str, values: Mapping[str, object]) -> tuple[tuple[str, ...], str]:
        self._begin()
        rendered, where = jinja.command(name, values)
        return self._argv(rendered, where), where

    def source(self, argv: tuple[str, ...]) -> str:
        """Return the template of a command since the last forget(): the name of a shipped one, or the path of a user's; "" if unknown."""
        return self._sources.get(argv, "")

    def changed(self, argv: tuple[str, ...], into: tuple[str, ...]) -> tuple[str, ...]:
        """Note that a command was changed into another one, and return the new one."""
        self._sources[into] = self.source(argv)
        return into

    def forget(self) -> None:
        self._sources.clear()

    def _begin(self) -> None:
        self._values.clear()
        self._room = _MOST

    def _words(self, rendered: str, where: str) -> tuple[str, ...]:
        try:
            return tuple(word for piece in _split(rendered) for word in self._filled(piece))
        except (ValueError, IndexError) as error:
            msg = f"template {where}: cannot be split into words: {error}"
            raise ConfigError(msg) from None

    def _argv(self, rendered: str, where: str) -> tuple[str, ...]:
        argv = self._words(rendered, where)
        if not argv or not argv[0]:
            msg = f"template {where}: renders to no command"
            raise ConfigError(msg)
        return argv

    def text(self, name: str, **values: object) -> str:
        """Return the text of a file.

        Every value must pass a filter that quotes it for the file's syntax: hostfile, sshd, json or
        yaml. Raises ConfigError with the template's file and line.
        """
        jinja = self._jinja
        return str(self._bounded(lambda: jinja.text(name, values), f"template {name}"))

    def inline(self, source: str, where: str, among: Iterable[Mapping[str, object]] = (), **values: object) -> str:
        """Return the text of a one-line template in the setting `where`.

        among: the values of all later calls. A template that needs Jinja is rendered for all of them
        at once, because each `bounded` call takes long.
        """
        try:
            text = self._simple_texts.inline(source, values)
        except NotSimple:
            text = self._line(source, where, values, among)
        if len(text) > _LONGEST_LINE:
            msg = f"template {where}: renders to {len(text)} characters, expected at most {_LONGEST_LINE}"
            raise ConfigError(msg)
        return text

    def _line(self, source: str, where: str, values: Mapping[str, object], among: Iterable[Mapping[str, object]]) -> str:
        key = (source, *values.items())
        if key not in self._lines:
            jinja = self._jinja
            later = (each for each in among if each != values and (source, *each.items()) not in self._lines)
            wanted = [values, *itertools.islice(later, _AT_ONCE)]
            texts = self._bounded_lines(lambda: [jinja.inline(source, where, each) for each in wanted], f"template {where}")
            self._lines.update({(source, *each.items()): text for each, text in zip(wanted, texts)})
        return self._lines[key]

    @property
    def shipped(self) -> tuple[str, ...]:
        """Names of ranklaunch's own templates."""
        return self._jinja.shipped

    @functools.cached_property
    def _jinja(self) -> Jinja:
        require_files(self._folders[-1])
        from ranklaunch.render.jinja import Jinja  # large

        return Jinja(self._folders, self._mark, _word)

    def _mark(self, value: object) -> str:
        self._values.append(value)
        self._room -= _size(value)
        if self._room < 0:
            msg = f"its values have more than {_MOST} characters"
            raise ValueError(msg)
        return f"\0{len(self._values) - 1}\0"

    def _filled(self, piece: str) -> tuple[str, ...]:
        alone = _MARK.fullmatch(piece)
        value = self._values[int(alone[1])] if alone else None
        if isinstance(value, (list, tuple)):
            return tuple(map(_word, value))
        return (self._text(piece),)

    def _text(self, piece: str) -> str:
        """Return a piece with its marks replaced. The value of a macro or a block may contain marks itself."""
        filled = _MARK.sub(lambda mark: self._value(int(mark[1])), piece)
        if "\0" in filled:
            msg = "a value contains a NUL character, which is impossible in a command line"
            raise ValueError(msg)
        return filled

    def _value(self, number: int) -> str:
        value = self._values[number]
        if isinstance(value, str) and _MARK.search(value):
            return _MARK.sub(lambda mark: self._value(int(mark[1])) if int(mark[1]) < number else "\0", value)
        return _word(value)


@functools.lru_cache(maxsize=16)  # with marks in place of values, mostly the same text for all nodes and ranks
def _split(rendered: str) -> tuple[str, ...]:
    return tuple(shlex.split(rendered))


def _size(value: object) -> int:
    """Return the approximate number of characters of a value in a command."""
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(_size, value))
    return len(value) if isinstance(value, str) else 1


def _word(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            msg = "a value contains a NUL character, which is impossible in a command line"
            raise ValueError(msg)
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    kind = "a list must stand alone as a word" if isinstance(value, (list, tuple)) else "only text and numbers can"
    msg = f"a {type(value).__name__} cannot be put into a word: {kind}"
    raise ValueError(msg)


# Renderer for the part of Jinja's language that most commands use. The import of Jinja takes as long as the start of Python.
#
# Syntax: text, {{ names.and.attributes }}, {% if %} on these, {% include %} and comments. A template with other syntax, or with an error,
# is left to Jinja, which gives the same text or the right error.

_PATH = r"[a-z]\w*(?:\.[a-z]\w*)*"
_FILE = r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*"
_TAG = re.compile(
    rf"""(\{{\{{ {_PATH} \}}\}}|\{{% (?:(?:if|elif) (?:not )?{_PATH}|else|endif|include "{_FILE}") %\}}|\{{# [^{{}}]* #\}})""",
    re.ASCII,
)
_BEGINS = ("{{", "{%", "{#")
_BLOCKS = ("{%", "{#")  # alone on a line, the whole line is dropped
_INCLUDE, _CHOICES = '{% include "', ("{% if ", "{% elif ", "{% else ", "{% endif ")
_LONGEST = 65536  # characters of a template; Jinja renders a longer one
_MOST_RENDERED = 256 * 1024  # characters and pieces of a rendered text: nested includes can multiply a small template
_DEEPEST = 20  # nested {% if %}

Pieces = Sequence[str]  # texts and tags


class NotSimple(Exception):
    """Template that needs Jinja."""


@dataclass
class Choice:
    """Open {% if %}. is_on: the present case is rendered. taken: some case was rendered. is_last: the present case is {% else %}."""

    is_on: bool = False
    taken: bool = False
    is_last: bool = False


class Simple:
    """Renderer of simple templates by name, from the first folder that has the name. finalize: returns the text of a value, as in Jinja."""

    def __init__(self, folders: Sequence[str], finalize: Callable[[object], str]) -> None:
        self._folders = folders
        self._finalize = finalize
        self._parsed: dict[str, tuple[Pieces, str] | None] = {}  # None: not simple

    def render(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        """Return (text, path of the template). Raises NotSimple."""
        pieces, path = self._template(name)
        return self._text(pieces, values), path

    def inline(self, source: str, values: Mapping[str, object]) -> str:
        """Return the text of a template. Raises NotSimple."""
        return self._text(parse(source), values)

    def _text(self, pieces: Pieces, values: Mapping[str, object]) -> str:
        texts, room = [], _MOST_RENDERED
        try:
            for text in self._rendered(pieces, values):
                texts.append(text)
                room -= len(text) + 1
                if room < 0:
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
            yield ""  # counts as a piece, also for an empty template
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
    """Return True if a condition holds: NAME, "not NAME", or none at all ({% else %})."""
    return not condition or bool(_value(condition[-1], values)) != (condition[0] == "not")


def require_files(shipped: str) -> None:
    """Raise ConfigError if ranklaunch's own templates are not files, as in a zipapp."""
    if not os.path.isfile(os.path.join(shipped, "program.j2")):
        msg = (
            f"ranklaunch's own templates are not files in {shipped}: it seems to run from an archive (a zipapp); unpack the archive into a "
            "folder, or install ranklaunch with pip"
        )
        raise ConfigError(msg)


def _first(paths: Iterable[str]) -> str:
    """Return the first path that exists, "" for none. Raises ConfigError if it is not a file, instead of using a later one."""
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
    if callable(value):  # Jinja's sandbox decides about callables
        raise NotSimple
    return value


@functools.lru_cache(maxsize=16)
def parse(source: str) -> Pieces:
    """Split a template into texts and tags, without the white space that Jinja drops (trim_blocks, lstrip_blocks).

    Jinja drops white space before a block or a comment at the start of a line, and the newline behind it. The newline behind an
    include stays. Raises NotSimple.
    """
    if "\r" in source or len(source) > _LONGEST:
        raise NotSimple
    pieces = _TAG.split(source[:-1] if source.endswith("\n") else source)
    for i in range(0, len(pieces), 2):
        text = pieces[i]
        if text.endswith("{") or any(begin in text for begin in _BEGINS):  # another kind of tag
            raise NotSimple
        pieces[i] = _trimmed(text, pieces[i - 1] if i else "\n", "".join(pieces[i + 1 : i + 2]))
    return [piece for piece in pieces if piece and not piece.startswith("{#")]


def _trimmed(text: str, before: str, after: str) -> str:
    """Return a text without that white space. before, after: the tags beside the text; a line end before the first text."""
    starts_line = before == "\n"
    if before.startswith(_BLOCKS) and text.startswith("\n"):
        text, starts_line = text if before.startswith(_INCLUDE) else text[1:], True
    above, newline, line = text.rpartition("\n")
    is_indent = after.startswith(_BLOCKS) and bool(newline or starts_line) and not line.strip()
    return above + newline if is_indent else text
