"""Files of ranks, during reading: their ends, sizes and times of the last write.

A file stays open after its first read. After a removal or move of the path, reading goes on, because the rank still writes there.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator

from ranklaunch.output.pipe import TAIL
from ranklaunch.system import disk

AT_ONCE_NS = 250_000_000  # writes of two files within this time count as simultaneous
HELD_SHARE = 4  # files of ranks may keep 1/4 of the process's descriptors open


class Files:
    """Open files by their paths. on_gone: called when a file without its path is read."""

    def __init__(self, on_gone: Callable[[str], None]) -> None:
        self._fds: dict[str, int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // HELD_SHARE
        self._on_gone = on_gone

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Give the descriptor of a file. Raises NotRegularError and OSError."""
        fd = self._held(path)
        if fd is None:
            fd = disk.own(path)
            if len(self._fds) < self._most:
                self._fds[path] = fd
        try:
            yield fd
        finally:
            if self._fds.get(path) != fd:
                os.close(fd)

    def end_of(self, path: str, begin: int = 0) -> bytes:
        """Return the last bytes of a file behind offset `begin`, at most TAIL."""
        try:
            with self.opened(path) as fd:
                return os.pread(fd, TAIL, max(begin, os.fstat(fd).st_size - TAIL))
        except (OSError, disk.NotRegularError):
            return b""

    def order(self, path: str) -> tuple[int, str]:
        """Return the sort key for the order of last writes. If two files were written at the same time, stderr.log counts as the later
        one: earlier output of the program may reach stdout.log late, for example through tee."""
        return self.written_at(path) - AT_ONCE_NS * path.endswith("stdout.log"), path

    def written_at(self, path: str) -> int:
        """Return the time of the last write, in nanoseconds; 0 if unknown."""
        state = self._state(path)
        return state.st_mtime_ns if state else 0

    def size(self, path: str) -> int:
        state = self._state(path)
        return state.st_size if state else 0

    def sizes(self) -> dict[str, int]:
        return {path: os.fstat(fd).st_size for path, fd in self._fds.items()}

    def close(self) -> None:
        self._most = 0  # files that are read later do not stay open
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _state(self, path: str) -> os.stat_result | None:
        try:
            with self.opened(path) as fd:
                return os.fstat(fd)
        except (OSError, disk.NotRegularError):
            return None

    def _held(self, path: str) -> int | None:
        """Return the open descriptor of a path; None if there is none, or if another file has the path now."""
        fd = self._fds.get(path)
        if fd is None:
            return None
        try:
            same = os.path.samestat(os.stat(path), os.fstat(fd))
        except OSError:
            self._on_gone(path)
            return fd
        if not same:
            os.close(self._fds.pop(path))
        return fd if same else None
