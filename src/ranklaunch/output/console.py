"""Console: a descriptor that may be slow, closed or a file, but never blocks the supervisor.

Bytes wait in a bounded queue. While the queue is full (`full`), the readers of the ranks' pipes pause, so memory stays bounded and the
ranks are slowed no more than necessary.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import select
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ranklaunch.showing import printable
from ranklaunch.system.loop import Loop

HIGH = 4 * 1024 * 1024
LOW = HIGH - 512 * 1024  # little below HIGH, so a paused reader waits only until these bytes are written
# A pipe that polls as writable takes this many bytes without blocking, even with several writers (Linux: one free page).
SAFE = 4096
MOST = 1024 * 1024
MOST_PIECES = 64
LEAST_FLUSH_S = 1.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NEWLINE = 0x0A
PLAIN = "\x1b[0m"
OF_RANKS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # colours
OF_WORDS = {"failed": ";31", "a defect": ";31", "succeeded": ";32", "warning": ";33", "stopp": ";33"}
FLUSH_S = 10.0  # at the end: wait for a console that takes no more bytes


class Console:
    """Queue of bytes for one descriptor. on_room: called when a full queue has room again. lost: lines
    dropped because of a full disk."""

    def __init__(self, fd: int, loop: Loop, on_room: Callable[[], object] | None = None) -> None:
        self.closed = False
        self.full = False
        self.lost = 0
        self._whole = True  # True if the written bytes end with a complete line
        self._mended = False  # True if the queue begins with a line end that was added after a lost line
        self._loop = loop
        self.on_room = on_room
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._waiting = False
        self._fd, self._most, self._shared = _open(fd)
        # A terminal polls as writable if it takes a single byte; a longer blocking write would wait.
        self._terminal = self._shared and os.isatty(self._fd) and os.get_blocking(self._fd)

    def write(self, *pieces: bytes | memoryview) -> None:
        """Queue all pieces, and write as much as the descriptor takes now."""
        if self.closed or not any(pieces):
            return
        if not self._queue and not self._whole and self.lost:
            self._mended = True
            pieces = (b"\n", *pieces)
        for piece in pieces:
            self._queue.append(memoryview(piece))
            self._size += len(piece)
        if not self._waiting:
            self._push()
        if self._size > HIGH:  # stays full until the size is below LOW
            self.full = True

    @property
    def pending(self) -> int:
        """Return the bytes that the reader has not taken yet."""
        return self._size

    def has_less(self, size: int) -> bool:
        """Return True once fewer bytes than this are pending."""
        return self._size < size

    def give_up(self) -> int:
        """Drop the pending bytes. Return the number of their lines."""
        lines = self._lines()
        self._close()
        return lines

    def _lines(self) -> int:
        return sum(bytes(data).count(b"\n") for data in self._queue)

    def _push(self) -> None:
        """Write as much as the descriptor takes now, and wait for it with the rest."""
        while self._queue and (not self._shared or _writable(self._fd)):
            pieces = self._next()
            try:
                written = self._write(pieces)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in NO_ROOM:  # the reader is gone: the ranks go on, and their files have all lines
                    self._close()
                    return
                self._lose()
                break
            self._drop(written)
            self._mended = False
            self._whole = _at(pieces, written - 1) == NEWLINE
        self._wait(bool(self._queue))
        if self.full and self._size < LOW:
            self._has_room()

    def _write(self, pieces: list[memoryview]) -> int:
        if not self._terminal:
            return os.writev(self._fd, pieces)
        os.set_blocking(self._fd, False)
        try:
            return os.writev(self._fd, pieces)
        finally:
            os.set_blocking(self._fd, True)  # other processes share this descriptor

    def _lose(self) -> None:
        """Drop the queue because the disk is full. Later lines may find room."""
        self.lost += self._lines() - self._mended
        self._mended = False
        self._queue.clear()
        self._size = 0

    def _next(self) -> list[memoryview]:
        """Return pending pieces for one write."""
        pieces, room = [], self._most
        for piece in itertools.islice(self._queue, MOST_PIECES):
            pieces.append(piece[:room])
            room -= len(pieces[-1])
            if not room:
                break
        return pieces

    def _drop(self, size: int) -> None:
        """Drop written bytes from the queue."""
        self._size -= size
        while self._queue and size >= len(self._queue[0]):
            size -= len(self._queue.popleft())
        if size:
            self._queue[0] = self._queue[0][size:]

    def _wait(self, wanted: bool) -> None:
        if wanted and not self._waiting:
            self._loop.on_writable(self._fd, self._push)
        elif not wanted and self._waiting:
            self._loop.forget(self._fd)
        self._waiting = wanted

    def _close(self) -> None:
        self.closed = True
        self._queue.clear()
        self._size = 0
        self._wait(False)
        if self.full:
            self._has_room()

    def _has_room(self) -> None:
        self.full = False
        if self.on_room:
            self.on_room()


class Terminal:
    """Both consoles of the container, during its whole life: stdout for lines of ranks, stderr for
    lines of ranklaunch. env: NO_COLOR and TERM decide about colours."""

    def __init__(self, loop: Loop, env: Mapping[str, str]) -> None:
        self.out = Console(1, loop)
        self._own = Console(2, loop)
        self._loop = loop
        self._flush_by = math.inf
        colours = colourful(env)
        self._paints, self._paints_own = colours and os.isatty(1), colours and os.isatty(2)

    def say(self, text: str, lines: Iterable[bytes] = ()) -> None:
        """Print a message of ranklaunch. lines: quoted below it."""
        quoted = (line.decode(errors="backslashreplace") for line in lines)
        texts = [f"ranklaunch: {text}".split("\n")[0], *text.split("\n")[1:], *(f"  {line}" for line in quoted)]
        first, *others = map(printable, texts)
        shown = [_painted(first, text) if self._paints_own else first, *others]
        self._own.write("".join(f"{line}\n" for line in shown).encode(errors="backslashreplace"))

    def painted(self, tag: str, rank: int | None) -> str:
        """Return the tag of a rank or another process, coloured if stdout is a terminal."""
        return f"\x1b[{OF_RANKS[(rank or 0) % len(OF_RANKS)]}m{tag}{PLAIN}" if tag and self._paints else tag

    def hurry(self, seconds: float) -> None:
        """Limit the final flush of both consoles to the given seconds, after a stop request."""
        self._flush_by = min(self._flush_by, self._loop.clock() + seconds)

    @property
    def late(self) -> bool:
        """True after the limit that hurry() set."""
        return self._loop.clock() > self._flush_by

    def flush_out(self) -> int:
        """Write the rest to stdout. Return the number of lines that were not shown."""
        return self._flush(self.out)

    def flush_own(self) -> None:
        self._flush(self._own)

    def _flush(self, console: Console) -> int:
        """Write the pending bytes as long as the reader takes some, at most until the limit of
        hurry(). Return the number of dropped lines."""
        while console.pending:
            before, now = console.pending, self._loop.clock()
            deadline = min(now + FLUSH_S, max(self._flush_by, now + LEAST_FLUSH_S))
            self._loop.run_until(partial(console.has_less, before), deadline)
            if console.pending == before or self._loop.clock() > self._flush_by + LEAST_FLUSH_S:
                break
        return console.give_up() if console.pending else 0


def _painted(line: str, text: str) -> str:
    """Return a line of ranklaunch in bold, with a colour by its first word."""
    colour = next((colour for word, colour in OF_WORDS.items() if text.startswith(word)), "")
    return f"\x1b[1{colour}m{line}{PLAIN}"


def colourful(env: Mapping[str, str]) -> bool:
    """Return True if colours are wanted on a terminal."""
    return not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb"


def _open(fd: int) -> tuple[int, int, bool]:
    """Return (descriptor, most bytes of one write, True for a shared descriptor that may block).

    A newly opened descriptor can be non-blocking without an effect on other processes. If opening is not allowed (another user's pipe, a
    socket), the shared one is used: small writes after a poll do not block either.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return os.dup(fd), MOST, False  # a file never blocks; a new descriptor would start at offset 0
        private = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return fd, SAFE, True
    return private, MOST, False


def _at(pieces: list[memoryview], place: int) -> int:
    """Return the byte at an offset in all pieces together."""
    for piece in pieces:
        if place < len(piece):
            return piece[place]
        place -= len(piece)
    return NEWLINE


def _writable(fd: int) -> bool:
    poll = select.poll()
    try:
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(0))  # also for POLLERR: the write then raises the error
    except (OSError, ValueError):
        return True
