"""Resolution of host names. The system's resolver blocks as long as name servers do not answer, so it runs in threads."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, NamedTuple

from ranklaunch.system.loop import Loop


class Address(NamedTuple):
    """Address of a socket. sockaddr: as in the socket module, for this family."""

    family: socket.AddressFamily
    sockaddr: Any

    def open(self) -> socket.socket:
        """Return a socket for a connection to this address. Raises OSError.

        The kernel may give the socket any free port, even one on which a service of this job (its sshd) will listen. SO_REUSEADDR
        keeps this port usable for the service.
        """
        result = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return result


OnAnswer = Callable[[list[Address], str], object]


class Lookups:
    """Parallel lookups of names, in at most `most` threads. A thread handles one name after the other: a thread for each of a
    thousand names would cost more than the lookups."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._threads = 0
        self._pending = 0
        self._questions: SimpleQueue[tuple[str, int, OnAnswer] | None] = SimpleQueue()
        self._answers: deque[tuple[OnAnswer, list[Address], str]] = deque()
        self._lock = threading.Lock()  # no late answer may be written after close(): another file may have the descriptor by then
        self._pipe: tuple[int, int] | None = None

    def ask(self, host: str, port: int, on_answer: OnAnswer) -> None:
        """Call on_answer once, on the loop: with addresses, or with an empty list and the reason."""
        if numeric(host):
            self._answer_soon(on_answer, *resolve(host, port))
            return
        try:
            self._open()
            self._pending += 1
            if self._pending > self._threads and self._threads < self._most:
                self._start()
        except (OSError, RuntimeError) as error:  # no descriptor or thread left
            if not self._threads:
                self._pending -= bool(self._pipe)
                self._answer_soon(on_answer, [], f"its name cannot be looked up ({getattr(error, 'strerror', None) or error})")
                return
        self._questions.put((host, port, on_answer))

    def close(self) -> None:
        """End the threads. Lookups without an answer get none."""
        for _ in range(self._threads):
            self._questions.put(None)
        with self._lock:
            if self._pipe:
                self._loop.forget(self._pipe[0])
                os.close(self._pipe[0])
                os.close(self._pipe[1])
                self._pipe = None

    def _answer_soon(self, on_answer: OnAnswer, addresses: list[Address], why: str) -> None:
        self._loop.after(0, on_answer, addresses, why)

    def _open(self) -> None:
        if not self._pipe:
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._loop.on_readable(self._pipe[0], self._answered)

    def _start(self) -> None:
        threading.Thread(target=self._work, daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        while question := self._questions.get():
            host, port, on_answer = question
            self._answers.append((on_answer, *resolve(host, port)))
            with self._lock, contextlib.suppress(BlockingIOError):  # a full pipe wakes the loop too
                if not self._pipe:
                    return
                os.write(self._pipe[1], b".")

    def _answered(self) -> None:
        assert self._pipe
        os.read(self._pipe[0], 65536)
        while self._answers and self._pipe:
            on_answer, addresses, why = self._answers.popleft()
            self._pending -= 1
            on_answer(addresses, why)


def look_up(host: str, port: int, loop: Loop, on_answer: OnAnswer) -> None:
    """Look up one name. on_answer: as in Lookups.ask."""
    lookups = Lookups(loop, 1)

    def answered(addresses: list[Address], why: str) -> None:
        lookups.close()
        on_answer(addresses, why)

    lookups.ask(host, port, answered)


def ipv4(addresses: Iterable[Address]) -> str:
    """Return the first IPv4 address that other hosts can use too, else a loopback one, "" for none. A host's own name may resolve to
    127.0.1.1."""
    texts = [str(address.sockaddr[0]) for address in addresses if address.family == socket.AF_INET]
    return next((address for address in texts if not address.startswith("127.")), texts[0] if texts else "")


def numeric(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def resolve(host: str, port: int) -> tuple[list[Address], str]:
    """Return addresses, or an empty list and the reason. Blocks as long as name servers do not answer."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], f"its name does not resolve ({getattr(error, 'strerror', None) or error})"
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in infos], ""
