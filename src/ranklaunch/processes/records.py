"""Records of this node's ranks and launchers (ranklaunch.rankside): their folder, made before the processes start, and its reader.

The reader reads a bounded number of files, each once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ranklaunch.ends.model import (
    EXCEPTION,
    EXIT,
    LAUNCHER,
    MOST_RECORD_BYTES,
    MOST_RECORD_FILES,
    RANK,
    Record,
    parse_record,
)
from ranklaunch.env.settings import BELOW, RECORDS_DIR
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.record import write_file
from ranklaunch.system import disk, tree
from ranklaunch.verdict import folders

MOST_NAMES = 4 * MOST_RECORD_FILES  # names read in a folder that may have other files
MOST_TOTAL = 16 * 1024 * 1024  # bytes of all files
ORDER = {LAUNCHER: 0, RANK: 1, EXIT: 2, EXCEPTION: 3}  # order of reading, by kind


class Records:
    """Records in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._known: set[str] = set()  # names of files found
        self._waiting: list[str] = []  # names of files to read, the next one last
        self._files_left = MOST_RECORD_FILES
        self._bytes_left = MOST_TOTAL

    def new(self, seconds: float = 60.0) -> Iterator[Record]:
        """Yield the records that are new since the last call. After `seconds`, the rest waits for the next call."""
        if not self._waiting and self._files_left > 0:
            self._find()
        until = time.monotonic() + seconds
        while self._waiting and self._files_left > 0 and self._bytes_left > 0 and time.monotonic() < until:
            name = self._waiting.pop()
            self._files_left -= 1
            data = disk.own_file(os.path.join(self.folder, name), MOST_RECORD_BYTES)
            self._bytes_left -= len(data or b"")
            record = parse_record(name, data) if data is not None else None
            if record:
                yield record

    def _find(self) -> None:
        new = [name for name in disk.names(self.folder, MOST_NAMES) if name not in self._known]
        new = new[: MOST_NAMES - len(self._known)]
        self._known.update(new)
        kinds = [(ORDER.get(name.partition("-")[0], -1), name) for name in new]
        self._waiting = [name for kind, name in sorted(kinds, reverse=True) if kind >= 0]


# The folder

PRIVATE = 0o700


class Recording:
    """Records folder of one round, and the pointer file by which ranks find the folder if one launcher starts the ranks of all nodes."""

    def __init__(self, round_folder: str) -> None:
        self._round_folder = round_folder
        self._pointer = ""

    def variables(self, plan: Plan) -> dict[str, str]:
        """Make the folder, and return the variable with its path; the value is "" (no records) if the folder cannot be made."""
        value = next((each.value for each in plan.recorders.variables if each.name == RECORDS_DIR), "")
        if not value:
            return {}
        folder = folders.records(self._round_folder, plan.job.node_index)
        try:
            disk.make_folder(os.path.dirname(folder))
            os.makedirs(folder, PRIVATE, exist_ok=True)
            if value.startswith(BELOW):
                self._point(value[len(BELOW) :], os.path.abspath(folder))
        except (OSError, disk.NotRegularError):
            return {RECORDS_DIR: ""}
        return {RECORDS_DIR: value}

    def _point(self, pointers: str, folder: str) -> None:
        os.makedirs(pointers, PRIVATE, exist_ok=True)
        if os.path.islink(pointers) or os.stat(pointers).st_uid != os.geteuid():
            raise PermissionError(pointers)
        process = tree.identify(os.getpid())
        self._pointer = os.path.join(pointers, f"{os.uname().nodename}-{process.pid}-{process.start}")
        write_file(self._pointer, folder, 0o600)

    def close(self) -> None:
        if self._pointer:
            try:
                os.unlink(self._pointer)
                os.rmdir(os.path.dirname(self._pointer))
            except OSError:  # other jobs use the folder too
                pass
