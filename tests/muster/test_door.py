"""Node 0's door against real sockets: whoever connects, and whatever it sends, hurts nobody but itself."""

from __future__ import annotations

import os
import random
import resource
import socket
import time
from collections.abc import Callable

import pytest
from muster_helpers import HUB, KEY, Bench, Client, Owner
from muster_machines import FACTS, STAMP, muster, suspect

from ranklaunch.muster import door, wire
from ranklaunch.muster.driver import HubDriver
from ranklaunch.muster.wire import Codec
from ranklaunch.system import lookup, stream
from ranklaunch.system.loop import Loop
from testbench.waiting import DEADLINE_S, free_port

# (a) Whoever else connects


def goes(b: Bench) -> None:
    """One whose connection broke has had its time."""

    def gone() -> bool:
        b.pass_time(0.5)
        return any("is gone; waiting" in line for line in b.said)

    b.run(gone, "it is gone")


def garbage(seed: int) -> list[bytes]:
    chance = random.Random(seed)
    texts = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
        b"SSH-2.0-x\r\n",
        b"\0" * 64,
        b"\xff" * 64,
    ]
    return [*texts, *(chance.randbytes(chance.randrange(1, 4000)) for _ in range(40))]


def test_garbage_hurts_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    wild = [b.client() for _ in garbage(1)]
    for client, data in zip(wild, garbage(1)):
        client.on_codec = lambda client: None
        client.key = b"whatever"
        client.send_raw(data)
    b.run(lambda: sum(client.closed for client in wild) > 20, "most are refused at once")
    b.works()
    assert "Traceback" not in str(b.said)


@pytest.mark.parametrize("sent", [0, 1, 15, 16, 17, 19, 20, 52, 53, 80])
def test_half_a_greeting_or_frame_hurts_nobody(bench: Callable[..., Bench], sent: int) -> None:
    b = bench(2)
    genuine = b.client()
    genuine.on_codec = lambda client: client.send(type="hello", node=0, instance="x", host="h", doing="")
    b.run(lambda: genuine.of("welcome"), "the welcome")
    halves = [b.client() for _ in range(5)]
    for client in halves:
        client.on_codec = lambda client: None
        client.key = b"unused"
        client.raw += b"no greeting"  # so that it says nothing by itself
        client.send_raw(bytes(genuine.sent_raw[:sent]))
    genuine.cut()
    goes(b)
    for client in halves[:2]:
        client.cut()
    b.works(2)


def test_a_thousand_that_say_nothing_hurt_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    idle = [b.client() for _ in range(1000)]
    for client in idle:
        client.raw += b"silent"
    b.run(lambda: len(b.door._unknown) == 1000, "they are there")
    b.works()
    assert not any(client.closed for client in idle)


def test_of_too_many_the_newest_are_kept(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    idle: list[Client] = []
    for count in range(250, 1501, 250):
        idle += [b.client() for _ in range(250)]
        for client in idle:
            client.raw += b"silent"
        b.run(lambda: sum(len(c.raw) > 40 for c in idle) == count, "each has its greeting")  # noqa: B023
    b.run(lambda: sum(c.closed for c in idle) == 1500 - door.UNKNOWN_MOST - 2, "the oldest are closed")
    assert len(b.door._unknown) <= door.UNKNOWN_MOST + 2
    b.works(2)


def test_those_who_say_nothing_are_closed_in_time(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    silent, slow = b.client(), b.client()
    silent.raw += b"silent"
    slow.raw += b"slow"

    def drip() -> bool:
        slow.send_raw(b"\0")
        b.pass_time(1)
        return silent.closed and slow.closed

    b.run(drip, "both are closed")
    b.works(2)


def test_connections_that_are_closed_at_once_hurt_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    for number in range(300):
        client = b.client()
        if number % 3:
            b.turn()
        client.cut()
    b.run(lambda: not b.door._unknown, "all are gone")
    before = len(os.listdir("/proc/self/fd"))
    b.works(2)
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_a_member_may_be_slow(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    slow = b.client()
    pieces: list[int] = []

    def drip(client: Client) -> None:
        assert client.codec
        pieces.extend(client.codec.frame({"type": "hello", "node": 1, "instance": "slow", "host": "h", "doing": "", **STAMP}))

    slow.on_codec = drip
    b.run(lambda: pieces, "the greeting")
    for byte in pieces:
        slow.send_raw(bytes([byte]))
        b.turn()
    b.run(lambda: slow.of("welcome"), "the welcome")
    slow.send(type="ready", facts=FACTS, index=1, host="")
    other = b.member(0)
    b.released([slow, other])
    b.fails([other, slow])


def test_one_that_never_reads_is_dropped(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_QUEUED", 64 * 1024)
    b = bench(2)
    greedy = b.member(1, "greedy", facts=None)
    b.run(lambda: greedy.of("welcome"), "the welcome")
    greedy.stop_reading()
    peer = next(iter(b.door._peers.values()))
    for sock, kind in ((greedy.sock, socket.SO_RCVBUF), (peer.stream._sock, socket.SO_SNDBUF)):
        sock.setsockopt(socket.SOL_SOCKET, kind, 16 * 1024)  # the kernel's own queues are soon full
    most = 0

    def more() -> bool:
        nonlocal most
        if not greedy.queue:
            for _ in range(500):
                greedy.send(type="ping", sent=1.5)
        most = max(most, peer.stream.pending)
        return peer.stream.closed

    b.run(more, "it is dropped")
    assert most <= stream.MOST_QUEUED + wire.MOST
    goes(b)
    b.works(2)


def test_a_wrong_key_is_said_once_for_each_of_ten_addresses(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    strangers = [b.client(b"another", f"127.0.1.{1 + n % 15}") for n in range(45)]
    for client in strangers:
        client.on_codec = lambda client: client.send(type="hello", node=1, instance="x", host="h", doing="")
    b.run(lambda: all(client.closed for client in strangers), "they are closed")
    told = [line for line in b.said if "has another key" in line]
    assert len(told) == len(set(told)) == door.REFUSED_SAID
    assert all(line.startswith("muster: 127.0.1.") for line in told)
    member = b.member(0)
    b.run(lambda: member.of("welcome"), "the welcome")
    b.pass_time(30)
    b.run(lambda: member.of("status"), "what is waited for")
    assert "refused: 127.0.1." in member.of("status")[0]["missing"]
    member.cut()
    goes(b)
    b.works(2)


def test_what_was_recorded_is_worth_nothing(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[1].send(type="fail", suspect=suspect(1))
    recorded = bytes(members[1].sent_raw)
    b.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    b2 = bench(2)
    replayed = b2.client()
    replayed.raw += b"says what was recorded"
    replayed.send_raw(recorded)
    b2.run(lambda: replayed.closed, "it is refused")
    assert len(b2.said) == 1
    assert f"{HUB} has another key" in b2.said[0]
    b2.works(2)


def test_the_hubs_own_words_are_worth_nothing(bench: Callable[..., Bench]) -> None:
    """The hub's first frame, sent back to it with the numbers of its own connection."""
    b = bench(2)
    mirror = b.client()
    mirror.on_codec = lambda client: client.send_raw(bytes(client.raw[-16:]))
    mirror.key = KEY
    b.run(lambda: mirror.codec, "the greeting")
    hello = b.client()

    def turned(client: Client) -> None:
        nonces = bytes(client.raw[-16:]), bytes(client.sent_raw[:16])
        ours = Codec(KEY, *nonces, hub=True)
        client.send_raw(ours.frame({"type": "hello", "node": 1, "instance": "x", "host": "", "doing": "", **STAMP}))

    hello.on_codec = turned
    b.run(lambda: hello.closed, "it is refused")
    b.works(2)


def signed_text(client: Client, body: str) -> bytes:
    """A frame of text that json.dumps would not write."""
    assert client.codec
    data = body.encode()
    tag = client.codec._tag(b"member", client.codec._sent, data)
    client.codec._sent += 1
    return len(data).to_bytes(4, "big") + tag + data


def survives(b: Bench, body: str) -> Client:
    other, client = b.member(0), b.member(1, "odd", facts=None)
    b.run(lambda: client.of("welcome"), "the welcome")
    client.send_raw(signed_text(client, body))
    client.send(type="ping", sent=1.5)
    b.run(lambda: client.closed or any(m["sent"] == 1.5 for m in client.of("pong")), "an answer")
    other.send(type="ping", sent=1)
    b.run(lambda: other.of("pong"), "the other is not hurt")
    return client


DEEP_BODIES = {
    "what comes back": '{"type":"ping","sent":DEEP,STAMP}',
    "what is shown": '{"type":"fail","suspect":{"node":DEEP},STAMP}',
    "what is told": '{"type":"busy","doing":DEEP,STAMP}',
    "the type": '{"type":DEEP,STAMP}',
    "a fact": '{"type":"ready","facts":{"a":DEEP},"index":1,"host":"x",STAMP}',
}


@pytest.mark.parametrize("body", DEEP_BODIES.values(), ids=list(DEEP_BODIES))
def test_no_depth_hurts_anybody(bench: Callable[..., Bench], body: str) -> None:
    """Looks for the depth from which on nothing is understood, where one step more or less may be too much for the other."""

    def understood(depth: int) -> bool:
        b = bench(2)
        client = survives(b, body.replace("STAMP", '"attempt":1,"round":0').replace("DEEP", "[" * depth + "]" * depth))
        taken = not any("not a JSON object" in line for line in b.said)
        b.close()
        assert client.closed or client.of("pong")
        return taken

    low, high = 1, 60_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if understood(middle) else (low, middle)
    for depth in range(low - 12, low):
        understood(depth)


def test_nothing_is_heard_of_a_connection_that_was_dropped(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    client = b.client()

    def both(client: Client) -> None:
        assert client.codec
        hello = {"type": "hello", "node": 1, "instance": "x", "host": "h", "doing": ""}
        client.send_raw(client.codec.frame({"type": "nonsense"}) + client.codec.frame({**STAMP, **hello}))

    client.on_codec = both
    b.run(lambda: client.closed, "it is closed")
    assert not b.hub.here.by_instance


def test_a_hub_that_rests_can_be_closed() -> None:
    """It takes no connection for a moment when there is no descriptor left."""
    b = Bench(2)
    b.door._rest()
    b.close()


@pytest.mark.parametrize(("limit", "room"), [(600, 600 - 2 - door.SPARE_FDS), (100, door.LEAST_UNKNOWN)])
def test_who_has_not_signed_leaves_room_for_those_who_need_it(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, limit: int, room: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: None)
    assert bench(2).door._most_unknown == room


def test_without_descriptors_the_hub_lives(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "numeric", lambda host: False)  # the hosts of real jobs have names
    b = bench(2)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    filled = [os.dup(0)]  # what the limit counts is the number of a descriptor, and there are gaps below the highest
    while filled[-1] < highest:
        filled.append(os.dup(0))
    idle = [b.client() for _ in range(60)]
    for client in idle:
        client.raw += b"silent"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(filled) + 70, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        for _ in range(6):
            b.pass_time(0.25)
            time.sleep(0.1)  # for the threads that look names up
    finally:
        for fd in filled:
            os.close(fd)
    for client in idle:
        client.cut()
    b.works(2)


def test_a_port_that_is_taken_is_said_and_tried_again() -> None:
    plan = muster(2, port=free_port())
    with socket.socket() as taken:
        taken.bind((HUB, plan.port))
        taken.listen()
        loop, said = Loop(), []
        node_0 = HubDriver(plan, KEY, loop, said.append, Owner(), 1.0, "")
        assert f"port {plan.port} of this node is in use by process {os.getpid()} (" in node_0.door.trouble
    until = time.monotonic() + DEADLINE_S
    while node_0.door.trouble:
        assert time.monotonic() < until
        loop.step()
    node_0.close()
