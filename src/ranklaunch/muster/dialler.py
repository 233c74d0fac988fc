"""A node's way to node 0: looks its name up, connects to one address after the other, and listens for its greeting.

Owns the one connection. When to come, and when to come no more, is the member's to say.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from ranklaunch.muster import liveness, wire
from ranklaunch.muster.events import Broken, Event, Greeted, Heard, Reached, Unreached
from ranklaunch.muster.wire import Codec, Message
from ranklaunch.plan.model import Muster
from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.system.stream import Stream, keep_alive

CONNECT_S = 5.0  # of one attempt


class Dialler:
    """feed: is given Reached and Greeted, or Unreached, of each attempt, then Heard, and Broken at the end."""

    def __init__(self, muster: Muster, key: bytes, loop: Loop, feed: Callable[[Event], None]) -> None:
        self._muster = muster
        self._key = key
        self._loop = loop
        self._feed = feed
        self._resolved: list[lookup.Address] = []
        self._connecting: socket.socket | None = None
        self._timer: Timer | None = None
        self._stream: Stream | None = None
        self._codec: Codec | None = None
        self._greeting = bytearray()
        self._closed = False

    def dial(self, again: bool) -> None:
        """again: to the addresses of the last time."""
        if again and self._resolved:
            self._connect(self._resolved)
        else:
            lookup.look_up(self._muster.hosts[0], self._muster.port, self._loop, self._on_addresses)

    def send(self, message: Message) -> None:
        if self._codec and self._stream:
            self._stream.send(self._codec.frame(message))

    def hang_up(self) -> None:
        if self._stream:
            self._stream.close()
        self._stream, self._codec = None, None

    def close(self) -> None:
        self._closed = True
        if self._connecting:
            self._stop_connecting(self._connecting)
        self.hang_up()

    @property
    def flushed(self) -> bool:
        return not self._stream or self._stream.closed or not self._stream.pending

    def _on_addresses(self, addresses: list[lookup.Address], why: str) -> None:
        if self._closed:
            return
        if why:
            self._feed(Unreached(why, refused=False))
        else:
            self._resolved = addresses
            self._connect(addresses)

    def _connect(self, addresses: list[lookup.Address]) -> None:
        """To one address after the other."""
        address, *others = addresses
        try:
            sock = address.open()
        except OSError as error:
            self._next(others, error)
            return
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._next(others, OSError(code, os.strerror(code)))
            return
        self._connecting = sock
        self._loop.on_writable(sock.fileno(), lambda: self._on_answer(sock, others))
        self._timer = self._loop.after(CONNECT_S, lambda: self._on_silence(sock, others))

    def _on_answer(self, sock: socket.socket, others: list[lookup.Address]) -> None:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._stop_connecting(sock)
            self._next(others, OSError(code, os.strerror(code)))
            return
        self._stop_connecting(sock, keep=True)
        keep_alive(sock, self._muster.lost_after_s)
        self._begin(sock)

    def _on_silence(self, sock: socket.socket, others: list[lookup.Address]) -> None:
        self._stop_connecting(sock)
        self._next(others, OSError(errno.ETIMEDOUT, "timed out"))

    def _stop_connecting(self, sock: socket.socket, *, keep: bool = False) -> None:
        if self._timer:
            self._timer.cancel()
        self._connecting = self._timer = None
        self._loop.forget(sock.fileno())
        if not keep:
            sock.close()

    def _next(self, others: list[lookup.Address], error: OSError) -> None:
        if others:
            self._connect(others)
        else:
            why = f"no answer on port {self._muster.port} ({liveness.words(error).lower()})"
            self._feed(Unreached(why, refused=True, silent=liveness.silence(error)))

    def _begin(self, sock: socket.socket) -> None:
        self._greeting.clear()
        self._codec = None
        stream = self._stream = Stream(sock, self._loop, lambda data: self._on_data(stream, data), self._on_end)
        self._feed(Reached())

    def _on_data(self, stream: Stream, data: bytes) -> None:
        if not self._codec:
            self._greeting += data
            if not self._greet():
                return
            data = bytes(self._greeting[len(wire.GREETING) + wire.NONCE :])
        assert self._codec
        try:
            messages = self._codec.feed(data)
        except wire.NOT_UNDERSTOOD as error:
            self._end(f"what answers there is not understood: {wire.why(error)}")
            return
        for message in messages:
            if not stream.closed:
                self._feed(Heard(0, message))

    def _greet(self) -> bool:
        """Whether the other side has greeted as node 0 does, and is greeted."""
        greeting = bytes(self._greeting)
        if not wire.GREETING.startswith(greeting[: len(wire.GREETING)]):
            self._end(_other_greeting(greeting))
            return False
        end = len(wire.GREETING) + wire.NONCE
        if len(greeting) < end or not self._stream:
            return False
        nonce = os.urandom(wire.NONCE)
        self._codec = Codec(self._key, greeting[len(wire.GREETING) : end], nonce, hub=False)
        self._stream.send(nonce)
        self._feed(Greeted())
        return self._codec is not None

    def _end(self, why: str) -> None:
        """It is worth nothing."""
        if self._stream:
            self._stream.close()
        self._on_end(OSError(errno.EPROTO, why))

    def _on_end(self, error: OSError | None) -> None:
        spoke = self._codec is not None
        self._stream, self._codec = None, None
        self._feed(Broken(0, error, spoke))


def _other_greeting(greeting: bytes) -> str:
    if greeting.startswith(b"ranklaunch muster "):
        return "another version of ranklaunch answers there"
    return "what answers there is not ranklaunch"
