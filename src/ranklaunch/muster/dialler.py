"""Connection of a node to node 0: look up the name of node 0, connect to one address after the other, wait for the greeting.

This module owns the one connection. The member decides when to connect, and when to stop trying.
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

CONNECT_S = 5.0  # for one address


class Dialler:
    """Connections to node 0, one at a time.

    feed: takes the events. Each dial() ends in Unreached, or in Reached and then Greeted. Heard follows for each message, and Broken
    at the end.
    """

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
        """Connect to node 0. again: to the addresses of the last time, without a look-up of the name."""
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
        """True if no message waits to be sent."""
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
        """Connect to the first address; after a failure, to the next one."""
        address, *further = addresses
        try:
            sock = address.open()
        except OSError as error:
            self._next(further, error)
            return
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._next(further, OSError(code, os.strerror(code)))
            return
        self._connecting = sock
        self._loop.on_writable(sock.fileno(), self._on_answer, sock, further)
        self._timer = self._loop.after(CONNECT_S, self._on_silence, sock, further)

    def _on_answer(self, sock: socket.socket, further: list[lookup.Address]) -> None:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._stop_connecting(sock)
            self._next(further, OSError(code, os.strerror(code)))
            return
        self._stop_connecting(sock, keep=True)
        keep_alive(sock, self._muster.lost_after_s)
        self._begin(sock)

    def _on_silence(self, sock: socket.socket, further: list[lookup.Address]) -> None:
        self._stop_connecting(sock)
        self._next(further, OSError(errno.ETIMEDOUT, "timed out"))

    def _stop_connecting(self, sock: socket.socket, *, keep: bool = False) -> None:
        if self._timer:
            self._timer.cancel()
        self._connecting = self._timer = None
        self._loop.forget(sock.fileno())
        if not keep:
            sock.close()

    def _next(self, further: list[lookup.Address], error: OSError) -> None:
        if further:
            self._connect(further)
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
            self._end(f"invalid bytes from node 0: {wire.why(error)}")
            return
        for message in messages:
            if not stream.closed:
                self._feed(Heard(0, message))

    def _greet(self) -> bool:
        """Read the greeting and answer it. Return True once both sides have greeted; False before, and for another program's greeting."""
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
        """Close a connection to something that is not node 0."""
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
    return "the program at the port is not ranklaunch"
