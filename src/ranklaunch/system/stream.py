"""Connected socket on the loop: sending never blocks, received bytes are passed on as they arrive, the end is reported once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from ranklaunch.system.loop import Loop

READ = 64 * 1024
MOST_QUEUED = 1024 * 1024  # bytes queued for a peer that does not read


class Stream:
    """Connection.

    on_data: called with each received piece. on_end: called once when the connection has ended, with the error, or None if the
    other side or finish() closed it; not called after close(). most: limit of bytes queued for the other side; 0 for MOST_QUEUED.
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
        self._waiting = False  # True while the socket takes no more bytes
        self._why: OSError | None = None  # error of a failed send, kept until all received bytes are read
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
            self._end(OSError(errno.ENOBUFS, f"it does not read from its connection: {len(self._queue)} bytes wait for it"))

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
            # The last bytes from the other side are read first: they may contain the reason.
            self._queue.clear()
            self._why = self._why or error  # the socket reports an error only once
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
    """Let the kernel detect a lost host, after lost_after_s. The other kernel also answers for a stopped process, or one that waits
    for a dead file system: such a process does not count as lost."""
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
        except (AttributeError, OSError):  # missing in some sandboxes; heartbeats of the process are watched too
            pass
