"""A connected socket on the loop: bytes go out without ever blocking, bytes come in as they arrive, and the end is reported once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from ranklaunch.system.loop import Loop

READ = 64 * 1024
MOST_QUEUED = 1024 * 1024  # bytes kept for a reader that takes nothing


class Stream:
    """Connection.

    on_data: called with each piece. on_end: called once when the connection is over, with the error as its cause, or None
    if the other side or finish() closed the connection; not called after close(). most: bytes waiting for the other side,
    at most; 0: MOST_QUEUED.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        on_data: Callable[[bytes], object],
        on_end: Callable[[OSError | None], object],
        most: int = 0,
    ) -> None:
        self.closed = False
        self._most = most or MOST_QUEUED
        self._is_finishing = False
        self._sock = sock
        self._loop = loop
        self._on_data = on_data
        self._on_end = on_end
        self._queue = bytearray()
        self._waiting = False  # for the socket to take more
        self._why: OSError | None = None  # it is over, where that is known before all has been read
        sock.setblocking(False)
        loop.on_readable(sock.fileno(), self._read)

    @property
    def pending(self) -> int:
        return len(self._queue)

    def send(self, data: bytes) -> None:
        if self.closed:
            return
        self._queue += data
        if not self._waiting:
            self._write()
        if len(self._queue) > self._most:
            self._end(OSError(errno.ENOBUFS, f"it does not take what is sent: {len(self._queue)} bytes wait for it"))

    def finish(self) -> None:
        """Close the connection as soon as everything has been sent."""
        self._is_finishing = True
        if not self._queue and not self._why:
            self._end(None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.forget(self._sock.fileno())
            self._sock.close()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._on_data(data)
        else:
            self._end(self._why)

    def _write(self) -> None:
        try:
            while self._queue:
                del self._queue[: self._sock.send(self._queue)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            # What the other side said before it went is still to be read, and may say why.
            self._queue.clear()
            self._why = self._why or error  # the socket says it once
            self._loop.after(0, self._read_rest)
            return
        if self._is_finishing and not self._queue:
            self._end(None)
            return
        if self._waiting != bool(self._queue):
            self._waiting = bool(self._queue)
            self._loop.change(self._sock.fileno(), self._read, self._write if self._queue else None)

    def _read_rest(self) -> None:
        while not self.closed:
            try:
                data = self._sock.recv(READ)
            except OSError:
                data = b""
            if not data:
                self._end(self._why)
                return
            self._on_data(data)

    def _end(self, error: OSError | None) -> None:
        if not self.closed:
            self.close()
            self._on_end(error)


def keep_alive(sock: socket.socket, lost_after_s: float) -> None:
    """Let the kernel find out if the other host is gone. The kernel there answers for a stopped process, or one waiting for a
    dead file system: only a lost host counts as gone."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    step = max(1, int(lost_after_s / 4))
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", step),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", step),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", int(lost_after_s * 1000)),
    ):
        try:
            sock.setsockopt(level, getattr(socket, name), value)
        except (AttributeError, OSError):  # a sandbox that lacks one: the process's own words are watched too
            pass
