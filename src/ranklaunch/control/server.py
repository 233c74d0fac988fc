"""The socket at which a supervisor is asked: one line of JSON in, one line of JSON out, from processes of the same account alone.

It is a file in the attempt's folder, so no port is opened. Where the file system has no sockets, as some mounts of object stores, it is in
a private folder of its own.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ranklaunch.supervise.record import bequeath
from ranklaunch.system.loop import Loop, Timer

MOST_ASKED = 64 * 1024  # bytes of one question
MOST_GUESTS = 16  # at one time
PATIENCE_S = 10.0  # with one that asks nothing
ANSWER_S = 60.0  # for an answer to come and be taken
HAS_NO_SOCKETS = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EROFS, errno.EIO)

Answer = Callable[[Mapping[str, Any]], None]
Handler = Callable[[Mapping[str, Any], Answer], None]  # the question, and who is told the answer, at once or later


class Counter:
    """path: of the socket. handle: answers every question, with {"error": ...} where it has to. Raises OSError where there is no way to
    be asked."""

    def __init__(self, folder: str, name: str, loop: Loop, handle: Handler) -> None:
        self._loop = loop
        self._handle = handle
        self._guests: dict[int, Guest] = {}
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
        """Whether it is not in the folder where it belongs."""
        return bool(self._private)

    def close(self) -> None:
        for guest in list(self._guests.values()):
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
        if not self._private:
            return
        try:
            os.rmdir(self._private)
        except OSError:  # whoever clears such folders has removed it, or put something into it
            pass

    def _welcome(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return
        if len(self._guests) >= MOST_GUESTS or not _is_own(accepted):
            accepted.close()
            return
        accepted.setblocking(False)
        self._guests[accepted.fileno()] = Guest(accepted, self._loop, self._handle, partial(self._guests.pop, accepted.fileno(), None))


class Guest:
    """One that asks, once."""

    def __init__(self, connection: socket.socket, loop: Loop, handle: Handler, gone: Callable[[], object]) -> None:
        self._connection = connection
        self._loop = loop
        self._handle = handle
        self._gone = gone
        self._asked = b""
        self._answer = b""
        self._open = True
        self._timer: Timer = loop.after(PATIENCE_S, self.leave)
        loop.on_readable(connection.fileno(), self._read)

    def leave(self) -> None:
        if self._open:
            self._open = False
            self._timer.cancel()
            self._loop.forget(self._connection.fileno())
            self._gone()
            self._connection.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(MOST_ASKED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._asked += data
        if not data or len(self._asked) > MOST_ASKED:
            self.leave()
        elif b"\n" in self._asked:
            self._ask()

    def _ask(self) -> None:
        self._loop.change(self._connection.fileno(), None, self._write)
        self._loop.forget(self._connection.fileno())  # until there is an answer; it comes once, or PATIENCE_S is over
        self._loop.on_readable(self._connection.fileno(), self.leave)
        self._timer.cancel()
        self._timer = self._loop.after(ANSWER_S, self.leave)
        try:
            question = json.loads(self._asked)
            if not isinstance(question, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            self._tell({"error": "expected one line: an object in JSON"})
            return
        self._handle(question, self._tell)

    def _tell(self, answer: Mapping[str, Any]) -> None:
        if self._open and not self._answer:
            self._answer = json.dumps(answer).encode() + b"\n"
            self._loop.change(self._connection.fileno(), None, self._write)
            self._write()  # what is short: this may be the last that the supervisor does

    def _write(self) -> None:
        try:
            self._answer = self._answer[self._connection.send(self._answer) :]
        except BlockingIOError:
            return
        except OSError:
            self._answer = b""
        if not self._answer:
            self.leave()


def _bind(listener: socket.socket, folder: str, name: str) -> str:
    """By way of the folder's descriptor: a socket's path may have 107 bytes, and a log folder's has more. What a killed start left there
    is removed; its socket answers nobody."""
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
    try:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            os.unlink(path)
    except OSError:
        pass


def _is_own(connection: socket.socket) -> bool:
    """Of this account, or of root, who can do anything anyway."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.getuid())
