"""A node's side of the muster, on every node: comes to node 0, waits for the release, and tells and hears of the first failure."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Mapping

from ranklaunch.muster import gone, wire
from ranklaunch.muster.wire import Codec, Message
from ranklaunch.plan.model import Muster
from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.system.stream import Stream, keep_alive
from ranklaunch.values import Value
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect

RETRY_S = 0.5
FIRST_RETRY_S = 0.01  # half of the first: nodes that start at once come within milliseconds of each other; then twice as long each time
CONNECT_S = 5.0  # of one attempt
GREETING_S = 10.0  # for what answers at the port to speak as node 0 does
STATUS_S = 30.0
FIRST_STATUS_S = 2.0
PINGS = 4  # at first, for the clocks
PING_S = 0.1
PINGS_PER_S = 200  # that all nodes together send to node 0 at most
TRUSTED_S = 300.0  # how long the best measurement of the clocks counts for more than a newer one: clocks drift


class Events(Value):
    """What a member calls. released: all may start, and who was late. stop: another node has failed. judged: what the job died of, or
    that it has succeeded. lost: node 0 is gone. dismissed: node 0 leaves, having waited for the others long enough."""

    released: Callable[[str], object]
    stop: Callable[[Judgement], object]
    judged: Callable[[Judgement], object]
    lost: Callable[[Suspect], object]
    dismissed: Callable[[], object]


class Member:
    """label: how this node calls itself. adopt: for node 0, gives the hub the other end of a connection inside this process."""

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], events: Events,
        adopt: Callable[[socket.socket], None] | None = None,
    ) -> None:  # fmt: skip
        self.joined = False
        self.over = False  # nothing more will be heard
        self.why = "not tried yet"
        self._tries = 0
        self._other_key = ""  # that it is so; what a node 0 that has ended says then is less
        self.shared: Mapping[str, str] = {}  # what node 0 offers, once all are released
        self._muster = muster
        self._key = key
        self._loop = loop
        self._say = say
        self._events = events
        self._adopt = adopt
        self._instance = os.urandom(8).hex()
        self._hub_id = ""
        self._released = False
        self._stopping = False
        self._doing = "starting"
        self._ready: Message | None = None
        self._last: list[Message] = []  # what node 0 must know, also when the connection breaks meanwhile
        self._missing = ""
        self._broken_since: float | None = None
        self._broken_by: OSError | None = None
        self._resolved: list[lookup.Address] = []
        self._addresses: list[lookup.Address] = []  # to try before the name is looked up again
        self._connecting: socket.socket | None = None
        self._stream: Stream | None = None
        self._codec: Codec | None = None
        self._greeting = bytearray()
        self._answered = False  # at the last attempt, by whomever: `why` says more than that nothing has come yet
        self._offset: tuple[float, float, float] | None = None  # best round trip, when it was measured, offset
        self._pings = 0
        self._timers: dict[str, Timer] = {}
        # Often, so that a broken connection is noticed soon; seldom enough for node 0 to answer thousands.
        self._ping_s = min(max(1.0, len(muster.hosts) / PINGS_PER_S), max(1.0, muster.lost_after_s / 4))

    # What the supervisor says

    def start(self) -> None:
        if self._adopt:
            ours, theirs = socket.socketpair()
            self._adopt(theirs)
            self._begin(ours)
        else:
            self._look_up()

    def busy(self, doing: str) -> None:
        self._doing = doing
        self._send({"type": "busy", "doing": doing})

    def ready(self, facts: Mapping[str, str], index: int, host: str, offers: Mapping[str, str] | None = None) -> None:
        """index, host: this node's place, which is that of a rank table where there is one. offers: short texts for node 0, whose own
        are for all."""
        self._ready = {"type": "ready", "facts": dict(facts), "index": index, "host": host, "offers": dict(offers or {})}
        self._send(self._ready)
        self._after("status", FIRST_STATUS_S, self._status)

    def fail(self, suspect: Suspect) -> None:
        """The first that went wrong here; report() says the rest."""
        self._keep({"type": "fail", "suspect": blame.as_message(suspect)})

    def done(self, finish: Finish) -> None:
        self._keep({"type": "done", "finish": blame.as_message(finish)})

    def report(self, suspects: Iterable[Suspect], finishes: Iterable[Finish], notes: Iterable[str]) -> None:
        """How this node has ended."""
        self._keep({
            "type": "report",
            "suspects": [blame.as_message(suspect) for suspect in suspects],
            "finishes": [blame.as_message(finish) for finish in finishes],
            "notes": [note[: blame.LINE] for note in notes],
        })  # fmt: skip

    def leave(self) -> None:
        self._send({"type": "bye"})
        self.over = True

    def close(self) -> None:
        self.over = True
        for timer in self._timers.values():
            timer.cancel()
        if self._connecting:
            self._loop.forget(self._connecting.fileno())
            self._connecting.close()
        if self._stream:
            self._stream.close()

    @property
    def flushed(self) -> bool:
        return not self._stream or self._stream.closed or not self._stream.pending

    def wall(self, clock: float) -> float:
        """A time of this node's monotonic clock as seconds since 1970 by node 0's clock."""
        if self._offset:
            return clock + self._offset[2]
        return self._loop.wall(clock)

    @property
    def missing(self) -> str:
        """What is waited for, as far as it is known here; "" once all are released."""
        if self._released:
            return ""
        if self.joined:
            return self._missing or "the other nodes"
        return f"{self._where}: {self.why}"

    # Coming to node 0

    @property
    def _where(self) -> str:
        return blame.place(0, self._muster.hosts[0])

    def _look_up(self) -> None:
        if self._addresses and not self.over:  # where it was a moment ago: name servers may be slow
            self._connect(list(self._addresses))
        elif not self.over and not self._stream:
            lookup.look_up(self._muster.hosts[0], self._muster.port, self._loop, self._on_addresses)

    def _on_addresses(self, addresses: list[lookup.Address], why: str) -> None:
        if why:
            self._fail_to_come(why)
        else:
            self._resolved = addresses
            self._connect(addresses)

    def _connect(self, addresses: list[lookup.Address]) -> None:
        """To one address after the other."""
        if self.over:
            return
        address, *others = addresses
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as error:
            self._next(others, error)
            return
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._next(others, OSError(code, os.strerror(code)))
            return
        fd = sock.fileno()

        def answered() -> None:
            self._cancel("connect")
            self._connecting = None
            self._loop.forget(fd)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code or self.over:
                sock.close()
                self._next(others, OSError(code, os.strerror(code)))
            else:
                keep_alive(sock, self._muster.lost_after_s)
                self._begin(sock)

        def too_late() -> None:
            self._connecting = None
            self._loop.forget(fd)
            sock.close()
            self._next(others, OSError(errno.ETIMEDOUT, "timed out"))

        self._connecting = sock
        self._loop.on_writable(fd, answered)
        self._after("connect", CONNECT_S, too_late)

    def _next(self, others: list[lookup.Address], error: OSError) -> None:
        if others:
            self._connect(others)
        else:
            self._answered = False
            self._fail_to_come(f"no answer on port {self._muster.port} ({(error.strerror or str(error)).lower()})")

    def _fail_to_come(self, why: str, again: Iterable[lookup.Address] = ()) -> None:
        """again: addresses to try before the name is looked up anew."""
        self._explain(why)
        self._stream, self._codec = None, None
        if self.over:
            return
        self._addresses = list(again)
        if self._broken_since is not None and self._started:
            waited = self._loop.clock() - self._broken_since
            if waited >= gone.RETURN_S or gone.silence(self._broken_by):
                self._lose()
                return
        self._tries += 1
        self._after("retry", min(RETRY_S, FIRST_RETRY_S * 2**self._tries), self._look_up)

    def _explain(self, why: str) -> None:
        self.why = f"{why}; before that: {self._other_key}" if self._other_key not in why else why

    def _begin(self, sock: socket.socket) -> None:
        if not self._answered:
            self._explain(f"what answers on port {self._muster.port} says nothing")
        self._greeting.clear()
        self._codec = None
        self._stream = Stream(sock, self._loop, self._on_data, self._on_end)
        self._after("greeting", GREETING_S, lambda: self._on_end(OSError(errno.EPROTO, "it does not answer as ranklaunch")))

    def _on_data(self, data: bytes) -> None:
        assert self._stream
        if not self._codec:
            self._greeting += data
            greeting = bytes(self._greeting)
            if not wire.GREETING.startswith(greeting[: len(wire.GREETING)]):
                self._on_end(OSError(errno.EPROTO, _other_greeting(greeting)))
                return
            end = len(wire.GREETING) + wire.NONCE
            if len(greeting) < end:
                return
            nonce = os.urandom(wire.NONCE)
            self._codec = Codec(self._key, greeting[len(wire.GREETING) : end], nonce, hub=False)
            self._stream.send(nonce)
            self._send({
                "type": "hello", "node": self._muster.node, "host": socket.gethostname(), "instance": self._instance, "doing": self._doing,
            })  # fmt: skip
            data = greeting[end:]
        try:
            for message in self._codec.feed(data):
                self._on_message(message)
        except wire.NOT_UNDERSTOOD as error:
            self._on_end(OSError(errno.EPROTO, f"what answers there is not understood: {error!s:.200}"))

    def _on_end(self, error: OSError | None) -> None:
        """The connection is over, or worth nothing."""
        self._cancel("greeting")
        self._cancel("ping")
        self._answered = True
        again: list[lookup.Address] = []
        if self._stream:
            self._stream.close()
        if self.over:
            return
        if self.joined:
            self.joined = False
            self._broken_since, self._broken_by = self._loop.clock(), error
            again = self._resolved
            why = str(error.strerror if error else "it was closed")
        elif self._codec and error is None:
            why = self._other_key = "it closes the connection: another RANKLAUNCH_SECRET there, or another job's name"
        else:
            why = str(error.strerror if error else f"what answers at port {self._muster.port} is not ranklaunch")
        if self._adopt:  # inside this process; nobody to come back to
            self._lose()
            return
        self._fail_to_come(why, again)

    @property
    def _started(self) -> bool:
        """Whether there is something that node 0's end would be the end of."""
        return self._released or self._stopping

    def _lose(self) -> None:
        self.over = True
        since = self._broken_since or self._loop.clock()
        # Without the time, which each node has seen another moment of: the others, too, are to say this.
        self._call(self._events.lost, gone.suspect(0, self._muster.hosts[0], gone.silence(self._broken_by), self.wall(since)))

    # What node 0 says

    def _on_message(self, message: Message) -> None:
        handle = {
            "welcome": self._on_welcome, "pong": self._on_pong, "status": self._on_status, "release": self._on_release,
            "stop": self._on_stop, "judgement": self._on_judgement, "dismissed": self._on_dismissed,
        }.get(str(message.get("type")))  # fmt: skip
        if handle:
            handle(message)

    def _on_welcome(self, message: Message) -> None:
        self._cancel("greeting")
        hub_id = str(message["hub"])
        if self._started and hub_id != self._hub_id:  # node 0 was started anew, for an attempt that this node is no part of
            self._lose()
            return
        self._hub_id = hub_id
        self.joined, self._broken_since, self._other_key = True, None, ""
        self._pings = 0
        self._ping()
        for kept in (self._ready, *self._last):
            if kept:
                self._send(kept)

    def _on_pong(self, message: Message) -> None:
        now, sent, theirs = self._loop.clock(), float(message["sent"]), float(message["time"])
        trip = now - sent
        if not (0 <= trip <= 60 and 0 <= theirs <= 4e10):
            return
        best = self._offset
        if not best or trip <= best[0] or now - best[1] > TRUSTED_S:
            self._offset = (trip, now, theirs - (sent + now) / 2)

    def _on_status(self, message: Message) -> None:
        """From node 0, now and then: what it waits for."""
        self._missing = str(message["missing"])
        if self._ready and not self._released:
            self._say(f"muster: waiting for {self._missing}")

    def _on_release(self, message: Message) -> None:
        if not self._released:
            self._released = True
            self.shared = wire.texts(message.get("shared", {}))
            self._cancel("status")
            self._call(self._events.released, str(message.get("text", "")))

    def _on_stop(self, message: Message) -> None:
        judgement = blame.judgement(message["judgement"])
        self._stopping = True
        self._send({"type": "stopping"})
        self._call(self._events.stop, judgement)

    def _on_judgement(self, message: Message) -> None:
        judgement = blame.judgement(message["judgement"])
        self._send({"type": "bye"})
        self.over = True
        self._call(self._events.judged, judgement)

    def _on_dismissed(self, message: Message) -> None:
        self._send({"type": "bye"})
        self.over = True
        self._call(self._events.dismissed)

    def _call(self, event: Callable[..., object], *what: object) -> None:
        """Behind the reading, which takes what goes wrong in it for the other side's nonsense."""
        self._loop.after(0, lambda: event(*what))

    # Sending

    def _keep(self, message: Message) -> None:
        self._last.append(message)
        self._send(message)

    def _send(self, message: Message) -> None:
        if self._codec and self._stream and (self.joined or message["type"] == "hello"):
            self._stream.send(self._codec.frame(message))

    def _ping(self) -> None:
        self._send({"type": "ping", "sent": self._loop.clock()})
        self._pings += 1
        self._after("ping", PING_S if self._pings < PINGS else self._ping_s, self._ping)

    def _status(self) -> None:
        self._after("status", STATUS_S, self._status)
        if not self.joined:
            self._say(f"muster: waiting for {self.missing}")

    def _after(self, name: str, seconds: float, callback: Callable[[], object]) -> None:
        self._cancel(name)
        self._timers[name] = self._loop.after(seconds, callback)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer:
            timer.cancel()


def _other_greeting(greeting: bytes) -> str:
    if greeting.startswith(b"ranklaunch muster "):
        return "another version of ranklaunch answers there"
    return "what answers there is not ranklaunch"
