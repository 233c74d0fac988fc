"""Node 0's door: where connections come in, and stay until they have signed with the job's key.

Owns the port that is listened at, the connections that have not signed yet, and the addresses of those with another key. Nothing that
a connection sends can do more than end this connection, until it has signed. Those that do not sign have little time and little to say,
and where there are too many of them the oldest go: they may not take what the nodes and this process itself need.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from ranklaunch.muster import wire
from ranklaunch.muster.wire import Codec, Message, WireError, WrongKeyError
from ranklaunch.plan.model import Muster
from ranklaunch.system.loop import Loop
from ranklaunch.system.stream import Stream, keep_alive

BACKLOG = 4096
ACCEPT = 256  # connections taken in one step: the ranks' output has its turn too
REST_S = 0.25
UNKNOWN_S = 10.0  # how long a connection may stay without having signed
UNKNOWN_MOST = 1024  # of such connections beyond one for each node; above it the oldest goes
LEAST_UNKNOWN = 16
UNKNOWN_BYTES = 16 * 1024  # of the first message
REFUSED_SAID = 10  # addresses whose wrong key is told
SPARE_FDS = 256  # descriptors for everything but the connections


class Peer:
    """One connection. instance: of the node's start that has signed; "" before that."""

    def __init__(self, address: str, since: float) -> None:
        self.address = address
        self.since = since
        self.nonce = os.urandom(wire.NONCE)
        self.greeting = bytearray()
        self.codec: Codec | None = None
        self.stream: Stream
        self.instance = ""

    def send(self, message: Message) -> None:
        if self.codec:
            self.stream.send(self.codec.frame(message))


class Door:
    """on_message: called with what has come with the right signature; of a peer without an instance it is the first, which
    admit() or drop() answers. on_nonsense: with what is not understood, or what on_message has raised for that reason. on_end: once the
    connection is over. What has become of a peer that was admitted is for whoever has admitted it."""

    def __init__(
        self,
        muster: Muster,
        key: bytes,
        loop: Loop,
        say: Callable[[str], None],
        on_message: Callable[[Peer, Message], None],
        on_nonsense: Callable[[Peer, Exception], None],
        on_end: Callable[[Peer, OSError | None], None],
    ) -> None:
        self.trouble = ""  # why nobody can come in
        self._muster = muster
        self._key = key
        self._loop = loop
        self._say = say
        self._on_message = on_message
        self._on_nonsense = on_nonsense
        self._on_end = on_end
        self._listener: socket.socket | None = None
        self._unknown: dict[Peer, None] = {}  # in order of arrival
        self._own: Peer | None = None
        self._refused: list[str] = []  # addresses
        self._full = self._resting = False
        self._most_unknown = self._lift_limit()
        self.open()

    @property
    def refused(self) -> str:
        """Who has come with another key."""
        return ", ".join(f"{address} (another key)" for address in self._refused)

    def open(self) -> None:
        """Listens, where it does not yet: an earlier start of this container may be on its way out."""
        if self._listener:
            return
        try:
            self._listener = _bound(self._muster.hosts[0], self._muster.port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = (
                "is in use by another process; RANKLAUNCH_MUSTER_PORT names another, on every node" if taken else f"cannot be used: {error}"
            )
            self.trouble = f"port {self._muster.port} of this node {why}"
            return
        self.trouble = ""
        self._loop.on_readable(self._listener.fileno(), self._accept)

    def close(self) -> None:
        if self._listener:
            if not self._resting:
                self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for peer in [*([self._own] if self._own else []), *self._unknown]:
            peer.stream.close()

    def adopt(self, sock: socket.socket) -> None:
        """A connection of this very process, which nothing else can keep from signing."""
        self._own = self._greet(sock, "this container")

    def admit(self, peer: Peer, instance: str) -> None:
        peer.instance = instance
        self._unknown.pop(peer, None)
        assert peer.codec
        peer.codec.most = wire.MOST

    def turn_away(self, peer: Peer) -> None:
        """One that has signed and is none of the job's: it may hear why, and not stay."""
        self._unknown[peer] = None

    def drop(self, peer: Peer) -> None:
        self._unknown.pop(peer, None)
        peer.stream.close()

    def drop_late(self) -> None:
        """Those who have had their time."""
        now = self._loop.clock()
        for peer in [peer for peer in self._unknown if now - peer.since > UNKNOWN_S]:
            self.drop(peer)

    def _lift_limit(self) -> int:
        """Room for one descriptor per node; ranks get the limit that ranklaunch was given. How many may be here that have not signed."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * len(self._muster.hosts) + UNKNOWN_MOST + SPARE_FDS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            soft = max(soft, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        room = wanted if soft == resource.RLIM_INFINITY else soft
        return max(LEAST_UNKNOWN, min(UNKNOWN_MOST + len(self._muster.hosts), room - len(self._muster.hosts) - SPARE_FDS))

    def _accept(self) -> None:
        assert self._listener
        for _ in range(ACCEPT):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # no descriptor left: those who have said nothing make room
                if not self._drop_oldest():
                    if not self._full:
                        self._full = True
                        self._say(f"muster: cannot take a connection: {error}")
                    self._rest()
                return
            keep_alive(sock, self._muster.lost_after_s)
            self._unknown[self._greet(sock, str(address[0]))] = None
            if len(self._unknown) > self._most_unknown:
                self._drop_oldest()

    def _rest(self) -> None:
        """Stops listening for a moment, so that what cannot be helped does not keep the loop busy."""
        listener = self._listener
        assert listener
        self._resting = True
        self._loop.forget(listener.fileno())

        def again() -> None:
            self._resting = False
            if self._listener is listener:
                self._loop.on_readable(listener.fileno(), self._accept)

        self._loop.after(REST_S, again)

    def _greet(self, sock: socket.socket, address: str) -> Peer:
        peer = Peer(address, self._loop.clock())
        peer.stream = Stream(sock, self._loop, lambda data: self._on_data(peer, data), lambda error: self._on_closed(peer, error))
        peer.stream.send(wire.GREETING + peer.nonce)
        return peer

    def _drop_oldest(self) -> bool:
        peer = next(iter(self._unknown), None)
        if peer:
            self.drop(peer)
        return bool(peer)

    def _on_data(self, peer: Peer, data: bytes) -> None:
        if not peer.codec:
            peer.greeting += data
            if len(peer.greeting) < wire.NONCE:
                return
            nonce, data = bytes(peer.greeting[: wire.NONCE]), bytes(peer.greeting[wire.NONCE :])
            peer.codec = Codec(self._key, peer.nonce, nonce, hub=True, most=UNKNOWN_BYTES)
        try:
            for message in peer.codec.feed(data):
                if peer.stream.closed:  # by what it has said before
                    return
                self._on_message(peer, message)
        except WrongKeyError:
            self._on_wrong_key(peer)
        except wire.NOT_UNDERSTOOD as error:
            self._on_nonsense(peer, error)

    def _on_wrong_key(self, peer: Peer) -> None:
        if peer.instance:
            self._on_nonsense(peer, WireError("a signature is not right"))
            return
        if peer.address not in self._refused and len(self._refused) < REFUSED_SAID:
            self._refused.append(peer.address)
            self._say(f"muster: {peer.address} has another key: RANKLAUNCH_SECRET, or without it the job's name, is not the same there")
        self.drop(peer)

    def _on_closed(self, peer: Peer, error: OSError | None) -> None:
        self._unknown.pop(peer, None)
        self._on_end(peer, error)


def _bound(host: str, port: int) -> socket.socket:
    """Listens at all addresses of this container; at a loopback address where the job knows node 0 by one."""
    families: tuple[tuple[socket.AddressFamily, str], ...] = ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0"))
    if host == "localhost" or host.startswith("127."):
        families = ((socket.AF_INET, "127.0.0.1" if host == "localhost" else host),)
    elif host == "::1":
        families = ((socket.AF_INET6, host),)
    for family, address in families:
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            sock.listen(BACKLOG)
        except OSError as error:
            if sock:
                sock.close()
            if address != "::" or error.errno == errno.EADDRINUSE:
                raise
        else:
            return sock
    raise OSError(errno.EADDRNOTAVAIL, "no address to listen at")
