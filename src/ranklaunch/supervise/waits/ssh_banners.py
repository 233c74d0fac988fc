"""Wait for the SSH servers of other nodes: mpirun tries each only once, so all must answer before
mpirun starts."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from functools import partial

from ranklaunch.supervise.waits.waiting import some
from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop, Timer

BANNER = b"SSH-"
RETRY_S = 0.5
ANSWER_S = 5.0  # for the connection and the banner
AT_ONCE = 256  # servers asked in parallel


class Banners:
    """Condition: every HOST:PORT has sent the first bytes of an SSH server (RFC 4253, section
    4.2). All are asked in parallel."""

    def __init__(self, servers: Sequence[str], loop: Loop) -> None:
        self._loop = loop
        self._lookups = lookup.Lookups(loop, AT_ONCE)
        self._silent = dict.fromkeys(servers, "not asked yet")
        self._asking = list(servers)
        self._open: dict[socket.socket, Timer] = {}
        self._closed = False
        for _ in range(AT_ONCE):
            self._ask()

    def missing(self) -> str:
        return some(self._silent)

    def close(self) -> None:
        self._closed = True
        self._lookups.close()
        for sock in list(self._open):
            self._drop(sock)

    def _ask(self) -> None:
        if self._asking and not self._closed:
            server = self._asking.pop(0)
            host, _, port = server.rpartition(":")
            self._lookups.ask(host.strip("[]"), int(port), partial(self._connect, server))

    def _connect(self, server: str, addresses: Sequence[lookup.Address], why: str) -> None:
        if self._closed:
            return
        if not addresses:
            self._again(server, why)
            return
        sock = addresses[0].open()
        self._open[sock] = self._loop.after(ANSWER_S, self._failed, server, sock, "no SSH banner")
        error = sock.connect_ex(addresses[0].sockaddr)
        if error not in (0, errno.EINPROGRESS):
            self._failed(server, sock, os.strerror(error))
        else:
            self._loop.on_readable(sock.fileno(), self._read, server, sock)

    def _read(self, server: str, sock: socket.socket) -> None:
        """Read a banner. A refused connection is readable too."""
        try:
            data = sock.recv(64)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(server, sock, error.strerror or str(error))
            return
        if not data.startswith(BANNER):
            self._failed(server, sock, "the server there is not an SSH server" if data else "the connection was closed")
            return
        self._drop(sock)
        self._silent.pop(server, None)
        self._ask()

    def _failed(self, server: str, sock: socket.socket, why: str) -> None:
        self._drop(sock)
        self._again(server, why)

    def _again(self, server: str, why: str) -> None:
        self._silent[server] = why
        self._asking.append(server)
        self._loop.after(RETRY_S, self._ask)

    def _drop(self, sock: socket.socket) -> None:
        self._open.pop(sock).cancel()
        try:
            self._loop.forget(sock.fileno())
        except KeyError:  # the connection failed at once, and was never registered
            pass
        sock.close()
