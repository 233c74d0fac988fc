"""A folder of evidence: for this account alone, and no larger than it may be."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from typing import Any

from ranklaunch.errors import number
from ranklaunch.system import disk

MOST_BYTES = 50 * 1024 * 1024  # of a node, in all that is kept
KEPT_LAST = 5  # of many times that evidence is taken, beside the first
_BLOCK = 1 << 20


class Folder:
    """left: bytes that may still be written. failed: why something could not be, "" as long as nothing has failed."""

    def __init__(self, path: str, left: int = MOST_BYTES) -> None:
        self.path = path
        self.left = left
        self.written = 0
        self.failed = ""

    def make(self) -> None:
        """Raises OSError."""
        parent = os.path.dirname(self.path)
        for folder in (os.path.dirname(parent), parent, self.path):
            with contextlib.suppress(FileExistsError):
                os.makedirs(folder, 0o700)
            _make_private(folder)

    def write(self, name: str, data: bytes) -> None:
        """As much of it as there is room for."""
        data = data[: self.left]
        if data:
            try:
                disk.write(os.path.join(self.path, name), data, 0o600)
            except (OSError, disk.NotRegularError) as error:
                self.failed = self.failed or reason(error)
            else:
                self._count(len(data))

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=1).encode() + b"\n")

    def copy(self, source: str, name: str, begin: int = 0) -> bool:
        """From there on; whether there was anything. What is no regular file is left alone."""
        try:
            fd = disk.own(source)
        except (OSError, disk.NotRegularError):
            return False
        with open(fd, "rb") as file:
            file.seek(begin)
            data = file.read(self.left)
        self.write(name, data)
        return bool(data)

    def _count(self, size: int) -> None:
        self.left -= size
        self.written += size


def reason(error: Exception) -> str:
    """In the system's words, where it has some."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _make_private(folder: str) -> None:
    """One that the umask or a former start has made otherwise. Some mounts, of object stores above all, know no modes but their own. Raises
    OSError for another account's."""
    try:
        os.chmod(folder, 0o700)
    except OSError:
        if os.stat(folder).st_uid != os.geteuid():
            raise


def room_in(parent: str) -> int:
    """Bytes that may still be written below it, once what is not kept is removed."""
    taken = sorted(found for found in map(number, _names(parent)) if found is not None)
    for each in taken[1:-KEPT_LAST]:
        shutil.rmtree(os.path.join(parent, str(each)), ignore_errors=True)
    return max(0, MOST_BYTES - _size(parent))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(path, name))
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
