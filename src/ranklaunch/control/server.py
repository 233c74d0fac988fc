"""Control socket of a supervisor: a question and an answer, each one line of JSON. Only processes of the same user and of root may ask.

The socket is a file in the attempt's folder, so no port is opened. If that file system has no sockets, as some mounts of object stores,
the socket is in a private folder.
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
MOST_CLIENTS = 16  # at one time
PATIENCE_S = 10.0  # for a client's question
ANSWER_S = 60.0  # to find the answer, and for the client to read it
HAS_NO_SOCKETS = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EROFS, errno.EIO)

Answer = Callable[[Mapping[str, Any]], None]
Handler = Callable[[Mapping[str, Any], Answer], None]  # the question, and a function to call with the answer, at once or later


class SocketServer:
    """Listening control socket.

    path: the socket's path. handle: called with each question; {"error": TEXT} is the answer for a refusal. Raises OSError if no socket
    can be made.
    """

    def __init__(self, folder: str, name: str, loop: Loop, handle: Handler) -> None:
        self._loop = loop
        self._handle = handle
        self._clients: set[Client] = set()
        self._private = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self.path = self._bound(folder, name)
            self._socket.listen(MOST_CLIENTS)
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
        for client in list(self._clients):
            client.close()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        _remove(self.path)
        self._remove_private()

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
            self._remove_private()
            raise

    def _remove_private(self) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone, or may not be empty
            if self._private:
                os.rmdir(self._private)

    def _welcome(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return
        if len(self._clients) >= MOST_CLIENTS or not _may_ask(accepted):
            accepted.close()
            return
        self._clients.add(Client(accepted, self._loop, self._handle, self._clients.discard))


class Client:
    """Connection with one question. on_close: called after the end of the connection."""

    def __init__(self, connection: socket.socket, loop: Loop, handle: Handler, on_close: Callable[[Client], object]) -> None:
        self._loop = loop
        self._handle = handle
        self._on_close = on_close
        self._received = b""
        self._has_asked = self._is_answered = False
        self._timer: Timer = loop.after(PATIENCE_S, self.close)
        self._stream = Stream(connection, loop, self._take, self._end, MOST_ANSWERED)

    def close(self) -> None:
        self._stream.close()
        self._end()

    def _end(self, error: OSError | None = None) -> None:
        self._timer.cancel()
        self._on_close(self)

    def _take(self, data: bytes) -> None:
        self._received += data
        if self._has_asked or len(self._received) > MOST_ASKED:
            self.close()
        elif b"\n" in self._received:
            self._ask()

    def _ask(self) -> None:
        self._has_asked = True
        self._timer.cancel()
        self._timer = self._loop.after(ANSWER_S, self.close)
        try:
            question = json.loads(self._received)
        except (ValueError, RecursionError):
            question = None
        if isinstance(question, dict):
            self._handle(question, self._answer)
        else:
            self._answer({"error": "expected one line: a JSON object"})

    def _answer(self, answer: Mapping[str, Any]) -> None:
        """Write the answer at once: the supervisor may end right after this call."""
        if not (self._stream.closed or self._is_answered):
            self._is_answered = True
            self._stream.send(json.dumps(answer).encode() + b"\n")
            self._stream.finish()


def _bind(listener: socket.socket, folder: str, name: str) -> str:
    """Bind a socket in a folder, and return its path. A socket left by a killed start is removed.

    The address goes by a descriptor of the folder: a socket's path has at most 107 bytes, and a log folder's path may be longer.
    """
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


def _may_ask(connection: socket.socket) -> bool:
    """Return True for a client of this user or of root."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.getuid())
