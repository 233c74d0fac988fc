"""Folders of evidence and of flight recorders: private to this account, and of limited size."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any

from ranklaunch.errors import ConfigError, number
from ranklaunch.plan.model import Recorders
from ranklaunch.supervise.record import Record, bequeath, make_private
from ranklaunch.system import disk

MOST_BYTES = 50 * 1024 * 1024  # of all kept evidence of a node
KEPT_LAST = 5  # newest collections that are kept, besides the first


class Folder:
    """Folder for one collection. left: bytes that may still be written. failed: reason for the first unwritten file, "" for none."""

    def __init__(self, path: str, left: int = MOST_BYTES) -> None:
        self.path = path
        self.left = left
        self.written = 0
        self.failed = ""

    def make(self) -> None:
        """Make the folder and its parents. Raises OSError."""
        parent = os.path.dirname(self.path)
        for folder in (os.path.dirname(parent), parent, self.path):
            with contextlib.suppress(FileExistsError):
                os.makedirs(folder, 0o700)
            _make_private(folder)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, cut at the bytes that are left."""
        data = data[: self.left]
        if not data:
            return
        try:
            disk.write(os.path.join(self.path, name), data, 0o600)
        except (OSError, disk.NotRegularError) as error:
            self.failed = self.failed or reason(error)
        else:
            self.left -= len(data)
            self.written += len(data)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=1).encode() + b"\n")

    def copy(self, source: str, name: str) -> bool:
        """Copy a regular file. Return False for an empty file or none."""
        try:
            fd = disk.own(source)
        except (OSError, disk.NotRegularError):
            return False
        with open(fd, "rb") as file:
            data = file.read(self.left)
        self.write(name, data)
        return bool(data)


def reason(error: Exception) -> str:
    """Return the system's text for an error, or the error's own."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _make_private(folder: str) -> None:
    """Make a folder private, whatever mode the umask or an earlier start gave it. Mounts with fixed modes (object stores) are accepted.
    Raises OSError for another account's folder."""
    try:
        os.chmod(folder, 0o700)
    except OSError:
        if os.stat(folder).st_uid != os.geteuid():
            raise


def room_in(parent: str) -> int:
    """Remove older collections below a folder. Return the number of bytes that may still be written."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(parent)
    collections = sorted(each for each in map(number, names) if each is not None)
    for each in collections[1:-KEPT_LAST]:
        shutil.rmtree(os.path.join(parent, str(each)), ignore_errors=True)
    return max(0, MOST_BYTES - _size(parent))


def _size(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(path, name))
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


@contextlib.contextmanager
def kept(recorders: Recorders, record: Record) -> Iterator[dict[str, str]]:
    """Make the folder for dumps of flight recorders, and remove it at the end.

    Yield the variables for processes. PyTorch ends a rank if its fifo cannot be made, so a fifo is tried first. Without it, the
    variables are left out and the job runs without recorders.
    """
    values = {each.name: each.value for each in recorders.variables}
    without = {name for name, value in values.items() if value.startswith(f"{recorders.folder}/")}
    made = False
    try:
        make_private(recorders.folder)
        made = True
        bequeath("recorders", recorders.folder)
        without = {recorders.fifo} & without
        _try_fifo(values.get(recorders.fifo, ""))
        without = set()
    except (OSError, ConfigError) as error:
        record.event("recorders", without=", ".join(sorted(without)), why=str(error))
    try:
        yield {name: value for name, value in values.items() if name not in without}
    finally:
        if made:
            shutil.rmtree(recorders.folder, ignore_errors=True)


def _try_fifo(stem: str) -> None:
    if stem:
        os.mkfifo(f"{stem}try.pipe", 0o600)
        os.unlink(f"{stem}try.pipe")
