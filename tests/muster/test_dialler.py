"""A node's way to node 0 against real sockets, and what may stand in node 0's place."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from muster_helpers import CUT, HUB, KEY, Bench, Clock, Owner
from muster_machines import FACTS, STAMP, muster, suspect

from ranklaunch.muster import liveness, wire
from ranklaunch.muster.driver import MemberDriver
from ranklaunch.muster.events import Judged, Released, Stop
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import messages
from testbench.waiting import DEADLINE_S

IDLE_S = 0.003


class Fake:
    """Listens where node 0 should, and does `answer` with each connection."""

    def __init__(self, answer: Callable[[Fake, socket.socket], object]) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.count = 0
        self.held: list[socket.socket] = []
        self.owner = Owner()
        self.said: list[str] = []
        self.answer = answer
        self.listener = socket.socket()
        self.listener.bind((HUB, 0))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.loop.on_readable(self.listener.fileno(), self.accept)
        self.muster = muster(2, 1, self.listener.getsockname()[1])
        self.node = MemberDriver(self.muster, KEY, self.loop, self.said.append, self.owner)
        self.member = self.node.member

    def accept(self) -> None:
        sock, _ = self.listener.accept()
        self.count += 1
        self.held.append(sock)
        try:
            self.answer(self, sock)
        except OSError:
            pass
        while len(self.held) > 2:
            self.held.pop(0).close()

    def until(self, done: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}; {self.member.why}"
            timer = self.loop.after(IDLE_S, self.idle)
            self.loop.step()
            timer.cancel()

    def idle(self) -> None:
        """Nothing happens any more: time may pass. Not so much that a connection which is being opened is given up."""
        self.clock.more += 2.0

    def close(self) -> None:
        self.node.close()
        waits = [fd for fd, (_, on_writable) in self.loop._waiting.items() if on_writable]
        self.until(lambda: not any(fd in self.loop._waiting for fd in waits), "the attempt that was under way ends")
        for sock in (self.listener, *self.held):
            sock.close()
        self.loop._epoll.close()


GREETED = wire.GREETING + b"n" * wire.NONCE


def wrong_key_hub(fake: Fake, sock: socket.socket) -> None:
    """Closes as soon as it has read what it cannot believe."""
    sock.sendall(GREETED)
    got = bytearray()

    def read() -> None:
        got.extend(sock.recv(4096))
        if len(got) >= 60:
            fake.loop.forget(sock.fileno())
            sock.shutdown(socket.SHUT_RDWR)

    fake.loop.on_readable(sock.fileno(), read)


IMPOSTORS = {
    "a web server": (lambda f, s: s.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "the program at the port is not ranklaunch"),
    "garbage": (lambda f, s: s.sendall(os.urandom(60_000)), "the program at the port is not ranklaunch"),
    "another version": (lambda f, s: s.sendall(b"ranklaunch muster 1\n" + b"x" * 50), "another version of ranklaunch answers there"),
    "silence": (lambda f, s: None, "the program at the port does not answer as ranklaunch"),
    "half a greeting": (lambda f, s: s.sendall(GREETED[:10]), "the program at the port does not answer as ranklaunch"),
    "silence after the greeting": (lambda f, s: s.sendall(GREETED), "the program at the port does not answer as ranklaunch"),
    "closed at once": (lambda f, s: s.close(), "the program at port PORT is not ranklaunch"),
    "garbage after the greeting": (
        lambda f, s: s.sendall(GREETED + b"\0\0\0\5" + b"x" * 60),
        "invalid bytes from node 0: a signature is wrong",
    ),
    "a huge frame": (
        lambda f, s: s.sendall(GREETED + b"\x7f\xff\xff\xff" + b"x" * 60_000),
        "invalid bytes from node 0: a frame of 2147483647 bytes",
    ),
    "an endless frame": (
        lambda f, s: s.sendall(GREETED + b"\0\1\0\0" + b"x" * 60_000),
        "the program at the port does not answer as ranklaunch",
    ),
    "another key": (wrong_key_hub, "it closes the connection: another RANKLAUNCH_SECRET there"),
}


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_a_member_says_what_answers_and_tries_again(kind: str) -> None:
    answer, why = IMPOSTORS[kind]
    fake = Fake(answer)
    why = why.replace("PORT", str(fake.muster.port))
    try:
        fake.node.start()
        fake.node.ready(FACTS, 1, "", {})
        fake.until(lambda: fake.count >= 5 and why in fake.member.why, f"{why!r} is said")
        before, timers = len(os.listdir("/proc/self/fd")), len(fake.loop._timers)
        fake.until(lambda: fake.count >= 55, "it goes on trying")
        assert len(os.listdir("/proc/self/fd")) <= before + 3
        assert len(fake.loop._timers) <= timers + 2 * 50 + 10  # those that were cancelled go when their time has come
        assert len(fake.node._connection._greeting) <= 1 << 16
        assert fake.owner.news == []
        assert not fake.member.joined
        assert why in fake.member.missing
    finally:
        fake.close()


def cuts(fake: Fake, sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT)
    sock.sendall(GREETED)
    sock.close()


def goes(fake: Fake, sock: socket.socket) -> None:
    fake.loop.forget(fake.listener.fileno())
    fake.listener.close()
    sock.close()


@pytest.mark.parametrize(("then", "why"), [(cuts, "reset"), (goes, "no answer on port")])
def test_that_the_keys_differ_is_said_to_the_end(then: Callable[..., None], why: str) -> None:
    """Node 0 may end meanwhile, and then says less."""
    fake = Fake(lambda fake, sock: (wrong_key_hub if fake.count == 1 else then)(fake, sock))
    try:
        fake.node.start()
        fake.node.ready(FACTS, 1, "", {})
        fake.until(lambda: why in fake.member.why, f"{why!r} is said")
        assert "another RANKLAUNCH_SECRET there" in fake.member.missing
    finally:
        fake.close()


def test_a_member_whose_node_0_does_not_listen_says_so() -> None:
    fake = Fake(lambda fake, sock: None)
    fake.loop.forget(fake.listener.fileno())
    fake.listener.close()
    try:
        fake.node.start()
        before = len(os.listdir("/proc/self/fd"))
        fake.until(lambda: "no answer on port" in fake.member.why, "why")
        fake.until(lambda: fake.member._tries > 40, "it goes on trying")
        assert f"no answer on port {fake.muster.port} (connection refused)" in fake.member.missing
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    finally:
        fake.close()


def test_a_node_finds_node_0_in_the_end() -> None:
    """Real ones, of both sides, and node 0's own: what impostors were there before does not matter."""
    b = Bench(2)
    owners = [Owner(), Owner()]
    nodes = []
    try:
        for node in range(2):
            plan = muster(2, node, b.muster.port)
            nodes.append(MemberDriver(plan, KEY, b.loop, b.said.append, owners[node], 3 + node, None if node else b.node_0))
            nodes[-1].start()
            nodes[-1].ready(FACTS, node, "", {"key": f"of {node}"})
        b.run(lambda: all(owner.news for owner in owners), "the release")
        assert [node.member.shared for node in nodes] == [{"key": "of 0"}] * 2
        assert b.hub.here.offers == {0: {"key": "of 0"}, 1: {"key": "of 1"}}
        value = messages.suspect(suspect(0, time.time()))
        nodes[0].fail(value)
        b.run(lambda: all(len(owner.news) > 1 for owner in owners), "the order to stop")
        nodes[0].report([value], [], [])
        nodes[1].report([], [], [])
        b.run(lambda: all(node.over for node in nodes), "the judgement")
        nodes[1].leave()
        b.run(lambda: not b.hub.settled and nodes[1].flushed, "that one node has written down how the job ended")
        b.settle()
        assert nodes[1].member.joined, "a node was let go before all had written down how the job ended"
        nodes[0].leave()
        b.run(lambda: b.hub.settled and not any(node.member.joined for node in nodes), "the end")
        assert [[type(action) for action in owner.news] for owner in owners] == [[Released, Stop, Judged]] * 2
        judged = [owner.news[2] for owner in owners]
        assert judged[0] == judged[1]
        assert isinstance(judged[0], Judged)
        assert judged[0].judgement.exit_code == 3
    finally:
        for node in nodes:
            node.close()
        b.close()


def test_why_a_node_that_says_too_much_is_not_with_node_0_is_said() -> None:
    """What ends the connection then is no error of the system's, which would have words of its own."""
    b = Bench(2)
    node = MemberDriver(muster(2, 1, b.muster.port), KEY, b.loop, b.said.append, Owner())
    try:
        node.start()
        b.run(lambda: node.member.joined, "the welcome")
        for _ in range(3000):  # in one turn of the loop, in which node 0 reads none of it
            if node.member.joined:
                node.busy("x" * 20_000)
        assert "node 0 (127.0.0.1): it does not read from its connection: " in node.member.missing
        assert " bytes wait for it" in node.member.missing
    finally:
        node.close()
        b.close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer"),
        (OSError("its buffer is full"), "its buffer is full"),
        (TimeoutError("timed out"), "timed out"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_without_a_number_has_words_too(error: OSError, why: str) -> None:
    assert liveness.words(error) == why


def test_what_is_said_of_a_word_comes_before_what_follows_from_the_next_message() -> None:
    """A node asks for evidence and fails, and node 0 reads both at once: the others are to take evidence before they stop."""
    b = Bench(2, hear=lambda node, topic, body: b.node_0.say("evidence", {"number": 1}))
    try:
        members = b.members(range(2))
        b.released(members)
        asks = {**STAMP, "type": "word", "number": 1, "topic": "evidence", "body": {}}
        fails = {**STAMP, "type": "fail", "suspect": suspect(1, time.time())}
        codec = members[1].codec
        assert codec
        members[1].send_raw(codec.frame(asks) + codec.frame(fails))
        b.run(lambda: members[0].of("stop") and members[0].of("word"), "both")
        said = [message["type"] for message in members[0].messages]
        assert said.index("word") < said.index("stop")
    finally:
        b.close()


def test_node_0_may_be_held_up_for_as_long_as_it_takes() -> None:
    """A dead file system may hold it between the opening of the way to itself and the first look at it, and again after that."""
    b = Bench(2)
    owner = Owner()
    own = MemberDriver(b.muster, KEY, b.loop, b.said.append, owner, 1, b.node_0)
    try:
        own.start()
        own.ready(FACTS, 0, "")
        b.run(lambda: (bool(b.clock.more) and own.member.joined) or b.pass_time(60), "it is welcome")
        other = b.member(1)
        b.released([other])
        b.run(lambda: owner.news, "the release")
        assert [type(action) for action in owner.news] == [Released]
    finally:
        own.close()
        b.close()
