"""Reads what processes of this node recorded of themselves (ranklaunch.rankside): a bounded number of files, each once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ranklaunch.ends import records
from ranklaunch.ends.records import MOST_BYTES, MOST_FILES, Record
from ranklaunch.system import disk

MOST_NAMES = 4 * MOST_FILES  # that are looked at, in a folder with other files in it
MOST_TOTAL = 16 * 1024 * 1024  # bytes of all files
ORDER = {records.LAUNCHER: 0, records.RANK: 1, records.EXIT: 2, records.EXCEPTION: 3}  # in which they are read


class Records:
    """The records in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._known: set[str] = set()  # names
        self._waiting: list[str] = []  # known names whose files are to be read, the next one last
        self._left = MOST_FILES
        self._bytes_left = MOST_TOTAL

    def new(self, seconds: float = 60.0) -> Iterator[Record]:
        """Yield records that were not there the last time. What is left when so much time is over comes the next time."""
        if not self._waiting and self._left > 0:
            self._find()
        until = time.monotonic() + seconds
        while self._waiting and self._left > 0 and self._bytes_left > 0 and time.monotonic() < until:
            name = self._waiting.pop()
            self._left -= 1
            data = disk.own_file(os.path.join(self.folder, name), MOST_BYTES)
            self._bytes_left -= len(data or b"")
            record = records.parse(name, data) if data is not None else None
            if record:
                yield record

    def _find(self) -> None:
        new = [name for name in disk.names(self.folder, MOST_NAMES) if name not in self._known]
        new = new[: MOST_NAMES - len(self._known)]
        self._known.update(new)
        kinds = [(ORDER.get(name.partition("-")[0], -1), name) for name in new]
        self._waiting = [name for kind, name in sorted(kinds, reverse=True) if kind >= 0]
