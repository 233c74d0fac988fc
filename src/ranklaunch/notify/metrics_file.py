"""The file of metrics, which may lie on a mount that does not answer: the job goes on, and what it has to say then is left out."""

from __future__ import annotations

from collections.abc import Callable

from ranklaunch.system import disk
from ranklaunch.system.bounded import Apart
from ranklaunch.system.loop import Loop

LAST_S = 2.0  # for what is written last


class MetricsFile:
    """say: a line for people, of each trouble once until it is over."""

    def __init__(self, path: str, loop: Loop, say: Callable[[str], None]) -> None:
        self._path = path
        self._loop = loop
        self._say = say
        self._writing: Apart | None = None
        self._troubled = False

    def write(self, text: str, *, last: bool) -> None:
        """last: nobody will be there to see how it ends."""
        if self._writing:
            self.trouble(f"{self._path}: its file system does not answer")
            if not last:
                return
            self._end(0.0)
        try:
            self._writing = Apart(lambda: _written(self._path, text))
        except OSError as error:  # no process or descriptor left
            self.trouble(f"{self._path}: {error.strerror}")
            return
        self._loop.on_readable(self._writing.readable, lambda: self._hear(LAST_S))
        if last:
            self._hear(LAST_S)

    def trouble(self, text: str) -> None:
        if not self._troubled:
            self._say(f"metrics: {text}")
        self._troubled = True

    def _hear(self, seconds: float) -> None:
        told = self._end(seconds)
        if told is None:
            self.trouble(f"{self._path}: its file system does not answer")
        elif told:
            self.trouble(told.decode())
        else:
            self._troubled = False

    def _end(self, seconds: float) -> bytes | None:
        assert self._writing
        writing, self._writing = self._writing, None
        self._loop.forget(writing.readable)
        return writing.answer(seconds)


def _written(path: str, text: str) -> bytes:
    """Why not, else nothing."""
    try:
        disk.write(path, text.encode(), 0o644)
    except (OSError, disk.NotRegularError) as error:
        return f"{type(error).__name__}: {error}".encode()
    return b""
