"""The read-only view of files through which platforms and launchers are read; the disk behind it is in ranklaunch.system.disk."""

from __future__ import annotations

import functools
import posixpath
from typing import Protocol, TypeVar

T = TypeVar("T")

MOST_BYTES = 16 * 1024 * 1024  # of a file that describes a job
BYTE_ORDER_MARK = "\ufeff"  # with which some editors begin a text


class Files(Protocol):
    """Paths are those in the container; a view may put them below another root. No method raises for a file that is not there."""

    def text(self, path: str, limit: int) -> str | None:
        """Return the file's text without the byte order mark of some editors, or None if unreadable. Raises ValueError if the file
        is larger than limit bytes or not UTF-8."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def real(self, path: str) -> str:
        """The path at which the disk has what the container calls by this path."""

    def names(self, path: str) -> tuple[str, ...]:
        """The sorted names in a folder, none where it cannot be listed."""


def join(folder: str, name: str) -> str:
    """A path below a folder, as os.path.join but for the container's paths, whatever system plans."""
    return f"{folder.rstrip('/')}/{name}" if folder else name


def absolute(path: str, cwd: str) -> str:
    return posixpath.normpath(path if path.startswith("/") else join(cwd, path))


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def text_of(files: Files, path: str, limit: int = MOST_BYTES) -> str:
    """Return the text of a file; "" where it cannot be read, is larger than limit bytes, or is no text."""
    try:
        return files.text(path, limit) or ""
    except ValueError:
        return ""


def own_program(name: str) -> str:
    """Path of a program of ours that the user's interpreter runs."""
    return posixpath.join(posixpath.dirname(__file__), "programs", name)


def rankside() -> str:
    """Folder at the front of the ranks' PYTHONPATH."""
    return posixpath.join(posixpath.dirname(__file__), "rankside", "path")


def which(program: str, search: str, files: Files) -> str | None:
    """Full path of a program on a PATH-like search string, as the view sees it."""
    for folder in search.split(":"):
        if folder.startswith("/") and files.exists(join(folder, program)):
            return join(folder, program)
    return None


class Unchanged:
    """A view that asks another one once for each thing, for many plans of one moment."""

    def __init__(self, files: Files) -> None:
        self.exists, self.is_dir = functools.cache(files.exists), functools.cache(files.is_dir)
        self.real, self.names = functools.cache(files.real), functools.cache(files.names)
        self.text = functools.cache(files.text)  # but for what it raises


class Noted:
    """View of files that records the paths that exist."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.found: set[str] = set()
        self.real = files.real

    def text(self, path: str, limit: int) -> str | None:
        return self._note(path, self._files.text(path, limit))

    def exists(self, path: str) -> bool:
        return bool(self._note(path, self._files.exists(path)))

    def is_dir(self, path: str) -> bool:
        return bool(self._note(path, self._files.is_dir(path)))

    def names(self, path: str) -> tuple[str, ...]:
        return self._note(path, self._files.names(path)) or ()

    def _note(self, path: str, result: T) -> T:
        if result:
            self.found.add(path)
        return result


class NoFiles:
    """A view in which no file exists: for planning from an environment alone."""

    def text(self, path: str, limit: int) -> str | None:
        return None

    def exists(self, path: str) -> bool:
        return False

    def is_dir(self, path: str) -> bool:
        return False

    def names(self, path: str) -> tuple[str, ...]:
        return ()

    def real(self, path: str) -> str:
        return path
