"""A real node 0 on its loop, and members that are raw sockets: both driven by one thread, so that nothing depends on a scheduler."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import muster_machines
from muster_machines import FACTS, STAMP, suspect

from ranklaunch.muster import wire
from ranklaunch.muster.driver import HubDriver
from ranklaunch.muster.events import Action, Decide, Decided, Told
from ranklaunch.muster.wire import Codec
from ranklaunch.system.loop import Loop
from testbench.waiting import DEADLINE_S, free_port

HUB = "127.0.0.1"
KEY = wire.job_key(b"a secret", "job")
CUT = struct.pack("ii", 1, 0)  # SO_LINGER: close() resets the connection


class Client:
    """One connection to the hub, which speaks as a member does unless it is told otherwise."""

    def __init__(self, bench: Bench, key: bytes = KEY, source: str = HUB) -> None:
        self.bench = bench
        self.key = key
        self.messages: list[dict[str, Any]] = []
        self.raw = bytearray()
        self.codec: Codec | None = None
        self.closed = self.failed = False  # closed: by the hub
        self.queue = bytearray()
        self.sent_raw = bytearray()
        self.on_message: Callable[[Client, dict[str, Any]], object] = lambda client, message: None
        self.on_codec: Callable[[Client], object] = lambda client: None
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT)
        if source != HUB:
            self.sock.bind((source, 0))
        code = self.sock.connect_ex((HUB, bench.muster.port))
        assert code in (0, 115), os.strerror(code)  # EINPROGRESS
        bench.clients.register(self.sock, selectors.EVENT_READ, self)

    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    def read(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed = True
            self.stop_reading()
            return
        if self.codec:
            self.take(data)
            return
        self.raw += data
        end = len(wire.GREETING) + wire.NONCE
        if len(self.raw) >= end and self.raw.startswith(wire.GREETING):
            nonce = os.urandom(wire.NONCE)
            self.codec = Codec(self.key, bytes(self.raw[len(wire.GREETING) : end]), nonce, hub=False)
            self.send_raw(nonce)
            self.on_codec(self)
            self.take(bytes(self.raw[end:]))

    def take(self, data: bytes) -> None:
        assert self.codec
        for message in self.codec.feed(data):
            self.messages.append(message)
            self.on_message(self, message)

    def send(self, **message: Any) -> None:
        assert self.codec
        self.send_raw(self.codec.frame({**STAMP, **message}))

    def send_raw(self, data: bytes) -> None:
        """What the kernel does not take now goes later."""
        self.sent_raw += data if len(self.sent_raw) < 1 << 16 else b""
        self.queue += data
        self.push()

    def push(self) -> None:
        try:
            while self.queue:
                del self.queue[: self.sock.send(self.queue)]
        except BlockingIOError:
            pass
        except OSError:
            self.failed = True
            self.queue.clear()

    def stop_reading(self) -> None:
        if self.sock.fileno() in self.bench.clients.get_map():
            self.bench.clients.unregister(self.sock)

    def cut(self) -> None:
        """A reset, as when something in the network forgets the connection, or as the kernel does for a process that was killed."""
        if self.sock.fileno() >= 0:
            self.stop_reading()
            self.queue.clear()
            self.sock.close()


class Clock:
    """Monotonic seconds, and those that a test has let pass besides."""

    def __init__(self) -> None:
        self.more = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.more


class Owner:
    """Supervisor's side of drivers. news: the actions of a member, in their order."""

    def __init__(self, hear: Callable[[int, str, Any], object] = lambda *_: None) -> None:
        self.news: list[Action] = []
        self._hear = hear

    def on_word(self, word: Told, *, at_node_0: bool = False) -> None:
        self._hear(word.node, word.topic, word.body)

    def on_news(self, action: Action) -> None:
        self.news.append(action)

    def decide(self, question: Decide) -> Decided:
        return Decided(False, question.judgement)


class Bench:
    """hub_s: seconds of CPU that the hub has used."""

    def __init__(self, nodes: int, *, grace_s: float = 1.0, hear: Callable[[int, str, Any], object] = lambda *_: None, **more: Any) -> None:
        self.muster = muster_machines.muster(nodes, port=free_port(), **more)
        self.said: list[str] = []
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.clients = selectors.DefaultSelector()
        self.all: list[Client] = []
        self.hub_s = 0.0
        self.node_0 = HubDriver(self.muster, KEY, self.loop, self.said.append, Owner(hear), grace_s, "all succeeded")
        self.hub, self.door = self.node_0.hub, self.node_0.door

    def close(self) -> None:
        for client in self.all:
            client.cut()
        self.clients.close()
        self.node_0.close()
        self.loop._epoll.close()

    def client(self, key: bytes = KEY, source: str = HUB) -> Client:
        client = Client(self, key, source)
        self.all.append(client)
        return client

    def turn(self) -> None:
        """One step of the hub that never waits, and one of the clients."""
        self.loop.after(0, lambda: None)
        before = time.thread_time()
        self.loop.step()
        self.hub_s += time.thread_time() - before
        for key, _ in self.clients.select(0.0005):
            key.data.read()
        for client in self.all:
            if client.queue:
                client.push()

    def run(self, until: Callable[[], Any], what: str, timeout: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + timeout
        while not until():
            assert time.monotonic() < deadline, f"waited {timeout:g} s in vain: {what}; said: {self.said[-5:]}"
            self.turn()

    def settle(self) -> None:
        """For what must not happen: a few turns in which nothing more comes."""
        for _ in range(20):
            self.turn()

    def pass_time(self, seconds: float) -> None:
        """By the hub's clock."""
        self.clock.more += seconds
        self.settle()

    def member(self, node: int, instance: str = "", *, facts: Any = FACTS, **more: Any) -> Client:
        """Says hello, and ready as soon as it is welcome (facts None: never)."""
        client = self.client()
        hello = {"type": "hello", "node": node, "instance": instance or f"i{node}", "host": f"h{node}", "doing": "starting", **more}
        client.on_codec = lambda c: c.send(**hello)

        def answer(c: Client, message: dict[str, Any]) -> None:
            if message["type"] == "welcome" and facts is not None:
                c.send(type="ready", facts=facts, index=node, host="")
            elif message["type"] == "stop":
                c.send(type="stopping")

        client.on_message = answer
        return client

    def members(self, nodes: Iterable[int], **more: Any) -> list[Client]:
        return [self.member(node, **more) for node in nodes]

    def released(self, members: Iterable[Client]) -> None:
        waited = list(members)
        self.run(lambda: all(m.of("release") for m in waited), "the release")

    def judged(self, members: Iterable[Client]) -> dict[str, Any]:
        """The one judgement that all of them got."""
        waited = list(members)
        self.run(lambda: all(m.of("judgement") for m in waited), "the judgement")
        found = [m.of("judgement")[-1]["judgement"] for m in waited]
        assert all(judgement == found[0] for judgement in found)
        judgement: dict[str, Any] = found[0]
        return judgement

    def fails(self, members: list[Client], node: int = 1, code: int = 3) -> dict[str, Any]:
        """One of the released members fails, and all get the same."""
        value = suspect(node, time.time(), code=code)
        members[node].send(type="fail", suspect=value)
        self.run(lambda: all(m.of("stop") for m in members), "the order to stop")
        for m in members:
            m.send(type="report", suspects=[value] if m is members[node] else [], finishes=[])
        judgement = self.judged(members)
        assert (judgement["outcome"], judgement["exit_code"], judgement["culprit"]["node"]) == ("failed", code, node)
        for m in members:
            m.send(type="bye")
        self.run(lambda: self.hub.settled, "the end")
        return judgement

    def works(self, nodes: int = 3) -> None:
        """The genuine members come, are released, and hear of a failure."""
        members = self.members(range(nodes))
        self.released(members)
        self.fails(members)
