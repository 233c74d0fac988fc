"""Arrival times of each part of the logs in a folder, in a file beside them: `ranklaunch logs` orders lines by these times."""

from __future__ import annotations

import os
from collections.abc import Callable

from ranklaunch.system import disk
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import folders

FLUSH_S = 0.25  # for so long are times kept in memory
GRAIN_S, COARSE_S = 0.001, 0.01  # what a log grows by in this time is one part of it; the second while there are
MOST_PARTS = 250  # more than so many in FLUSH_S
ENDED = -1  # in place of a descriptor


class Times:
    """File with the arrival times of the logs in a folder. If it cannot be written, it ends early,
    and nothing else changes.

    wall: turns seconds of the loop's clock into seconds since 1970. on_trouble: reports that
    something else is in the file's place.
    """

    def __init__(self, folder: str, node: int, loop: Loop, wall: Callable[[float], float], on_trouble: Callable[[str], None]) -> None:
        self._path = folders.times(folder, node)
        self._folder = folder
        self._loop = loop
        self._wall = wall
        self._on_trouble = on_trouble
        self._fd: int | None = None
        self._last: list[list[float] | None] = []  # of each log, its newest part that has not been written yet
        self._parts: list[list[float]] = []  # [log, end, when its first byte came]
        self._grain_s = GRAIN_S
        self._new = b""  # names that have not been written yet

    def of(self, path: str, fd: int) -> Callable[[int, float], None] | None:
        """Return a function that notes a part of a log: its bytes, and when it came. None for a
        log in another folder."""
        folder, name = os.path.split(path)
        if folder != self._folder or "\n" in name:
            return None
        log, end = len(self._last), os.fstat(fd).st_size  # an earlier start may have written to it
        self._last.append(None)
        self._new += b"f %d %s\n" % (log, os.fsencode(name))

        def note(size: int, at: float) -> None:
            nonlocal end
            end += size
            last = self._last[log]
            if last and at - last[2] < self._grain_s:
                last[1] = end
                return
            if not self._parts:
                self._loop.after(FLUSH_S, self._write)
            self._last[log] = last = [log, end, at]
            self._parts.append(last)

        return note

    def close(self) -> None:
        self._write()
        self._end()

    def _write(self) -> None:
        parts, self._parts = self._parts, []
        for log, _, _ in parts:
            self._last[int(log)] = None
        if not parts or self._fd == ENDED:
            return
        self._grain_s = COARSE_S if len(parts) > MOST_PARTS else GRAIN_S
        began = self._wall(0.0)
        names, self._new = self._new, b""
        lines = names + b"".join([b"%d %d %d\n" % (log, end, (began + at) * 1e6) for log, end, at in parts])
        try:
            self._fd = disk.append(self._path) if self._fd is None else self._fd
            whole = os.write(self._fd, lines) == len(lines)
        except OSError:  # a full disk is reported with the log that fails first
            whole = False
        except disk.NotRegularError as error:
            self._on_trouble(f"{self._path} is {error.kind}, not a file: when lines came is not kept")
            whole = False
        if not whole:
            self._end()

    def _end(self) -> None:
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = ENDED
