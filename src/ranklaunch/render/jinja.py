"""Jinja environments for templates. Errors name the file and line of the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from jinja2 import (
    ChoiceLoader,
    FileSystemLoader,
    PrefixLoader,
    StrictUndefined,
    Template,
    TemplateNotFound,
    TemplateSyntaxError,
    Undefined,
    pass_context,
)
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ranklaunch.errors import ConfigError
from ranklaunch.render import OURS, quoting

T = TypeVar("T")
_MOST_SAID = 1000  # characters: an error may quote a value
_INCLUDE_LINE = re.compile(r"(\{%[-+]?\s*include\b[^%]*[^%+-])%\}(?=[\r\n])")


class Jinja:
    """Templates by name, from the first folder that has the name. mark: returns the text for a value in a command. word: the same for a
    value in a one-line text."""

    def __init__(self, folders: Iterable[str], mark: Callable[[object], str], word: Callable[[object], str]) -> None:
        all_folders = list(folders)
        self._ours = FileSystemLoader(all_folders[-1])
        by_name = FileSystemLoader(all_folders, encoding="utf-8-sig")  # sig: skips the byte order mark that some editors write
        loader = ChoiceLoader([PrefixLoader({OURS.rstrip("/"): self._ours}), by_name])

        @pass_context  # keeps Jinja from folding constants at compile time, when no render is in progress
        def marked(context: Context, value: object) -> str:
            return mark(_defined(value))

        self._commands = _environment(loader, marked, SeparateIncludes)
        self._texts = _environment(loader, lambda value: word(_defined(value)), SeparateIncludes)
        self._files = _environment(loader, _quoted)
        self._files.filters.update(quoting.FILTERS)
        self._inline: dict[str, Template] = {}

    @property
    def shipped(self) -> tuple[str, ...]:
        """Names of the templates in the last folder, ranklaunch's own."""
        return tuple(name for name in self._ours.list_templates() if name.endswith(".j2"))

    def command(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        """Return (text, path of the template) of a command."""

        def rendered() -> tuple[str, str]:
            template = self._commands.get_template(name)
            return template.render(**values), template.filename or name

        return _guarded(name, rendered)

    def text(self, name: str, values: Mapping[str, object]) -> str:
        return _guarded(name, lambda: self._files.get_template(name).render(**values))

    def words(self, source: str, where: str, values: Mapping[str, object]) -> str:
        """Return the text of a command from a template's source. where: the setting with the source."""
        return _guarded(where, lambda: self._commands.from_string(source).render(**values))

    def inline(self, source: str, where: str, values: Mapping[str, object]) -> str:
        if source not in self._inline:
            self._inline[source] = _guarded(where, lambda: self._texts.from_string(source))
        return _guarded(where, lambda: self._inline[source].render(**values))


class SeparateIncludes(Extension):
    """Extension that keeps the line end behind an include. trim_blocks would remove it, and join words of two lines."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _INCLUDE_LINE.sub(r"\1+%}", source)


def _environment(loader: ChoiceLoader, finalize: Callable[..., str], *extensions: type[Extension]) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=loader,
        extensions=extensions,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _defined(value: object) -> object:
    if isinstance(value, Undefined):
        str(value)  # raises here, while Jinja still knows the line
    return value


def _quoted(value: object) -> str:
    _defined(value)
    if not isinstance(value, quoting.Quoted):
        msg = f"{str(value)[:60]!r} would be written to a file unquoted: pass it through one of the filters {', '.join(quoting.FILTERS)}"
        raise ValueError(msg)
    return value


def _guarded(where: str, render: Callable[[], T]) -> T:
    try:
        return render()
    except TemplateNotFound as error:
        msg = f"template {error.name}: not found (folders of --templates, RANKLAUNCH_TEMPLATES, are searched first, then ranklaunch's own)"
        raise ConfigError(msg) from None
    except TemplateSyntaxError as error:
        msg = f"template {error.filename or where}, line {error.lineno}: {(error.message or '')[:_MOST_SAID]}"
        raise ConfigError(msg) from None
    except RecursionError:
        hint = f'; {{% include "{OURS}{where}" %}} is ranklaunch\'s own of this name' if where.endswith(".j2") else ""
        msg = f"template {where}: it is nested too deeply, or includes or calls itself without end{hint}"
        raise ConfigError(msg) from None
    except MemoryError:  # handled by the caller that set the limit
        raise
    except Exception as error:  # any exception of an expression in the template
        msg = f"template {_place(where, error.__traceback__)}: {str(error)[:_MOST_SAID] or type(error).__name__}"
        raise ConfigError(msg) from None


def _place(where: str, traceback: TracebackType | None) -> str:
    """Return file and line of the innermost frame in a template. Jinja maps its frames to lines of templates."""
    place = where
    while traceback:
        code = traceback.tb_frame.f_code
        if "__jinja_template__" in traceback.tb_frame.f_globals or code.co_filename.endswith(".j2"):
            name = where if code.co_filename.startswith("<") else code.co_filename
            place = f"{name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
