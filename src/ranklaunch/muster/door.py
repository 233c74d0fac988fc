"""Listener of node 0: accepts connections, and checks that their first message is signed with the job's key.

This module owns the listening port, all connections, and the addresses of peers with another key. An unsigned connection can only end
itself. Its time and bytes are limited, and the oldest is closed when there are too many, so that unsigned connections take no resources
from the nodes.
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
ACCEPT = 256  # connections accepted in one step of the loop: the ranks' output must be read too
REST_S = 0.25  # pause of accept() when no descriptor is left
UNKNOWN_S = 10.0  # lifetime of an unsigned connection
UNKNOWN_MOST = 1024  # unsigned connections, beyond one for each node; above this the oldest is closed
LEAST_UNKNOWN = 16
UNKNOWN_BYTES = 16 * 1024  # of the first message
REFUSED_SAID = 10  # addresses with a wrong key that are reported, at most
SPARE_FDS = 256  # descriptors for everything but the connections
TAKEN_S = 10.0  # wait for a port in use; if an earlier start of the job may have the port, the grace period is added
FOREVER = float("inf")


class Peer:
    """One connection. link: its number. known: True once it has signed, and was admitted or turned away."""

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
    """Connections to node 0.

    feed: takes the events. First has the first message of a signed connection; the answer is admit(), turn_away() or drop(). Later
    events of the connection follow. Unsigned connections cause no event but AtDoor.
    """

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], feed: Callable[[Event], None], grace_s: float
    ) -> None:
        self.trouble = ""  # why no node can connect
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
        """Listen on the port unless this is done. Otherwise report the trouble; the hub calls again, since an earlier start of this
        container may still have the port. Raises ConfigError if this user may not listen there."""
        if self._listener:
            return
        try:
            self._listener = _bound(self._muster.hosts[0], self._muster.port)
        except PermissionError as error:
            msg = (
                f"user id {os.getuid()} may not listen on port {self._muster.port} of this node: {error.strerror}; "
                "set another --muster-port (RANKLAUNCH_MUSTER_PORT), on every node"
            )
            raise ConfigError(msg) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                self._report_port_in_use()
            else:
                self._report(f"port {self._muster.port} of this node cannot be used: {error}")
            return
        self._report("")
        self._loop.on_readable(self._listener.fileno(), self._accept)

    def _report_port_in_use(self) -> None:
        """Report the process that has the port, once: the look-up reads all processes, and there may be thousands."""
        if self._patience_s < FOREVER:
            return
        from ranklaunch.system.ports import holder

        owner = holder(self._muster.port)
        self._patience_s = TAKEN_S + (self._grace_s if not owner or owner.may_be_ours else 0)
        who = owner.text if owner else "another process"
        self._report(
            f"port {self._muster.port} of this node is in use by {who}; set another --muster-port (RANKLAUNCH_MUSTER_PORT), on every node"
        )

    def _report(self, trouble: str) -> None:
        """Report to the hub why no node can connect, "" for no trouble, and the addresses of peers with another key."""
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
        """Keep a signed connection that has no place in the job for as long as an unsigned one, so that it can read the reason."""
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
        """Close the unsigned connections that are older than UNKNOWN_S."""
        now = self._loop.clock()
        for peer in [peer for peer in self._unknown if now - peer.since > UNKNOWN_S]:
            self.drop(peer.link)

    def _lift_limit(self) -> int:
        """Raise the limit of open files so that every node can connect. Return how many unsigned connections are allowed.

        Ranks start with the old limit.
        """
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
            except OSError as error:  # no descriptor left: an unsigned connection makes room
                if not self._drop_oldest():
                    if not self._full:
                        self._full = True
                        self._say(f"muster: cannot accept a connection: {error}; see ulimit -n")
                    self._rest()
                return
            keep_alive(sock, self._muster.lost_after_s)
            self._greet(sock, str(address[0]))
            if len(self._unknown) > self._most_unknown:
                self._drop_oldest()

    def _rest(self) -> None:
        """Accept nothing for a moment: the waiting connections would keep the loop busy without any progress."""
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
            if peer.stream.closed:  # because of an earlier message
                return
            self._feed(Heard(peer.link, message) if peer.known else First(peer.link, peer.address, message))

    def _on_nonsense(self, peer: Peer, why: str) -> None:
        if peer.known:
            self._feed(Nonsense(peer.link, why))
        else:
            self.drop(peer.link)

    def _on_wrong_key(self, peer: Peer) -> None:
        if peer.known:
            self._on_nonsense(peer, "a signature is wrong")
            return
        if peer.address not in self._refused and len(self._refused) < REFUSED_SAID:
            self._refused.append(peer.address)
            self._say(f"muster: {peer.address} has another key: RANKLAUNCH_SECRET, or without it the job's name, is not the same there")
            self._report(self.trouble)
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
