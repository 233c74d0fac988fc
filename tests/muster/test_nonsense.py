"""Whoever has the key and sends nonsense: it ends at most who sends it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from muster_machines import EPOCH, FACTS, Bench, Lone, Peer, finish, suspect

from ranklaunch.muster import events
from ranklaunch.muster.hub import GATHERING, JUDGED, RUNNING

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


def odd_messages(chance: random.Random, node: int = 1) -> Iterator[dict[str, Any]]:
    """Messages that are right but for one field, and some that are not right at all. node: whose."""
    right: list[dict[str, Any]] = [
        {"type": "ready", "facts": dict(FACTS), "index": node, "host": "x"},
        {"type": "fail", "suspect": suspect(1)},
        {"type": "done", "finish": finish(1)},
        {"type": "report", "suspects": [suspect(1)], "finishes": [finish(1)]},
        {"type": "ping", "sent": 1.0},
        {"type": "busy", "doing": "x"},
        {"type": "stopping"},
        {"type": "word", "number": 1, "topic": "t", "body": {}},
        {"type": "what a later version has"},
        {"type": "hello", "node": 1, "instance": "again", "host": "h", "doing": ""},
    ]
    for message in [{"attempt": 1, "round": 0, **each} for each in right]:
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


def is_harmless(message: dict[str, Any], node: int) -> bool:
    """Whether it would not end or start the job by itself, were it the node's word."""
    elsewhere = isinstance(message.get("index"), int) and message["index"] != node
    disagrees = message.get("type") == "ready" and (message.get("facts") == {} or elsewhere)  # also in what cannot be exempt
    return message.get("type") not in ("fail", "report", "done") and not disagrees


def answered(peer: Peer) -> bool:
    """Whether it is still heard; else it was dropped."""
    peer.send(type="ping", sent=1.5)
    assert peer.closed or any(m["sent"] == 1.5 for m in peer.of("pong"))
    return not peer.closed


RIGHT = {"type": "hello", "node": 1, "instance": "x", "host": "h", "doing": "d", "attempt": 1, "round": 0}
WRONG = [{**RIGHT, key: value} for key in RIGHT if key != "round" for value in (None, [], {}, 1.5, True, "" if key == "node" else 7)]
WRONG = [message for message in WRONG if message["attempt"] != 7]
WRONG += [{name: value for name, value in RIGHT.items() if name != key} for key in RIGHT if key != "round"]
WRONG += [{**RIGHT, "type": "fail"}, {}]


def test_nonsense_in_the_first_message_hurts_nobody() -> None:
    b = Bench(2)
    for message in WRONG:
        peer = b.connection()
        peer.send_raw(message)
        assert (peer.closed, peer.messages) == (True, []), message
    b.fails(b.released(2))
    assert b.said == []


def test_nonsense_of_a_node_hurts_no_other() -> None:
    for message in odd_messages(random.Random(2), node=2):
        if not is_harmless(message, 2):
            continue
        b = Bench(3, allowed=("all",))
        genuine = b.members([0, 1])
        odd = b.member(2, "odd", facts=None)
        odd.send_raw(message)
        answered(odd)
        assert b.hub.state == GATHERING or (message.get("type") == "ready" and b.hub.state == RUNNING), message
        if b.hub.state == GATHERING:
            odd.cut()
            b.time.run(2)
            genuine += b.members([2])
            assert all(m.of("release") for m in genuine)
        assert not any(m.closed for m in genuine)


def test_nonsense_after_the_release_ends_at_most_who_sends_it() -> None:
    for message in odd_messages(random.Random(3)):
        if message.get("type") == "done":  # see the next test
            continue
        b = Bench(2)
        members = b.released(2)
        members[1].send_raw(message)
        if not answered(members[1]):
            b.time.run(1)
            assert members[0].of("stop")
            assert any("node 1 (127.1.0.2) sent an invalid message" in line for line in b.said)
        elif b.hub.state == RUNNING:
            b.fails(members)
            continue
        assert answered(members[0])


def test_a_success_that_is_not_understood_is_none() -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].send(type="done", finish=None)
    assert members[1].closed
    members[0].send(type="done", finish=finish(0))
    b.time.run(1)
    assert members[0].of("stop")
    assert not members[0].of("judgement")


def test_secrets_in_what_is_not_understood_are_hidden() -> None:
    for odd in (
        "password=hunter2 x",
        "x" * 70 + " hf_" + "hunter2aB" * 3,
        {"token": "hunter2"},
        ["--token", "hunter2"],
        "password: hunter2",
    ):
        b = Bench(2)
        members = b.released(2)
        members[1].send(type="ready", facts=dict(FACTS), index=odd, host="x")
        members[1].send(type="report", suspects=[{**suspect(1), "outcome": odd}], finishes=[])
        said = " ".join(b.said)
        assert "node 1 (127.1.0.2) sent an invalid message" in said
        assert "hunter2" not in said


def test_what_was_no_message_at_all_is_said_once() -> None:
    b = Bench(2)
    members = b.released(2)
    for _ in range(2):
        b.feed(events.Nonsense(members[1].link, "a signature is wrong"))
        assert members[1].closed
        members[1] = b.member(1)
    assert b.said == ["muster: node 1 (127.1.0.2) sent an invalid message: a signature is wrong"]
    b.fails(members)


def test_who_is_gone_for_sending_nonsense_was_not_killed() -> None:
    b = Bench(2)
    members = b.released(2)
    b.feed(events.Nonsense(members[1].link, "a signature is wrong"))
    b.time.run(5)
    members[0].send(type="report", suspects=[], finishes=[])
    judgement = b.judged(members[:1])
    reason = "node 1 (127.1.0.2) sent an invalid message: a signature is wrong"
    assert (judgement["reason"], judgement["exit_code"], judgement["culprit"]) == (reason, 75, None)


def test_what_is_said_of_nonsense_is_short() -> None:
    b = Bench(2)
    b.released(2)[1].send(type="fail", suspect=suspect(1, outcome="x" * 100_000))
    assert len(b.said[0]) < 1000


def test_a_time_of_any_size_hurts_nobody() -> None:
    b = Bench(2)
    other, odd = b.member(0), b.member(1, facts=None)
    body = json.dumps({"type": "fail", "attempt": 1, "round": 0, "suspect": suspect(1, 1234567.5)}).replace("1234567.5", "9" * 400)
    odd.send_raw(json.loads(body))
    answered(odd)
    assert answered(other)


def test_types_of_this_side_are_no_messages() -> None:
    b = Bench(2)
    members = b.released(2)
    for kind in ("Dismiss", "tick", "events.Dismiss", "broken", "hello"):
        members[1].send(type=kind)
    assert b.hub.state == RUNNING
    assert answered(members[1])


@pytest.mark.parametrize("filler", ["m", "\x01", "\u20ac", "\U0001f600", '"'])
def test_huge_texts_of_one_do_not_keep_the_judgement_from_the_others(filler: str) -> None:
    b = Bench(3)
    members = b.released(3)
    known = {
        "name": filler * 6_000,
        "kind": "cause",
        "line": filler * 6_000,
        "meaning": filler * 6_000,
        "remedy": filler * 6_000,
        "source": filler * 6000,
        "retry": filler * 6000,
    }
    value = suspect(1, reason=filler * 6000)
    value["culprit"].update(error=known, last_lines=[filler * 900] * 30, name=filler * 900, host=filler * 900, time=filler * 900)
    many = [{**value, "at": EPOCH + n} for n in range(9)]
    members[1].send(type="fail", suspect=value)
    b.time.run(0)
    members[0].send(type="report", suspects=many, finishes=[], notes=[filler * 6000] * 9)
    members[2].send(type="report", suspects=many, finishes=[])
    members[1].send(type="report", suspects=many, finishes=[])
    assert b.hub.state == JUDGED
    assert all(m.of("judgement") for m in members)


def test_a_member_hears_no_nonsense() -> None:
    for message in odd_messages(random.Random(4)):
        lone = Lone()
        lone.come()
        lone.feed(events.Heard(0, message))
        assert lone.calls == []
        assert not lone.hung_up or message.get("type") in (None, [], {}) or isinstance(message.get("type"), (list, dict))


NONSENSE = [
    {"type": "release", "shared": {"a": 5}},
    {"type": "release", "shared": 7},
    {"type": "stop"},
    {"type": "stop", "judgement": {}},
    {"type": "judgement", "judgement": {"outcome": "won"}},
    {"type": "pong", "sent": "x", "time": 1.0},
    {"type": "pong"},
    {"type": "status"},
    {"type": "release", "round": "0"},
    {"type": [1]},
]


@pytest.mark.parametrize("message", NONSENSE, ids=str)
def test_a_member_leaves_whoever_speaks_nonsense_and_comes_again(message: dict[str, Any]) -> None:
    lone = Lone()
    lone.feed(events.Start())
    lone.come()
    lone.feed(events.Heard(0, {"attempt": 1, "round": 0, **message}))
    assert (lone.hung_up, lone.member.joined, lone.calls) == (1, False, [])
    assert "invalid message from node 0" in lone.member.why
    lone.time.run(1)
    assert lone.dials == [False, True]
