"""The read-only view of files from which a plan is made. ranklaunch.system.disk is the view of the real disk."""

from __future__ import annotations

import functools
import posixpath
from typing import Protocol, TypeVar

T = TypeVar("T")

MOST_BYTES = 16 * 1024 * 1024  # of a file that describes a job
BYTE_ORDER_MARK = "\ufeff"  # at the beginning of a text, by some editors


class Files(Protocol):
    """Read-only view of files. Paths are the container's; a view may look them up below another root. A missing file raises nothing."""

    def text(self, path: str, limit: int) -> str | None:
        """Return the file's text without the byte order mark of some editors, or None if unreadable. Raises ValueError if the file
        is larger than limit bytes or not UTF-8."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def real(self, path: str) -> str:
        """Return the path on this machine's disk of a path in the container."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder, () if the folder cannot be listed."""


def join(folder: str, name: str) -> str:
    """Return a path below a folder, with / on every system: the path is the container's, not this machine's."""
    return f"{folder.rstrip('/')}/{name}" if folder else name


def absolute(path: str, cwd: str) -> str:
    return posixpath.normpath(path if path.startswith("/") else join(cwd, path))


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def text_of(files: Files, path: str, limit: int = MOST_BYTES) -> str:
    """Return the text of a file; "" for a file that cannot be read, is larger than limit bytes, or is not text."""
    try:
        return files.text(path, limit) or ""
    except ValueError:
        return ""


def own_program(name: str) -> str:
    """Return the path of a script of ranklaunch that runs under the user's interpreter."""
    return posixpath.join(posixpath.dirname(__file__), "programs", name)


def rankside() -> str:
    """Return the folder that comes first in the ranks' PYTHONPATH."""
    return posixpath.join(posixpath.dirname(__file__), "rankside", "path")


def which(program: str, search: str, files: Files) -> str | None:
    """Return the full path of a program in the folders of a PATH-like string; None if no folder of the view has the program."""
    for folder in search.split(":"):
        if folder.startswith("/") and files.exists(join(folder, program)):
            return join(folder, program)
    return None


class Unchanged:
    """View that asks another view once for each path, for many plans of one moment."""

    def __init__(self, files: Files) -> None:
        self.exists, self.is_dir = functools.cache(files.exists), functools.cache(files.is_dir)
        self.real, self.names = functools.cache(files.real), functools.cache(files.names)
        self.text = functools.cache(files.text)  # a ValueError is not cached


class Noted:
    """View of files with a record of the existing paths."""

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
    """View without any file, for a plan from an environment alone."""

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
