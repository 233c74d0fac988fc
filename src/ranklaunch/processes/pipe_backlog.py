"""Filters (tee, sed) that read a program's output from a pipe, and outlive the program."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable

from ranklaunch.system import tree

READS_S = 2.0  # for a filter to read more of the unread output
PASSES_ON_S = 0.2  # for a filter that has read everything to pass it on and end


class PipeBacklog:
    """Output of an ended program that its filters have not read or passed on yet: a filter may be slower than the program.

    found: True if there are such filters.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.found = False
        self._clock = clock
        self._least: int | None = None  # bytes
        self._since = clock()

    def is_read(self) -> bool:
        """Return True while filters make progress: unread bytes decreased within READS_S; once all is read, within PASSES_ON_S."""
        pipes = [count for count in map(_unread_bytes, tree.descendants(os.getpid())) if count is not None]
        unread = sum(pipes)
        self.found |= bool(pipes)
        if unread and (self._least is None or unread < self._least):
            self._least, self._since = unread, self._clock()
        return bool(pipes) and self._clock() - self._since < (READS_S if unread else PASSES_ON_S)


def _unread_bytes(process: tree.Identity) -> int | None:
    """Return the unread bytes in the pipe at the standard input of a process, None for another kind of input."""
    try:
        path = f"/proc/{process.pid}/fd/0"
        if not os.readlink(path).startswith("pipe:"):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # ended, or another user's process
        return None
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
        return int(count)
    except OSError:
        return None
    finally:
        os.close(fd)
