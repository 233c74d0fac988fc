"""What reads from a program by a pipe, and is left when that has ended: a tee, a filter."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable

from ranklaunch.system import tree

READS_S = 2.0  # for something to be read of what the program has said
PASSES_ON_S = 0.2  # for what has read all to pass it on, and end


class Unread:
    """Output of a program in a pipe, not yet read or passed on by its leftover processes: a filter may be slower than the
    program was. found: True if there are such filters."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.found = False
        self._clock = clock
        self._least: int | None = None  # bytes
        self._since = clock()

    def is_read(self) -> bool:
        """Return True if unread output became less in the last seconds, or was there a moment ago: its reader may still work on it."""
        pipes = [count for count in map(_unread, tree.descendants(os.getpid())) if count is not None]
        unread = sum(pipes)
        self.found |= bool(pipes)
        if unread and (self._least is None or unread < self._least):
            self._least, self._since = unread, self._clock()
        return bool(pipes) and self._clock() - self._since < (READS_S if unread else PASSES_ON_S)


def _unread(process: tree.Identity) -> int | None:
    """Bytes in the pipe that is its standard input, None where that is no pipe."""
    try:
        path = f"/proc/{process.pid}/fd/0"
        if not os.readlink(path).startswith("pipe:"):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # gone, or another user's
        return None
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
        return int(count)
    except OSError:
        return None
    finally:
        os.close(fd)
