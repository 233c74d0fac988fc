"""Command templates read like the command line that a person would type, and become an argv.

Every `{{ value }}` of a command template is replaced by a mark before the text is split into words and put in afterwards, so a
value stays one word (or a part of the word it stands in) whatever it holds: spaces, quotes, $, newlines. No shell ever sees it.
A list becomes several words and must therefore stand alone.
"""

from __future__ import annotations

import functools
import os.path
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ranklaunch.errors import ConfigError
from ranklaunch.render.simple import NotSimple, Simple

if TYPE_CHECKING:
    from ranklaunch.render.jinja import Jinja

SHIPPED = os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")

_MARK = re.compile("\0([0-9]+)\0")


class Templates:
    """Templates by name, the user's folders before the shipped one."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._values: list[object] = []  # of the render in progress, in the order of their marks
        self._folders = (*folders, SHIPPED)
        self._simple = Simple(self._folders, self._mark)
        self._simple_texts = Simple(self._folders, _word)

    def command(self, name: str, **values: object) -> tuple[str, ...]:
        """The argv that a command template renders to. Raises ConfigError naming the template's file and line."""
        rendered, where = self._rendered(name, values)
        try:
            argv = tuple(word for piece in shlex.split(rendered) for word in self._filled(piece))
        except (ValueError, IndexError) as error:
            msg = f"template {where}: its words cannot be made out: {error}"
            raise ConfigError(msg) from None
        if not argv or not argv[0]:
            msg = f"template {where}: renders to no command"
            raise ConfigError(msg)
        return argv

    def _rendered(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        self._values.clear()
        try:
            return self._simple.render(name, values)
        except NotSimple:
            self._values.clear()
            return self._jinja.command(name, values)

    def text(self, name: str, **values: object) -> str:
        """The text of a file. Every value that is put in must have passed a filter that quotes it for the file's syntax: hostfile,
        sshd, json or yaml. Raises ConfigError naming the template's file and line."""
        return self._jinja.text(name, values)

    def inline(self, source: str, where: str, **values: object) -> str:
        """The text of a one-line template that stands in the setting `where`."""
        try:
            return self._simple_texts.inline(source, values)
        except NotSimple:
            return self._jinja.inline(source, where, values)

    @functools.cached_property
    def _jinja(self) -> Jinja:
        from ranklaunch.render.jinja import Jinja  # large

        return Jinja(self._folders, self._mark, _word)

    def _mark(self, value: object) -> str:
        self._values.append(value)
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
