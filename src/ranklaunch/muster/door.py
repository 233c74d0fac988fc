"""Node 0's door: it accepts connections and keeps them until they have signed with the job's key.

Owns the listening port, the connections without a signature, and the addresses of peers with another key. An unsigned
connection can do no more than end itself. Unsigned connections have little time and few bytes,
and the oldest are closed when there are too many: they may not take resources of the nodes and of this process.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable

from ranklaunch.errors import ConfigError
from ranklaunch.muster import wire
from ranklaunch.muster.events import AtDoor, Broken, Event, First, Heard, Nonsense
from ranklaunch.muster.wire import Codec, Message, WrongKeyError
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
TAKEN_S = 10.0  # that a port may be in use; where an earlier start may have it, beyond the grace that this has to end
FOREVER = float("inf")


class Peer:
    """One connection. link: its number. known: it has signed, and was admitted or turned away."""

    def __init__(self, link: int, address: str, since: float) -> None:
        self.link = link
        self.address = address
        self.since = since
        self.nonce = os.urandom(wire.NONCE)
        self.greeting = bytearray()
        self.codec: Codec | None = None
        self.stream: Stream
        self.known = False


class Door:
    """feed: is given First with the first message of a signed connection, answered by admit(), turn_away() or drop(), and from then on
    the
    connection's events. Connections without a signature cause no event but AtDoor."""

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], feed: Callable[[Event], None], grace_s: float
    ) -> None:
        self.trouble = ""  # why nobody can come in
        self._patience_s = FOREVER
        self._grace_s = grace_s
        self._muster = muster
        self._key = key
        self._loop = loop
        self._say = say
        self._feed = feed
        self._listener: socket.socket | None = None
        self._peers: dict[int, Peer] = {}
        self._unknown: dict[Peer, None] = {}  # in order of arrival
        self._count = 0
        self._refused: list[str] = []  # addresses
        self._full = self._resting = False
        self._most_unknown = self._lift_limit()
        self.open()

    def open(self) -> None:
        """Listens, where it does not yet: an earlier start of this container may be on its way out. Raises ConfigError where this user may
        not, which no time changes."""
        if self._listener:
            return
        try:
            self._listener = _bound(self._muster.hosts[0], self._muster.port)
        except PermissionError as error:
            msg = (
                f"port {self._muster.port} of this node may not be listened at by user id {os.getuid()}: {error.strerror}; "
                "--muster-port (RANKLAUNCH_MUSTER_PORT) names another, on every node"
            )
            raise ConfigError(msg) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                self._tell_taken()
            else:
                self._tell(f"port {self._muster.port} of this node cannot be used: {error}")
            return
        self._tell("")
        self._loop.on_readable(self._listener.fileno(), self._accept)

    def _tell_taken(self) -> None:
        """By whom is looked up once: there may be thousands of processes."""
        if self._patience_s < FOREVER:
            return
        from ranklaunch.system.ports import holder

        owner = holder(self._muster.port)
        self._patience_s = TAKEN_S + (self._grace_s if not owner or owner.may_be_ours else 0)
        who = owner.text if owner else "another process"
        self._tell(
            f"port {self._muster.port} of this node is in use by {who}; --muster-port (RANKLAUNCH_MUSTER_PORT) names another, on every node"
        )

    def _tell(self, trouble: str) -> None:
        """What keeps everybody out, and who has come with another key."""
        self.trouble = trouble
        self._feed(AtDoor(trouble, ", ".join(f"{address} (another key)" for address in self._refused), self._patience_s))

    def close(self) -> None:
        if self._listener:
            if not self._resting:
                self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for peer in self._peers.values():
            peer.stream.close()

    def admit(self, link: int) -> None:
        peer = self._peers.get(link)
        if peer and peer.codec:
            self._unknown.pop(peer, None)
            peer.codec.most = wire.MOST
            peer.known = True

    def turn_away(self, link: int) -> None:
        """One that has signed and is none of the job's: it may hear why, and not stay."""
        self.admit(link)
        if link in self._peers:
            self._unknown[self._peers[link]] = None

    def drop(self, link: int) -> None:
        peer = self._peers.pop(link, None)
        if peer:
            self._unknown.pop(peer, None)
            peer.stream.close()

    def send(self, message: Message, links: Iterable[int]) -> None:
        body = wire.body(message)
        for link in links:
            peer = self._peers.get(link)
            if peer and peer.codec and not peer.stream.closed:
                peer.stream.send(peer.codec.sign(body))

    def drop_late(self) -> None:
        """Those who have had their time."""
        now = self._loop.clock()
        for peer in [peer for peer in self._unknown if now - peer.since > UNKNOWN_S]:
            self.drop(peer.link)

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
            self._greet(sock, str(address[0]))
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

    def _greet(self, sock: socket.socket, address: str) -> None:
        self._count += 1
        peer = self._peers[self._count] = Peer(self._count, address, self._loop.clock())
        self._unknown[peer] = None
        peer.stream = Stream(sock, self._loop, lambda data: self._on_data(peer, data), lambda error: self._on_end(peer, error))
        peer.stream.send(wire.GREETING + peer.nonce)

    def _drop_oldest(self) -> bool:
        peer = next(iter(self._unknown), None)
        if peer:
            self.drop(peer.link)
        return bool(peer)

    def _on_data(self, peer: Peer, data: bytes) -> None:
        if not peer.codec:
            peer.greeting += data
            if len(peer.greeting) < wire.NONCE:
                return
            nonce, data = bytes(peer.greeting[: wire.NONCE]), bytes(peer.greeting[wire.NONCE :])
            peer.codec = Codec(self._key, peer.nonce, nonce, hub=True, most=UNKNOWN_BYTES)
        try:
            messages = peer.codec.feed(data)
        except WrongKeyError:
            self._on_wrong_key(peer)
            return
        except wire.NOT_UNDERSTOOD as error:
            self._on_nonsense(peer, wire.why(error))
            return
        for message in messages:
            if peer.stream.closed:  # by what it has said before
                return
            self._feed(Heard(peer.link, message) if peer.known else First(peer.link, peer.address, message))

    def _on_nonsense(self, peer: Peer, why: str) -> None:
        if peer.known:
            self._feed(Nonsense(peer.link, why))
        else:
            self.drop(peer.link)

    def _on_wrong_key(self, peer: Peer) -> None:
        if peer.known:
            self._on_nonsense(peer, "a signature is not right")
            return
        if peer.address not in self._refused and len(self._refused) < REFUSED_SAID:
            self._refused.append(peer.address)
            self._say(f"muster: {peer.address} has another key: RANKLAUNCH_SECRET, or without it the job's name, is not the same there")
            self._tell(self.trouble)
        self.drop(peer.link)

    def _on_end(self, peer: Peer, error: OSError | None) -> None:
        self._unknown.pop(peer, None)
        self._peers.pop(peer.link, None)
        if peer.known:
            self._feed(Broken(peer.link, error))


def _bound(host: str, port: int) -> socket.socket:
    """Listen at all addresses of this container; at a loopback address if the job knows node 0 by one."""
    if host == "localhost" or host.startswith("127."):
        return _listener(socket.AF_INET, "127.0.0.1" if host == "localhost" else host, port)
    if host == "::1":
        return _listener(socket.AF_INET6, host, port)
    try:
        return _listener(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
    return _listener(socket.AF_INET, "0.0.0.0", port)


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
