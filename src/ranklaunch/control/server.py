"""Socket of a supervisor: one line of JSON in, one line of JSON out, for processes of the same account alone.

The socket is a file in the attempt's folder, so no port is opened. If the file system has no sockets, as some mounts of object stores, it
is in a private folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from ranklaunch.supervise.record import bequeath
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.system.stream import Stream

MOST_ASKED = 64 * 1024  # bytes of one question
MOST_ANSWERED = 64 * 1024 * 1024  # bytes of an answer that waits for its reader
MOST_GUESTS = 16  # at one time
PATIENCE_S = 10.0  # with one that asks nothing
ANSWER_S = 60.0  # for an answer to come and be taken
HAS_NO_SOCKETS = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EROFS, errno.EIO)

Answer = Callable[[Mapping[str, Any]], None]
Handler = Callable[[Mapping[str, Any], Answer], None]  # the question, and a function that takes the answer, at once or later


class Counter:
    """path: of the socket. handle: answers every question, perhaps with {"error": ...}. Raises OSError if no socket can be made."""

    def __init__(self, folder: str, name: str, loop: Loop, handle: Handler) -> None:
        self._loop = loop
        self._handle = handle
        self._guests: set[Guest] = set()
        self._private = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self.path = self._bound(folder, name)
            self._socket.listen(MOST_GUESTS)
        except OSError:
            self._socket.close()
            raise
        bequeath("asked_in", self._private)
        bequeath("socket", self.path)
        loop.on_readable(self._socket.fileno(), self._welcome)

    @property
    def elsewhere(self) -> bool:
        """True if the socket is not in the folder where it belongs."""
        return bool(self._private)

    def close(self) -> None:
        for guest in list(self._guests):
            guest.leave()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        _remove(self.path)
        self._leave_private()

    def _bound(self, folder: str, name: str) -> str:
        try:
            return _bind(self._socket, folder, name)
        except OSError as error:
            if error.errno not in HAS_NO_SOCKETS:
                raise
        base = "/run" if os.access("/run", os.W_OK) else None
        self._private = tempfile.mkdtemp(prefix="ranklaunch-", dir=base)
        try:
            return _bind(self._socket, self._private, name)
        except OSError:
            self._leave_private()
            raise

    def _leave_private(self) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone, or have more in it
            if self._private:
                os.rmdir(self._private)

    def _welcome(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return
        if len(self._guests) >= MOST_GUESTS or not _is_own(accepted):
            accepted.close()
            return
        self._guests.add(Guest(accepted, self._loop, self._handle, self._guests.discard))


class Guest:
    """A client with one question. gone: is called when the client has left."""

    def __init__(self, connection: socket.socket, loop: Loop, handle: Handler, gone: Callable[[Guest], object]) -> None:
        self._loop = loop
        self._handle = handle
        self._gone = gone
        self._asked = b""
        self._has_asked = self._is_answered = False
        self._timer: Timer = loop.after(PATIENCE_S, self.leave)
        self._stream = Stream(connection, loop, self._take, self._end, MOST_ANSWERED)

    def leave(self) -> None:
        self._stream.close()
        self._end()

    def _end(self, error: OSError | None = None) -> None:
        self._timer.cancel()
        self._gone(self)

    def _take(self, data: bytes) -> None:
        self._asked += data
        if self._has_asked or len(self._asked) > MOST_ASKED:
            self.leave()
        elif b"\n" in self._asked:
            self._ask()

    def _ask(self) -> None:
        self._has_asked = True
        self._timer.cancel()
        self._timer = self._loop.after(ANSWER_S, self.leave)
        try:
            question = json.loads(self._asked)
        except (ValueError, RecursionError):
            question = None
        if isinstance(question, dict):
            self._handle(question, self._tell)
        else:
            self._tell({"error": "expected one line: an object in JSON"})

    def _tell(self, answer: Mapping[str, Any]) -> None:
        """Write the answer at once: the supervisor may do nothing else after this."""
        if not (self._stream.closed or self._is_answered):
            self._is_answered = True
            self._stream.send(json.dumps(answer).encode() + b"\n")
            self._stream.finish()


def _bind(listener: socket.socket, folder: str, name: str) -> str:
    """Bind a socket by way of its folder's descriptor: a socket's path has at most 107 bytes, and a log folder's may have more.

    What a killed start left there is removed; its socket answers nobody."""
    path = os.path.join(folder, name)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    umask = os.umask(0o177)
    try:
        _remove(path)
        listener.bind(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.umask(umask)
        os.close(fd)
    return path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def _is_own(connection: socket.socket) -> bool:
    """True for a client of this account, or of root, who can do anything anyway."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.getuid())
