"""The fence: every message says of which attempt and round it is, and what becomes of one of another round stands in the tables."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from muster_machines import FACTS, Bench, Lone, finish, suspect

from ranklaunch.muster import events, hub, member
from ranklaunch.muster.events import REFUSED, TAKEN
from ranklaunch.muster.hub import ENDING, GATHERING, RUNNING
from ranklaunch.muster.wire import PROTOCOL
from ranklaunch.verdict import messages
from ranklaunch.verdict.blame import Judgement

JUDGEMENT = messages.as_message(Judgement("failed", 3, "rank 1 failed"))
TO_HUB: dict[str, dict[str, Any]] = {
    "ping": {"sent": 1.0},
    "busy": {"doing": "something else"},
    "ready": {"facts": FACTS, "index": 1, "host": ""},
    "fail": {"suspect": suspect(1)},
    "stopping": {},
    "done": {"finish": finish(1)},
    "report": {"suspects": [suspect(1)], "finishes": []},
    "word": {"number": 1, "topic": "t", "body": {}},
    "bye": {},
}
TO_MEMBER: dict[str, dict[str, Any]] = {
    "welcome": {"hub": "this hub"},
    "pong": {"sent": 0.0, "time": 1.7e9},
    "status": {"missing": "somebody"},
    "release": {"text": "all"},
    "stop": {"judgement": JUDGEMENT},
    "judgement": {"judgement": JUDGEMENT},
    "again": {"judgement": JUDGEMENT, "next": {}},
    "word": {"number": 1, "topic": "t", "body": {}},
    "dismissed": {},
}


def test_each_message_has_its_rule() -> None:
    assert {key: row[-1] for key, row in hub.TABLE.items() if isinstance(key, str)} == {
        kind: TAKEN if kind in ("hello", "ping", "bye") else REFUSED for kind in ("hello", *TO_HUB)
    }
    assert {key: row[-1] for key, row in member.TABLE.items() if isinstance(key, str)} == {
        kind: TAKEN if kind in ("welcome", "pong", "again", "dismissed") else REFUSED for kind in TO_MEMBER
    }


@pytest.mark.parametrize("stamp", [{"round": 1}, {"attempt": 2}, {"round": -1}], ids=str)
@pytest.mark.parametrize("kind", TO_HUB)
def test_what_another_round_has_said_does_nothing_to_this_one(kind: str, stamp: dict[str, int]) -> None:
    b = Bench(2)
    zero, one = b.member(0), b.member(1, facts=None)
    one.send(type=kind, **TO_HUB[kind], **stamp)
    assert b.hub.state == GATHERING
    assert one.closed == (kind == "bye")
    assert bool(one.of("pong")) == (kind == "ping")
    b.time.run(2)
    assert ("something else" in zero.of("status")[0]["missing"]) is False


@pytest.mark.parametrize("kind", [kind for kind, row in hub.TABLE.items() if row[-1] == REFUSED])
def test_the_same_of_this_round_is_heard(kind: str) -> None:
    b = Bench(2)
    zero, one = b.member(0), b.member(1, facts=None)
    one.send(type=kind, **TO_HUB[kind])
    b.time.run(2)
    heard = {"busy": GATHERING, "stopping": GATHERING, "done": GATHERING, "word": GATHERING, "ready": RUNNING}
    assert b.hub.state == heard.get(kind, ENDING)
    if kind == "busy":
        assert "something else" in zero.of("status")[0]["missing"]


@pytest.mark.parametrize("stamp", [{"round": 1}, {"attempt": 2}], ids=str)
@pytest.mark.parametrize("kind", [kind for kind, row in member.TABLE.items() if row[-1] == REFUSED])
def test_a_member_does_not_hear_of_another_round(kind: str, stamp: dict[str, int]) -> None:
    lone = Lone()
    lone.come()
    lone.feed(events.Ready(FACTS, 1, ""))
    if kind == "word":
        lone.hear("release")
        lone.calls.clear()
    lone.hear(kind, **TO_MEMBER[kind], **stamp)
    assert (lone.calls, lone.said, lone.hung_up) == ([], [], 0)
    lone.hear(kind, **TO_MEMBER[kind])
    assert lone.calls or lone.said


@pytest.mark.parametrize(
    "message", [{}, {"attempt": 1}, {"round": 0}, {"attempt": 1, "round": "0"}, {"attempt": True, "round": 0}], ids=str
)
def test_a_message_without_them_is_not_understood(message: dict[str, Any]) -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].send_raw({"type": "stopping", **message})
    assert members[1].closed
    lone = Lone()
    lone.come()
    lone.feed(events.Heard(0, {"type": "status", "missing": "x", **message}))
    assert lone.hung_up == 1


def test_nodes_may_count_their_attempts_differently() -> None:
    """As platform local does, by the folders of each node."""
    b = Bench(3)
    peers = []
    for node, attempt in enumerate((4, 1, 7)):
        peer = b.connection()
        peer.send(type="hello", node=node, instance=f"i{node}", host="h", doing="", attempt=attempt)
        peer.send(type="ready", facts=FACTS, index=node, host="", attempt=attempt)
        peers.append(peer)
    assert all(peer.of("release") for peer in peers)
    peers[2].send(type="fail", suspect=suspect(2), attempt=7)
    assert b.hub.state == ENDING


def test_a_member_takes_over_the_round_of_whoever_welcomes_it() -> None:
    """What it has kept is of no earlier one, since it has not been released yet."""
    lone = Lone()
    lone.feed(events.Start(), events.Ready(FACTS, 1, ""), events.Fail(messages.suspect(suspect(1))))
    lone.come(round=3, attempt=2)
    assert [(m["type"], m["round"], m["attempt"]) for m in lone.sent] == [("hello", 0, 1), ("ping", 3, 1), ("ready", 3, 1), ("fail", 3, 1)]
    lone.hear("release", round=3, attempt=2)
    assert lone.calls == [events.Released("")]


def test_what_was_said_in_an_earlier_round_stays_of_that_round() -> None:
    lone = Lone()
    lone.come()
    lone.hear("release")
    lone.feed(events.Done(messages.finish(finish(1))), events.Broken(0, None))
    lone.come(round=1)
    assert [(m["type"], m["round"]) for m in lone.sent[-3:]] == [("hello", 0), ("ping", 0), ("done", 0)]


def after_a_failure() -> Lone:
    """A node that has told of one, and waits for what node 0 makes of it."""
    lone = Lone()
    lone.come()
    lone.feed(events.Ready(FACTS, 1, ""))
    lone.hear("release")
    lone.feed(events.Fail(messages.suspect(suspect(1))), events.Report((), ()))
    lone.calls.clear()
    return lone


@pytest.mark.parametrize(
    "following", [{"pause_s": None}, {"pause_s": 1e308}, {"pause_s": float("nan")}, {"restart": "x"}, {"restart": -5}, 7]
)
def test_a_next_round_that_makes_no_sense_is_refused(following: object) -> None:
    lone = after_a_failure()
    lone.hear("again", judgement=JUDGEMENT, next=following, round=1)
    assert not any(isinstance(call, events.Again) for call in lone.calls)
    assert "invalid message from node 0: next is" in lone.member.why + "".join(lone.said)


def test_a_member_hears_once_that_all_start_again() -> None:
    """Of the round that is next, and of no other; what it had said is of the round before."""
    lone = after_a_failure()
    for number in (2, 0, 1, 1, 0):
        lone.hear("again", judgement=JUDGEMENT, next={"pause_s": 1}, round=number)
    assert lone.calls == [events.Again(1, messages.judgement(JUDGEMENT), {"pause_s": 1})]
    lone.feed(events.Broken(0, None))
    lone.come(round=1)
    assert [(m["type"], m["round"]) for m in lone.sent[-2:]] == [("hello", 1), ("ping", 1)]
    lone.hear("release")
    lone.hear("stop", judgement=JUDGEMENT)
    assert len(lone.calls) == 1
    lone.feed(events.Ready(FACTS, 1, ""))
    lone.hear("release", round=1)
    assert lone.calls[1:] == [events.Released("")]


def test_whoever_has_not_heard_that_all_start_again_hears_it_when_it_comes_back() -> None:
    b = Bench(2, restarts=True)
    zero, one = b.released(2)
    b.fails_once([zero, one])
    back = b.member(1, facts=None)
    assert [(m["type"], m["round"]) for m in back.messages] == [("welcome", 1), ("again", 1)]
    stranger = b.member(1, "another", facts=None)
    assert (stranger.turned_away, stranger.types()) == (True, ["judgement"])


def test_a_node_that_does_not_come_to_the_next_round_ends_the_job() -> None:
    b = Bench(2, restarts=True)
    zero, one = b.released(2)
    one.on_message = lambda message: None
    b.fails_once([zero, one])
    one.cut()
    b.time.run(3)
    assert b.hub.state == ENDING
    assert zero.of("stop")[-1]["round"] == 1
    zero.send(type="report", suspects=[], finishes=[], round=1)
    b.time.run(3)
    assert b.decisions[-1].away.startswith("node 1")


def test_a_node_that_was_taken_for_gone_hears_so_when_it_is_back() -> None:
    b = Bench(2, restarts=True)
    zero, one = b.released(2)
    one.cut(OSError(errno.ETIMEDOUT, "Connection timed out"))
    b.time.run(0)
    assert b.hub.state == ENDING
    back = b.member(1, facts=None)
    assert back.turned_away
    reasons = [peer.messages[-1]["judgement"]["reason"] for peer in (zero, back)]
    assert reasons[0] == reasons[1]
    assert "node 1 (127.1.0.2) does not answer" in reasons[0]


def test_the_hub_says_its_own() -> None:
    b = Bench(2)
    assert all((m["attempt"], m["round"]) == (1, 0) for peer in b.released(2) for m in peer.messages)


def test_frames_with_them_are_another_version() -> None:
    assert PROTOCOL == 2
