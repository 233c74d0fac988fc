"""Command templates read like the command line that a person would type, and become an argv.

Every `{{ value }}` of a command template is replaced by a mark before the text is split into words and put in afterwards, so a
value stays one word (or a part of the word it stands in) whatever it holds: spaces, quotes, $, newlines. No shell ever sees it.
A list becomes several words and must therefore stand alone.
"""

from __future__ import annotations

import functools
import itertools
import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ranklaunch.errors import ConfigError
from ranklaunch.render.simple import NotSimple, Simple, require_files

if TYPE_CHECKING:
    from ranklaunch.render.jinja import Jinja

SHIPPED = os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")

_MARK = re.compile("\0([0-9]+)\0")
_AT_ONCE = 4096  # texts of a line that one call of bounded makes
_LONGEST_LINE = 4096  # characters
_MOST = 16 * 1024**2  # characters of the values in one command, of which the system takes far fewer

# Does a piece of work, which a template of the user's is, and says of whose it is where it takes too much. Its result is one that JSON has.
Bounded = Callable[[Callable[[], Any], str], Any]


def unbounded(work: Callable[[], Any], what: str) -> Any:
    """For templates that are known."""
    return work()


class Templates:
    """Templates by name, the user's folders before the shipped one. bounded: does what takes more than a few steps, where a user has
    written it; what Simple can do it does with less."""

    def __init__(self, folders: Iterable[str] = (), bounded: Bounded = unbounded) -> None:
        self._values: list[object] = []  # of the render in progress, in the order of their marks
        self._left = _MOST  # characters that they may still have
        self._folders = (*folders, SHIPPED)
        self._bounded = bounded if len(self._folders) > 1 else unbounded
        self._bounded_lines = bounded
        self._lines: dict[tuple[object, ...], str] = {}
        self._sources: dict[tuple[str, ...], str] = {}
        self._simple = Simple(self._folders, self._mark)
        self._simple_texts = Simple(self._folders, _word)

    def command(self, name: str, **values: object) -> tuple[str, ...]:
        """The argv that a command template renders to. Raises ConfigError naming the template's file and line."""
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
        """The words of a template that stands in the setting `where`, made as those of a command are; it may make none."""
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
        """Template of a command made since the last forget(): a shipped one's name, or the path of a user's; "" for any other."""
        return self._sources.get(argv, "")

    def changed(self, argv: tuple[str, ...], into: tuple[str, ...]) -> tuple[str, ...]:
        """A command that was made, in the words that it has from now on."""
        self._sources[into] = self.source(argv)
        return into

    def forget(self) -> None:
        self._sources.clear()

    def _begin(self) -> None:
        self._values.clear()
        self._left = _MOST

    def _words(self, rendered: str, where: str) -> tuple[str, ...]:
        try:
            return tuple(word for piece in _split(rendered) for word in self._filled(piece))
        except (ValueError, IndexError) as error:
            msg = f"template {where}: its words cannot be made out: {error}"
            raise ConfigError(msg) from None

    def _argv(self, rendered: str, where: str) -> tuple[str, ...]:
        argv = self._words(rendered, where)
        if not argv or not argv[0]:
            msg = f"template {where}: renders to no command"
            raise ConfigError(msg)
        return argv

    def text(self, name: str, **values: object) -> str:
        """The text of a file. Every value that is put in must have passed a filter that quotes it for the file's syntax: hostfile,
        sshd, json or yaml. Raises ConfigError naming the template's file and line."""
        jinja = self._jinja
        return str(self._bounded(lambda: jinja.text(name, values), f"template {name}"))

    def inline(self, source: str, where: str, among: Iterable[Mapping[str, object]] = (), **values: object) -> str:
        """The text of a one-line template that stands in the setting `where`. among: what its values will be too, so that what cannot be
        rendered by simple means is rendered for all of them at once."""
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
            others = (each for each in among if each != values and (source, *each.items()) not in self._lines)
            wanted = [values, *itertools.islice(others, _AT_ONCE)]
            texts = self._bounded_lines(lambda: [jinja.inline(source, where, each) for each in wanted], f"template {where}")
            self._lines.update({(source, *each.items()): text for each, text in zip(wanted, texts)})
        return self._lines[key]

    @property
    def shipped(self) -> tuple[str, ...]:
        """The names of ranklaunch's own."""
        return self._jinja.shipped

    @functools.cached_property
    def _jinja(self) -> Jinja:
        require_files(self._folders[-1])
        from ranklaunch.render.jinja import Jinja  # large

        return Jinja(self._folders, self._mark, _word)

    def _mark(self, value: object) -> str:
        self._values.append(value)
        self._left -= _size(value)
        if self._left < 0:
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
        """A piece with its marks filled. What a macro or a block returns holds marks itself."""
        filled = _MARK.sub(lambda mark: self._value(int(mark[1])), piece)
        if "\0" in filled:
            msg = "a value holds a NUL character, which no command line can carry"
            raise ValueError(msg)
        return filled

    def _value(self, number: int) -> str:
        value = self._values[number]
        if isinstance(value, str) and _MARK.search(value):
            return _MARK.sub(lambda mark: self._value(int(mark[1])) if int(mark[1]) < number else "\0", value)
        return _word(value)


@functools.lru_cache(maxsize=16)  # with marks for its values, it is mostly the same for all nodes and ranks
def _split(rendered: str) -> tuple[str, ...]:
    return tuple(shlex.split(rendered))


def _size(value: object) -> int:
    """How much room it takes in a command, roughly."""
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(_size, value))
    return len(value) if isinstance(value, str) else 1


def _word(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            msg = "a value holds a NUL character, which no command line can carry"
            raise ValueError(msg)
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    kind = "a list must stand alone as a word" if isinstance(value, (list, tuple)) else "only text and numbers can"
    msg = f"a {type(value).__name__} cannot be put into a word: {kind}"
    raise ValueError(msg)
