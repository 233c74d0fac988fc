"""Node 0's side of the muster against real sockets: what it lets happen, and what nobody can make it do."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import conftest
import pytest
from muster_helpers import CUT, FACTS, HUB, KEY, Bench, Client, finish, hosts, muster, suspect
from supervise_helpers import DEADLINE_S

from ranklaunch.muster import door, gathering, gone, wire
from ranklaunch.muster import hub as hub_module
from ranklaunch.muster import member as member_module
from ranklaunch.muster.hub import ENDING, GATHERING, OVER, RUNNING, Hub
from ranklaunch.muster.member import Events, Member
from ranklaunch.muster.wire import Codec
from ranklaunch.system import lookup, stream
from ranklaunch.system.loop import Loop
from ranklaunch.values import fields
from ranklaunch.verdict.blame import Judgement


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """The hub raises the limit of open files for itself."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(nodes: int, **more: Any) -> Bench:
        made.append(Bench(nodes, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fails(bench: Bench, members: list[Client], node: int = 1, code: int = 3) -> dict[str, Any]:
    """One of the released members fails, and all get the same."""
    value = suspect(node, code=code)
    members[node].send(type="fail", suspect=value)
    bench.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    for m in members:
        m.send(type="report", suspects=[value] if m is members[node] else [], finishes=[])
    judgement = bench.judged(members)
    assert (judgement["outcome"], judgement["exit_code"], judgement["culprit"]["node"]) == ("failed", code, node)
    for m in members:
        m.send(type="bye")
    bench.run(lambda: bench.hub.settled, "the end")
    return judgement


def works(bench: Bench, nodes: int = 3) -> None:
    """The genuine members come, are released, and hear of a failure."""
    members = bench.members(range(nodes))
    bench.released(members)
    fails(bench, members)


# The plain course


def test_all_come_are_released_and_hear_of_the_first_failure(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "FIRST_STATUS_S", 0.3)
    b = bench(3)
    members = b.members(range(2))
    b.run(lambda: all(m.of("welcome") for m in members), "the welcome")
    b.run(lambda: members[0].of("status"), "what is waited for")
    assert "1 of 3 nodes: 127.1.0.3 (node 2" in members[0].of("status")[0]["missing"]
    assert b.hub.state == GATHERING
    members += b.members([2])
    b.released(members)
    assert b.hub.state == RUNNING
    judgement = fails(b, members)
    assert judgement["reason"] == "rank 1 on node 1 (h1) exited with code 3"
    assert [m.types() for m in members[2:]] == [["welcome", "release", "stop", "judgement"]]
    assert b.said == []


def test_all_succeed(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    members = b.members(range(3))
    b.released(members)
    for node, m in enumerate(members):
        assert not m.of("judgement")
        m.send(type="done", finish=finish(node))
    judgement = b.judged(members)
    assert (judgement["outcome"], judgement["exit_code"], judgement["reason"]) == ("succeeded", 0, "all succeeded")


def test_a_later_failure_does_not_win_and_an_earlier_one_does(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    members = b.members(range(3))
    b.released(members)
    now = time.time()
    members[2].send(type="fail", suspect=suspect(2, now, 5))
    b.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    assert members[0].of("stop")[0]["judgement"]["exit_code"] == 5
    members[0].send(type="report", suspects=[suspect(0, now + 1, 4)], finishes=[])
    members[1].send(type="report", suspects=[suspect(1, now - 1, 3)], finishes=[])
    members[2].send(type="report", suspects=[suspect(2, now, 5)], finishes=[])
    judgement = b.judged(members)
    assert judgement["exit_code"] == 3
    assert [each["exit_code"] for each in judgement["failures"]] == [5, 4]


# (a) Whoever else connects


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
    works(b)
    assert "Traceback" not in str(b.said)


@pytest.mark.parametrize("sent", [0, 1, 15, 16, 17, 19, 20, 52, 53, 80])
def test_half_a_greeting_or_frame_hurts_nobody(bench: Callable[..., Bench], sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "RETURN_S", 0.1)
    monkeypatch.setattr(gone, "RESET_S", 0.1)
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
    b.run(lambda: any("gone again" in line for line in b.said), "it is gone")
    for client in halves[:2]:
        client.cut()
    works(b, 2)


def test_a_thousand_that_say_nothing_hurt_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    idle = [b.client() for _ in range(1000)]
    for client in idle:
        client.raw += b"silent"
    b.run(lambda: len(b.hub._door._unknown) == 1000, "they are there")
    works(b)
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
    assert len(b.hub._door._unknown) <= door.UNKNOWN_MOST + 2
    works(b, 2)


def test_those_who_say_nothing_are_closed_in_time(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "UNKNOWN_S", 0.3)
    b = bench(2)
    silent, slow = b.client(), b.client()
    silent.raw += b"silent"
    slow.raw += b"slow"

    def drip() -> bool:
        slow.send_raw(b"\0")
        return silent.closed and slow.closed

    b.run(drip, "both are closed")
    works(b, 2)


def test_connections_that_are_closed_at_once_hurt_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    for number in range(300):
        client = b.client()
        if number % 3:
            b.turn()
        client.cut()
    b.run(lambda: not b.hub._door._unknown, "all are gone")
    before = len(os.listdir("/proc/self/fd"))
    works(b, 2)
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_a_member_may_be_slow(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    slow = b.client()
    pieces: list[int] = []

    def drip(client: Client) -> None:
        assert client.codec
        pieces.extend(client.codec.frame({"type": "hello", "node": 1, "instance": "slow", "host": "h", "doing": ""}))

    slow.on_codec = drip
    b.run(lambda: pieces, "the greeting")
    for byte in pieces:
        slow.send_raw(bytes([byte]))
        b.turn()
    b.run(lambda: slow.of("welcome"), "the welcome")
    slow.send(type="ready", facts=FACTS, index=0, host="")
    other = b.member(0)
    b.released([slow, other])
    fails(b, [other, slow])


def test_one_that_never_reads_is_dropped(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_QUEUED", 64 * 1024)
    monkeypatch.setattr(gone, "RETURN_S", 0.1)
    monkeypatch.setattr(gone, "RESET_S", 0.1)
    b = bench(2)
    greedy = b.member(1, "greedy", facts=None)
    b.run(lambda: greedy.of("welcome"), "the welcome")
    greedy.stop_reading()
    peer = b.hub._nodes["greedy"].peer
    assert peer
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
    b.run(lambda: "greedy" not in b.hub._nodes, "its place is free")
    works(b, 2)


def test_a_wrong_key_is_said_once_for_each_of_ten_addresses(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "RETURN_S", 0.1)
    monkeypatch.setattr(gone, "RESET_S", 0.1)
    monkeypatch.setattr(hub_module, "FIRST_STATUS_S", 0.3)
    b = bench(2)
    strangers = [b.client(b"another", f"127.0.1.{1 + n % 15}") for n in range(45)]
    for client in strangers:
        client.on_codec = lambda client: client.send(type="hello", node=1, instance="x", host="h", doing="")
    b.run(lambda: all(client.closed for client in strangers), "they are closed")
    told = [line for line in b.said if "has another key" in line]
    assert len(told) == len(set(told)) == door.REFUSED_SAID
    assert all(line.startswith("muster: 127.0.1.") for line in told)
    member = b.member(0)
    b.run(lambda: member.of("status"), "what is waited for")
    assert "refused: 127.0.1." in member.of("status")[0]["missing"]
    member.cut()
    b.run(lambda: any("gone again" in line for line in b.said), "it is gone")
    works(b, 2)


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
    works(b2, 2)


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
        client.send_raw(ours.frame({"type": "hello", "node": 1, "instance": "x", "host": "", "doing": ""}))

    hello.on_codec = turned
    b.run(lambda: hello.closed, "it is refused")
    works(b, 2)


def test_its_own_connection_may_take_as_long_as_this_process_is_held_up(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead file system may hold node 0 between the opening of its own connection and the first look at it."""
    monkeypatch.setattr(door, "UNKNOWN_S", 0.0)
    b = bench(2)
    ours, theirs = socket.socketpair()
    b.hub.adopt(theirs)
    b.run_for(3 * hub_module.TICK_S)
    ours.settimeout(10)
    assert ours.recv(len(wire.GREETING)) == wire.GREETING
    ours.setblocking(False)
    ours.recv(wire.NONCE)
    with pytest.raises(BlockingIOError):  # open, and nothing more to read
        ours.recv(1)
    ours.close()


def test_a_hub_that_rests_can_be_closed() -> None:
    """It takes no connection for a moment when there is no descriptor left."""
    b = Bench(2)
    b.hub._door._rest()
    b.close()


@pytest.mark.parametrize(("limit", "room"), [(600, 600 - 2 - door.SPARE_FDS), (100, door.LEAST_UNKNOWN)])
def test_who_has_not_signed_leaves_room_for_those_who_need_it(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, limit: int, room: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: None)
    assert bench(2).hub._door._most_unknown == room


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
        b.run_for(1.5)
    finally:
        for fd in filled:
            os.close(fd)
    for client in idle:
        client.cut()
    works(b, 2)


# (b) Many


def test_thousands_of_members(bench: Callable[..., Bench], record_property: Callable[[str, object], None]) -> None:
    wanted = 4096
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = door.UNKNOWN_MOST + door.SPARE_FDS + 500
    nodes = wanted if hard == resource.RLIM_INFINITY else min(wanted, (hard - spare) // 2)
    if nodes < wanted and conftest.in_ci():
        pytest.fail(f"{hard} descriptors are not enough for {wanted} nodes")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    b = bench(nodes)
    b.turn()
    times, began, used = [], time.perf_counter(), b.hub_s

    def measure(what: str) -> None:
        nonlocal began, used
        times.append(f"{what} {time.perf_counter() - began:.2f} s ({b.hub_s - used:.2f} s CPU of the hub)")
        began, used = time.perf_counter(), b.hub_s

    members: list[Client] = []
    for start in range(0, nodes, 250):  # as fast as they are taken
        members += b.members(range(start, min(nodes, start + 250)))
        b.turn()
    b.run(lambda: b.hub.state == RUNNING, "all are there")
    b.released(members)
    measure("muster")
    value = suspect(7, code=9)
    members[7].send(type="fail", suspect=value)
    b.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    measure("stop")
    for m in members:
        m.send(type="report", suspects=[value] if m is members[7] else [], finishes=[])
    judgement = b.judged(members)
    measure("judgement")
    assert (judgement["exit_code"], judgement["culprit"]["node"]) == (9, 7)
    for m in members:
        m.send(type="bye")
    b.run(lambda: b.hub.settled, "the end")
    measure("end")
    # Each got one message for each thing that concerns all, however many nodes there are.
    assert {tuple(kind for kind in m.types() if kind != "status") for m in members} == {("welcome", "release", "stop", "judgement")}
    assert max(len(m.of("status")) for m in members) <= 3
    assert not any(m.failed for m in members)
    record_property(f"{nodes} nodes", ", ".join(times))  # pytest --junit-xml=FILE shows them


def test_all_may_come_at_the_same_moment(bench: Callable[..., Bench]) -> None:
    """As they do where all containers start at once and the way to node 0 is long: all are there before the first has answered."""
    b = bench(1500)
    members = b.members(range(1500))
    while len(b.hub._door._unknown) < door.UNKNOWN_MOST:
        b.loop.after(0, lambda: None)
        b.loop.step()
    for _ in range(5):
        b.loop.after(0, lambda: None)
        b.loop.step()
    b.run(lambda: all(m.of("welcome") or m.closed for m in members), "each is welcome, or closed")
    assert sum(m.closed for m in members) == 0


# (c) Whoever has the key, and sends nonsense


ODD: list[Any] = [  # of each type
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x" * 9000,
    "\ud800",
    "\0" * 50,
    [],
    [[]],
    {},
    {"a": {}},
    ["x"] * 300,
]


def odd_messages(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Messages that are right but for one field, and some that are not right at all."""
    right: list[dict[str, Any]] = [
        {"type": "ready", "facts": dict(FACTS), "index": 1, "host": "x"},
        {"type": "fail", "suspect": suspect(1)},
        {"type": "done", "finish": finish(1)},
        {"type": "report", "suspects": [suspect(1)], "finishes": [finish(1)]},
        {"type": "ping", "sent": 1.0},
        {"type": "busy", "doing": "x"},
        {"type": "stopping"},
        {"type": "what a later version has"},
        {"type": "hello", "node": 1, "instance": "again", "host": "h", "doing": ""},
    ]
    for message in right:
        for key in message:
            yield {name: value for name, value in message.items() if name != key}
            for value in chance.sample(ODD, 6):
                yield {**message, key: value}
    for key in suspect(1):
        for value in chance.sample(ODD, 4):
            yield {"type": "report", "suspects": [{**suspect(1), key: value}], "finishes": []}
    for key in suspect(1)["culprit"]:
        for value in chance.sample(ODD, 4):
            yield {"type": "report", "suspects": [{**suspect(1), "culprit": {**suspect(1)["culprit"], key: value}}], "finishes": []}


def is_harmless(message: dict[str, Any]) -> bool:
    """Whether it would not end or start the job by itself, were it the node's word."""
    return message.get("type") not in ("fail", "report", "done")


def test_nonsense_in_the_first_message_hurts_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    right = {"type": "hello", "node": 1, "instance": "x", "host": "h", "doing": "d"}
    wrong = [{**right, key: value} for key in right for value in (None, [], {}, 1.5, True, "" if key == "node" else 7)]
    wrong += [{name: value for name, value in right.items() if name != key} for key in right]
    wrong += [{**right, "type": "fail"}, {}, {**right, "host": "x" * 100_000}]
    clients = [b.client() for _ in wrong]
    for client, message in zip(clients, wrong):
        client.on_codec = lambda client, message=message: client.send(**message)
    b.run(lambda: all(client.closed for client in clients), lambda: [w for w, c in zip(wrong, clients) if not c.closed])
    assert not b.hub._nodes
    assert not b.hub._door._unknown
    works(b, 2)


def test_nonsense_of_a_node_hurts_no_other(bench: Callable[..., Bench]) -> None:
    b = bench(3, allowed=("all",))
    genuine = b.members([0, 1])
    messages = [message for message in odd_messages(random.Random(2)) if is_harmless(message)]
    for number, message in enumerate(messages):
        client = b.member(2, f"odd {number}", facts=None)
        b.run(lambda: client.of("welcome"), "the welcome")  # noqa: B023
        client.send(**message)
        client.send(type="ping", sent=1.5)
        b.run(lambda: client.closed or any(m["sent"] == 1.5 for m in client.of("pong")), "an answer")  # noqa: B023
        assert b.hub.state == GATHERING or (message.get("type") == "ready" and b.hub.state == RUNNING), message
        if b.hub.state == RUNNING:
            break
        client.cut()
        instance = f"odd {number}"
        node = b.hub._nodes.get(instance)
        if node:  # without the second that it has to come back
            b.run(lambda: node.gone_at is not None, "the end")  # noqa: B023
            b.hub._gone(node)
    assert not any(m.closed for m in genuine)
    if b.hub.state == GATHERING:
        genuine += b.members([2])
        b.released(genuine)


def test_nonsense_after_the_release_ends_at_most_who_sends_it(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "RETURN_S", 0.0)
    monkeypatch.setattr(gone, "RESET_S", 0.0)
    for number, message in enumerate(odd_messages(random.Random(3))):
        if number % 8 or message.get("type") == "done":  # see the next test
            continue
        b = bench(2, grace_s=0.1)
        members = b.members(range(2))
        b.released(members)
        members[1].send(**message)
        members[1].send(type="ping", sent=1.5)
        b.run(lambda: members[1].closed or members[1].of("pong"), "an answer")  # noqa: B023
        if members[1].closed:
            b.run(lambda: members[0].of("stop"), "the order to stop")  # noqa: B023
            assert any("what is not understood" in line for line in b.said)
        elif b.hub.state == RUNNING:
            fails(b, members)
            continue
        members[0].send(type="ping", sent=2.5)
        b.run(lambda: members[0].closed or members[0].of("pong"), "the other is not hurt")  # noqa: B023
        assert not members[0].closed


def test_a_success_that_is_not_understood_is_none(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[1].send(type="done", finish=None)
    b.run(lambda: members[1].closed, "it is dropped")
    members[0].send(type="done", finish=finish(0))
    b.run(lambda: members[0].of("stop") or members[0].of("judgement"), "what comes of it")
    assert not members[0].of("judgement")


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
    "what comes back": '{"type":"ping","sent":DEEP}',
    "what is shown": '{"type":"fail","suspect":{"node":DEEP}}',
    "what is told": '{"type":"busy","doing":DEEP}',
    "the type": '{"type":DEEP}',
    "a fact": '{"type":"ready","facts":{"a":DEEP},"index":1,"host":"x"}',
}


@pytest.mark.parametrize("body", DEEP_BODIES.values(), ids=list(DEEP_BODIES))
def test_no_depth_hurts_anybody(bench: Callable[..., Bench], body: str) -> None:
    """Looks for the depth from which on nothing is understood, where one step more or less may be too much for the other."""

    def understood(depth: int) -> bool:
        b = bench(2)
        client = survives(b, body.replace("DEEP", "[" * depth + "]" * depth))
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


def test_a_time_of_any_size_hurts_nobody(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    body = json.dumps({"type": "fail", "suspect": suspect(1, 1234567.5)}).replace("1234567.5", "9" * 400)
    survives(b, body)


def test_nothing_is_heard_of_a_connection_that_was_dropped(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    client = b.client()

    def both(client: Client) -> None:
        assert client.codec
        hello = {"type": "hello", "node": 1, "instance": "x", "host": "h", "doing": ""}
        client.send_raw(client.codec.frame({"type": "nonsense"}) + client.codec.frame(hello))

    client.on_codec = both
    b.run(lambda: client.closed, "it is closed")
    assert not b.hub._nodes


def test_huge_texts_of_one_do_not_keep_the_judgement_from_the_others(bench: Callable[..., Bench]) -> None:
    b = bench(3, grace_s=0.2)
    members = b.members(range(3))
    b.released(members)
    known = {"name": "x", "kind": "cause", "line": "x", "meaning": "m" * 60_000, "remedy": "r" * 60_000, "source": "s"}
    value = suspect(1)
    value["culprit"]["error"] = known
    members[0].send(type="fail", suspect=suspect(0, time.time() + 60))
    b.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    other = suspect(0, time.time() + 60)
    other["culprit"]["error"] = known
    members[0].send(type="report", suspects=[other], finishes=[])
    members[2].send(type="report", suspects=[], finishes=[])
    members[1].send(type="report", suspects=[value], finishes=[])
    b.run(lambda: b.hub.state == OVER, "a judgement")
    b.run_for(0.3)
    assert members[0].of("judgement")
    assert members[2].of("judgement")


def test_what_is_said_of_nonsense_is_short(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[1].send(type="fail", suspect=suspect(1, outcome="x" * 100_000))
    b.run(lambda: b.said, "what was not understood")
    assert len(b.said[0]) < 1000


# (d) Connections that break


def test_a_connection_that_breaks_and_is_opened_again_is_nothing(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    for _ in range(3):
        members[1].cut()
        b.run(lambda: b.hub._nodes["i1"].gone_at is not None, "the hub has noticed")
        members[1] = b.member(1)
        b.run(lambda: members[1].of("welcome"), "the welcome")
    b.run_for(gone.RETURN_S + 0.3)
    assert b.hub.state == RUNNING
    assert b.said == []
    fails(b, members)


def test_one_that_comes_back_before_its_end_was_noticed_takes_its_place(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    again = b.member(1)
    b.run(lambda: again.of("welcome") and members[1].closed, "the new connection in place of the old")
    fails(b, [members[0], again])


def test_one_that_does_not_come_back_was_killed(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    members = b.members(range(3))
    b.released(members)
    began = time.monotonic()
    members[2].cut()
    b.run(lambda: all(m.of("stop") for m in members[:2]), "the order to stop")
    assert time.monotonic() - began >= gone.RETURN_S
    for m in members[:2]:
        m.send(type="report", suspects=[], finishes=[])
    judgement = b.judged(members[:2])
    assert (judgement["exit_code"], judgement["culprit"]["node"], judgement["culprit"]["signal"]) == (137, 2, "SIGKILL")


def test_one_that_goes_after_its_success_is_not_needed(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[1].send(type="done", finish=finish(1))
    b.run(lambda: b.hub._nodes["i1"].done, "its success")
    members[1].cut()
    b.run_for(gone.RETURN_S + 0.3)
    assert b.hub.state == RUNNING
    members[0].send(type="done", finish=finish(0))
    assert b.judged(members[:1])["exit_code"] == 0


def test_one_that_comes_back_when_all_is_over_hears_it(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[0].send(type="fail", suspect=suspect(0))
    b.run(lambda: members[0].of("stop"), "the order to stop")
    members[1].cut()
    members[0].send(type="report", suspects=[suspect(0)], finishes=[])
    again = b.member(1)
    b.run(lambda: again.of("stop") or again.of("judgement"), "what has happened meanwhile")
    if again.of("stop"):
        again.send(type="report", suspects=[], finishes=[])
    assert b.judged([again])["culprit"]["node"] == 0


def test_one_that_goes_while_all_gather_may_come_again(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "RETURN_S", 0.1)
    monkeypatch.setattr(gone, "RESET_S", 0.1)
    b = bench(2)
    b.member(1, "first").cut()
    first = b.member(1, "second")
    b.run(lambda: first.of("welcome"), "the welcome")
    first.cut()
    b.run(lambda: any("has gone again" in line for line in b.said), "that it is gone")
    works(b, 2)


def test_one_whose_connection_breaks_at_the_release_is_released(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    first = b.member(1)
    b.run(lambda: b.hub._roll.entries.get("i1") and b.hub._roll.entries["i1"].facts, "it is ready")
    first.cut()
    b.run(lambda: b.hub._nodes["i1"].gone_at is not None, "the hub has noticed")
    other = b.member(0)
    b.released([other])
    again = b.member(1)
    b.run(lambda: again.of("welcome"), "the welcome")
    b.run(lambda: again.of("release"), "the release", timeout=1.5)


def test_each_break_has_a_second_of_its_own(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    members[1].cut()
    b.run(lambda: b.hub._nodes["i1"].gone_at is not None, "the hub has noticed")
    first = b.hub._nodes["i1"].gone_at
    assert first
    again = b.member(1)
    b.run(lambda: again.of("welcome"), "the welcome")
    b.run(lambda: b.loop.clock() > first + 0.8 * gone.RETURN_S, "most of a second")
    again.cut()
    b.run(lambda: b.hub._nodes["i1"].gone_at is not None, "the hub has noticed")
    second = b.hub._nodes["i1"].gone_at
    assert second
    b.run(lambda: b.hub.state == ENDING, "the end")
    assert b.loop.clock() - second >= 0.9 * gone.RETURN_S


def test_one_that_hangs_is_not_to_blame_for_the_failure_of_another(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranklaunch is stopped, or waits for a dead file system: its kernel answers, and the job goes on (docs/muster.md)."""
    monkeypatch.setattr(hub_module, "QUIET_TICK_S", 0.2)
    monkeypatch.setattr(hub_module, "ACK_S", 0.3)
    b = bench(3)
    members = b.members(range(3))
    b.released(members)
    members[2].stop_reading()
    b.run_for(0.3)
    value = suspect(1, code=3)
    members[1].send(type="fail", suspect=value)
    b.run(lambda: all(m.of("stop") for m in members[:2]), "the order to stop")
    members[0].send(type="report", suspects=[], finishes=[])
    members[1].send(type="report", suspects=[value], finishes=[])
    judgement = b.judged(members[:2])
    assert (judgement["exit_code"], judgement["culprit"] and judgement["culprit"]["node"]) == (3, 1)


def test_one_that_never_reports_is_waited_for_no_longer_than_the_others_wait(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "REPORTS_S", 0.2)
    monkeypatch.setattr(hub_module, "QUIET_TICK_S", 1.5)
    b = bench(3, grace_s=0.1)
    members = b.members(range(3))
    b.released(members)
    b.run_for(2 * hub_module.TICK_S)
    value = suspect(1)
    members[1].send(type="fail", suspect=value)
    b.run(lambda: all(m.of("stop") for m in members), "the order to stop")
    began = time.monotonic()
    members[0].send(type="report", suspects=[], finishes=[])
    members[1].send(type="report", suspects=[value], finishes=[])
    b.judged(members[:2])
    assert time.monotonic() - began < 1.0


# (e) Nodes that cannot work together


def test_two_that_are_the_same_node_are_refused(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SETTLE_S", 0.5)
    b = bench(2, lost_after_s=1.0)
    members = [b.member(0), b.member(1, "a", host="one"), b.member(1, "b", host="two")]
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    assert "2 containers say that they are node 1: " in judgement["reason"]
    assert "one at 127.0.0.1" in judgement["reason"]
    assert "two at 127.0.0.1" in judgement["reason"]


@pytest.mark.parametrize("odd", [1, 2])
def test_those_who_disagree_are_refused(bench: Callable[..., Bench], odd: int) -> None:
    b = bench(3)
    members = b.members(range(3), facts=None)
    b.run(lambda: all(m.of("welcome") for m in members), "the welcome")
    for node, m in enumerate(members):
        m.send(type="ready", facts={**FACTS, "torch": "2.5" if node == odd else "2.6"}, index=node, host="")
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    assert f"torch differs: 2.5 on node {odd}" in judgement["reason"]
    assert "RANKLAUNCH_MUSTER_ALLOW=torch on node 0" in judgement["reason"]


def test_node_0_may_be_ready_after_the_others(bench: Callable[..., Bench]) -> None:
    b = bench(3)
    zero = b.member(0, facts=None)
    b.run(lambda: zero.of("welcome"), "the welcome")
    others = b.members([1, 2])
    b.run(lambda: b.hub._roll._ready == 2, "they are ready")
    zero.send(type="ready", facts={**FACTS, "torch": "2.5"}, index=0, host="")
    b.run(lambda: b.hub.state != GATHERING, "a decision")
    assert b.hub.state == OVER
    assert b.judged([zero, *others])["exit_code"] == 78


def test_what_may_differ_does_not_matter(bench: Callable[..., Bench]) -> None:
    b = bench(2, allowed=("torch",))
    members = [b.member(0), b.member(1, facts={**FACTS, "torch": "other"})]
    b.released(members)


def test_one_that_comes_when_the_job_has_started_is_sent_away(bench: Callable[..., Bench]) -> None:
    b = bench(2)
    members = b.members(range(2))
    b.released(members)
    late = b.member(1, "another start")
    judgement = b.judged([late])
    assert judgement["exit_code"] == 75
    assert "came when the job had already started without it" in judgement["reason"]
    late.send(type="fail", suspect=suspect(1))
    late.send(type="bye")
    b.run_for(0.2)
    assert b.hub.state == RUNNING
    fails(b, members)


def test_too_few_in_time_are_named(bench: Callable[..., Bench]) -> None:
    b = bench(3, timeout_s=0.4)
    member = b.member(1)
    judgement = b.judged([member])
    assert judgement["exit_code"] == 75
    assert "2 of 3 nodes: 127.0.0.1 (node 0), 127.1.0.3 (node 2" in judgement["reason"].replace(", nothing heard of it", "")


def test_an_index_that_the_job_does_not_have_starts_nothing(bench: Callable[..., Bench]) -> None:
    b = bench(3, allowed=("all",))
    members = b.members([0, 1, 17])
    b.run(lambda: b.hub._roll._ready == 3, "all are ready")
    b.run_for(0.3)
    assert not any(m.of("release") for m in members)


def test_a_port_that_is_taken_is_said_and_tried_again(bench: Callable[..., Bench]) -> None:
    plan = muster(2)
    with socket.socket() as taken:
        taken.bind((HUB, plan.port))
        taken.listen()
        loop, said = Loop(), []
        hub = Hub(plan, KEY, loop, said.append, 1.0, "")
        assert f"port {plan.port} of this node is in use by another process" in hub._door.trouble
    until = time.monotonic() + DEADLINE_S
    while hub._door.trouble:
        assert time.monotonic() < until
        loop.step()
    hub.close()


# (f) A member, and what may stand in node 0's place


class Fake:
    """Listens where node 0 should, and does `answer` with each connection."""

    def __init__(self, answer: Callable[[Fake, socket.socket], object]) -> None:
        self.loop = Loop()
        self.count = 0
        self.held: list[socket.socket] = []
        self.events: list[tuple[str, Any]] = []
        self.said: list[str] = []
        self.answer = answer
        self.listener = socket.socket()
        self.listener.bind((HUB, 0))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.loop.on_readable(self.listener.fileno(), self.accept)
        told = [lambda value=None, name=name: self.events.append((name, value)) for name in fields(Events)]
        plan = muster(2)
        self.muster = type(plan)(1, plan.hosts, self.listener.getsockname()[1], 600.0, 20.0, 600.0)
        self.member = Member(self.muster, KEY, self.loop, self.said.append, Events(*told))

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
            timer = self.loop.after(0.05, lambda: None)
            self.loop.step()
            timer.cancel()

    def close(self) -> None:
        self.member.close()
        waits = [key.fd for key in self.loop._selector.get_map().values() if key.data[1]]
        self.until(lambda: not any(fd in self.loop._selector.get_map() for fd in waits), "the attempt that was under way ends")
        for sock in (self.listener, *self.held):
            sock.close()
        self.loop._selector.close()


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
    "a web server": (lambda f, s: s.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "what answers there is not ranklaunch"),
    "garbage": (lambda f, s: s.sendall(os.urandom(60_000)), "what answers there is not ranklaunch"),
    "another version": (lambda f, s: s.sendall(b"ranklaunch muster 2\n" + b"x" * 50), "another version of ranklaunch answers there"),
    "silence": (lambda f, s: None, "it does not answer as ranklaunch"),
    "half a greeting": (lambda f, s: s.sendall(GREETED[:10]), "it does not answer as ranklaunch"),
    "silence after the greeting": (lambda f, s: s.sendall(GREETED), "it does not answer as ranklaunch"),
    "closed at once": (lambda f, s: s.close(), "what answers at port PORT is not ranklaunch"),
    "garbage after the greeting": (
        lambda f, s: s.sendall(GREETED + b"\0\0\0\5" + b"x" * 60),
        "is not understood: a signature is not right",
    ),
    "a huge frame": (
        lambda f, s: s.sendall(GREETED + b"\x7f\xff\xff\xff" + b"x" * 60_000),
        "is not understood: a frame of 2147483647 bytes",
    ),
    "an endless frame": (lambda f, s: s.sendall(GREETED + b"\0\1\0\0" + b"x" * 60_000), "it does not answer as ranklaunch"),
    "another key": (wrong_key_hub, "it closes the connection: another RANKLAUNCH_SECRET there"),
}


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_a_member_says_what_answers_and_tries_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "RETRY_S", 0.001)
    monkeypatch.setattr(member_module, "GREETING_S", 0.02)
    answer, why = IMPOSTORS[kind]
    fake = Fake(answer)
    why = why.replace("PORT", str(fake.muster.port))
    try:
        fake.member.start()
        fake.member.ready(FACTS, 1, "", {})
        fake.until(lambda: fake.count >= 5 and why in fake.member.why, f"{why!r} is said")
        before, timers = len(os.listdir("/proc/self/fd")), len(fake.loop._timers)
        fake.until(lambda: fake.count >= 55, "it goes on trying")
        assert len(os.listdir("/proc/self/fd")) <= before + 3
        assert len(fake.loop._timers) <= timers + 2 * 50 + 10  # those that were cancelled go when their time has come
        assert len(fake.member._greeting) <= 1 << 16
        assert fake.events == []
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
def test_that_the_keys_differ_is_said_to_the_end(then: Callable[..., None], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 may end meanwhile, and then says less."""
    monkeypatch.setattr(member_module, "RETRY_S", 0.001)
    fake = Fake(lambda fake, sock: (wrong_key_hub if fake.count == 1 else then)(fake, sock))
    try:
        fake.member.start()
        fake.member.ready(FACTS, 1, "", {})
        fake.until(lambda: why in fake.member.why, f"{why!r} is said")
        assert "another RANKLAUNCH_SECRET there" in fake.member.missing
    finally:
        fake.close()


def test_a_member_whose_node_0_does_not_listen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "RETRY_S", 0.001)
    fake = Fake(lambda fake, sock: None)
    fake.loop.forget(fake.listener.fileno())
    fake.listener.close()
    try:
        fake.member.start()
        before = len(os.listdir("/proc/self/fd"))
        fake.until(lambda: "no answer on port" in fake.member.why, "why")
        fake.until(lambda: len(fake.loop._timers) > 40, "it goes on trying")
        assert f"no answer on port {fake.muster.port} (connection refused)" in fake.member.missing
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    finally:
        fake.close()


def test_a_member_finds_node_0_in_the_end() -> None:
    """Real ones, of both sides: what impostors were there before does not matter."""
    b = Bench(2)
    events: list[tuple[str, Any]] = []
    told = [lambda value=None, name=name: events.append((name, value)) for name in fields(Events)]
    member = Member(type(b.muster)(1, hosts(2), b.muster.port, 600.0, 20.0, 600.0), KEY, b.loop, b.said.append, Events(*told))
    try:
        member.start()
        member.ready(FACTS, 1, "", {})
        zero = b.member(0)
        b.released([zero])
        b.run(lambda: events, "the release")
        assert events[0][0] == "released"
        zero.send(type="fail", suspect=suspect(0))
        b.run(lambda: len(events) > 1, "the order to stop")
        member.report([], [], [])
        zero.send(type="report", suspects=[suspect(0)], finishes=[])
        b.run(lambda: len(events) > 2, "the judgement")
        assert [name for name, _ in events] == ["released", "stop", "judged"]
        assert isinstance(events[2][1], Judgement)
        assert events[2][1].exit_code == 3
    finally:
        member.close()
        b.close()
