"""Files written by ranks, during reading: the file with the latest write, and the end of each.

A file stays open after its first read. If somebody removes or moves the file, reading goes on: its rank still writes there.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator

from ranklaunch.output.pipe import TAIL
from ranklaunch.system import disk

AT_ONCE_NS = 250_000_000
HELD_SHARE = 4  # of the descriptors that a process may have, the part that files of ranks may keep open


class Files:
    """Files by their paths. on_gone: is told whenever one is read that has lost its path."""

    def __init__(self, on_gone: Callable[[str], None]) -> None:
        self._fds: dict[str, int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // HELD_SHARE
        self._on_gone = on_gone

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Raises NotRegularError and OSError."""
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
        """At most TAIL bytes at the end of what is behind `begin`."""
        try:
            with self.opened(path) as fd:
                return os.pread(fd, TAIL, max(begin, os.fstat(fd).st_size - TAIL))
        except (OSError, disk.NotRegularError):
            return b""

    def order(self, path: str) -> tuple[int, str]:
        """Return the key for sorting by last write. Of two files written at once, a rank's stderr.log tells more: the program's
        earlier output may be late in the other one, if passed on by tee."""
        return self.written_at(path) - AT_ONCE_NS * path.endswith("stdout.log"), path

    def written_at(self, path: str) -> int:
        """In nanoseconds."""
        state = self._state(path)
        return state.st_mtime_ns if state else 0

    def size(self, path: str) -> int:
        state = self._state(path)
        return state.st_size if state else 0

    def sizes(self) -> dict[str, int]:
        return {path: os.fstat(fd).st_size for path, fd in self._fds.items()}

    def close(self) -> None:
        self._most = 0  # what is read from now on does not stay open
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _state(self, path: str) -> os.stat_result | None:
        try:
            with self.opened(path) as fd:
                return os.fstat(fd)
        except (OSError, disk.NotRegularError):
            return None

    def _held(self, path: str) -> int | None:
        """None where there is none, or another file has its path."""
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
