"""The one Jinja environment. Command templates read like the command line that a person would type and become an argv.

Every `{{ value }}` of a command template is replaced by a mark before the text is split into words and put in afterwards, so a
value stays one word (or a part of the word it stands in) whatever it holds: spaces, quotes, $, newlines. No shell ever sees it.
A list becomes several words and must therefore stand alone.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from jinja2 import (
    ChoiceLoader,
    FileSystemLoader,
    StrictUndefined,
    Template,
    TemplateNotFound,
    TemplateSyntaxError,
    Undefined,
    pass_context,
)
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ranklaunch import quoting
from ranklaunch.errors import ConfigError

SHIPPED = os.path.join(os.path.dirname(__file__), "templates")

T = TypeVar("T")

_MARK = re.compile("\0([0-9]+)\0")


class Templates:
    """Templates by name, the user's folders before the shipped one."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._values: list[object] = []  # of the render in progress, in the order of their marks
        loader = ChoiceLoader([FileSystemLoader([*folders, SHIPPED])])
        self._commands = _environment(loader, self._mark)
        self._texts = _environment(loader, _word)
        self._files = _environment(loader, _quoted)
        self._files.filters.update(quoting.FILTERS)
        self._inline: dict[str, Template] = {}

    def command(self, name: str, **values: object) -> tuple[str, ...]:
        """The argv that a command template renders to. Raises ConfigError naming the template's file and line."""
        self._values.clear()
        rendered, where = _guarded(name, lambda: self._rendered(name, values))
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
        template = self._commands.get_template(name)
        return template.render(**values), template.filename or name

    def text(self, name: str, **values: object) -> str:
        """The text of a file. Every value that is put in must have passed a filter that quotes it for the file's syntax: hostfile,
        sshd, json or yaml. Raises ConfigError naming the template's file and line."""

        def rendered() -> str:
            return self._files.get_template(name).render(**values)

        return _guarded(name, rendered)

    def inline(self, source: str, where: str, **values: object) -> str:
        """The text of a one-line template that stands in the setting `where`."""
        if source not in self._inline:
            self._inline[source] = _guarded(where, lambda: self._texts.from_string(source))
        return _guarded(where, lambda: self._inline[source].render(**values))

    @pass_context  # keeps Jinja from folding constants at compile time, when there is no render to belong to
    def _mark(self, context: Context, value: object) -> str:
        if isinstance(value, Undefined):
            str(value)  # raises, here, where Jinja still knows the line
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


def _environment(loader: ChoiceLoader, finalize: Callable[..., str]) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=loader,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _quoted(value: object) -> str:
    if isinstance(value, Undefined):
        str(value)  # raises
    if not isinstance(value, quoting.Quoted):
        msg = f"{str(value)[:60]!r} is put into a file as it is: pass it through one of the filters {', '.join(quoting.FILTERS)}"
        raise ValueError(msg)
    return value


def _word(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            msg = "a value holds a NUL character, which no command line can carry"
            raise ValueError(msg)
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, Undefined):
        return str(value)  # raises
    kind = "a list must stand alone as a word" if isinstance(value, (list, tuple)) else "only text and numbers can"
    msg = f"a {type(value).__name__} cannot be put into a word: {kind}"
    raise ValueError(msg)


def _guarded(where: str, render: Callable[[], T]) -> T:
    try:
        return render()
    except TemplateNotFound as error:
        msg = f"template {error.name}: not found (folders of RANKLAUNCH_TEMPLATES are searched first, then ranklaunch's own)"
        raise ConfigError(msg) from None
    except TemplateSyntaxError as error:
        msg = f"template {error.filename or where}, line {error.lineno}: {error.message}"
        raise ConfigError(msg) from None
    except Exception as error:  # whatever an expression in a template can raise: it is the template author's
        msg = f"template {_place(where, error.__traceback__)}: {str(error) or type(error).__name__}"
        raise ConfigError(msg) from None


def _place(where: str, traceback: TracebackType | None) -> str:
    """File and line of the innermost frame that is a template: Jinja maps its frames back to template lines."""
    place = where
    while traceback:
        code = traceback.tb_frame.f_code
        if "__jinja_template__" in traceback.tb_frame.f_globals or code.co_filename.endswith(".j2"):
            name = where if code.co_filename.startswith("<") else code.co_filename
            place = f"{name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
