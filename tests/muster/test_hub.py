"""Node 0's side of the muster: what it lets happen, and when."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import pytest
from muster_machines import EPOCH, FACTS, Bench, Peer, finish, suspect

from ranklaunch.muster import events, liveness
from ranklaunch.muster.hub import ENDING, GATHERING, JUDGED, RUNNING
from ranklaunch.verdict import blame

RESET = OSError(errno.ECONNRESET, "Connection reset by peer")
SILENT = OSError(errno.ETIMEDOUT, "Connection timed out")

# The plain course


def test_all_come_are_released_and_hear_of_the_first_failure() -> None:
    b = Bench(3)
    members = b.members(range(2))
    b.time.run(2.5)
    assert "1 of 3 nodes: 127.1.0.3 (node 2, nothing heard of it" in members[0].of("status")[0]["missing"]
    assert b.hub.state == GATHERING
    members += b.members([2])
    assert all(m.of("release") for m in members)
    assert b.hub.state == RUNNING
    judgement = b.fails(members)
    assert judgement["reason"] == "rank 1 on node 1 (127.1.0.2) exited with code 3; its last line: boom"
    assert [m.types() for m in members[2:]] == [["welcome", "release", "stop", "judgement"]]
    assert b.said == []


def test_what_is_missing_is_said_after_two_seconds_and_then_every_thirty() -> None:
    b = Bench(2)
    member = b.member(0)
    times = []
    while b.time.clock < 95:
        before = len(member.of("status"))
        b.time.run(0.25)
        times += [b.time.clock] * (len(member.of("status")) - before)
    assert times == [2.0, 32.0, 62.0, 92.0]


def test_who_came_late_is_said_with_the_release() -> None:
    b = Bench(3)
    b.members(range(2))
    b.time.run(5)
    late = b.member(2)
    assert late.of("release")[0]["text"] == "muster: all 3 nodes are ready; last came node 2 (127.1.0.3) after 5.0 s"


def test_what_node_0_offers_comes_with_the_release() -> None:
    b = Bench(2)
    members = b.members(range(2), facts=None)
    for node, m in enumerate(members):
        m.send(type="ready", facts=FACTS, index=node, host="", offers={"key": f"of {node}"})
    assert [m.of("release")[0]["shared"] for m in members] == [{"key": "of 0"}] * 2
    assert b.hub.here.offers == {0: {"key": "of 0"}, 1: {"key": "of 1"}}


def ready_as(b: Bench, places: Sequence[int], offers: Mapping[str, str]) -> list[Peer]:
    """Nodes 0, 1, ... come, and are ready with these places."""
    members = b.members(range(len(places)), facts=None)
    for place, m in zip(places, members):
        m.send(type="ready", facts=FACTS, index=place, host="", offers=offers)
    b.time.run(0)
    return members


@pytest.mark.parametrize("offers", [{}, {"key": "mine"}])
def test_nobody_takes_the_place_of_node_0(offers: dict[str, str]) -> None:
    b = Bench(3)
    members = ready_as(b, (0, 0, 2), offers)
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    assert "2 nodes are node 0 by their rank tables: h0 at 10.0.0.0, which came as node 0, and h1 at" in judgement["reason"]


def test_a_place_that_the_job_does_not_have() -> None:
    b = Bench(2)
    reason = b.judged(ready_as(b, (0, 7), {}))["reason"]
    assert "h1 at 10.0.0.2, which came as node 1, is node 7 by its rank table: of 2" in reason


def test_places_of_a_rank_table() -> None:
    """They may be others than those that the nodes came with, but not where node 0 hands over a key."""
    b = Bench(3)
    members = ready_as(b, (2, 0, 1), {})
    assert all(m.of("release") for m in members)
    b = Bench(3)
    reason = b.judged(ready_as(b, (2, 0, 1), {"key": "mine"}))["reason"]
    assert "h1 at 10.0.0.2, which came as node 1, is node 0 by its rank table: nodes that exchange ssh keys" in reason


def test_a_node_that_went_leaves_its_place_to_another() -> None:
    b = Bench(2)
    first, second = b.members(range(2), facts=None)
    second.send(type="ready", facts=FACTS, index=0, host="")
    second.cut()
    b.time.run(2)
    first.send(type="ready", facts=FACTS, index=0, host="")
    third = b.member(1, "another")
    assert third.of("release")


def test_only_its_own_supervisor_speaks_for_node_0() -> None:
    b = Bench(2)
    node_0 = b.member(0, facts=None)
    impostor = b.member(0, "impostor", facts=None)
    for m, key in ((node_0, "own"), (impostor, "another")):
        m.send(type="ready", facts=FACTS, index=0, host="", offers={"key": key})
    member = b.member(1)
    impostor.cut()
    b.time.run(2)
    assert member.of("release")[0]["shared"] == {"key": "own"}


def test_what_is_handed_over_is_one_line() -> None:
    b = Bench(2)
    m = b.members(range(2), facts=None)[1]
    m.send(type="ready", facts=FACTS, index=1, host="", offers={"key": "ssh-ed25519 A\nssh-ed25519 B"})
    assert m.closed


def test_what_nodes_say_of_themselves_is_one_line() -> None:
    b = Bench(2)
    b.member(0)
    m = b.member(1, facts={**FACTS, "torch": "2\nranklaunch: succeeded\x1b[2J"}, host="h\n1")
    reason = b.judged([m])["reason"]
    assert "2; ranklaunch: succeeded\\x1b[2J" in reason
    assert reason.isprintable()


def test_all_succeed() -> None:
    b = Bench(3)
    members = b.released(3)
    for node, m in enumerate(members):
        assert not m.of("judgement")
        m.send(type="done", finish=finish(node))
    judgement = b.judged(members)
    assert (judgement["outcome"], judgement["exit_code"], judgement["reason"]) == ("succeeded", 0, "all succeeded")


@pytest.mark.parametrize(
    ("unseen", "said"),
    [
        ((0, 0), "all succeeded"),
        ((1, 0), "the launchers of 2 nodes succeeded; 1 rank was not seen, and whether it ran is not known"),
        ((2, 1), "the launchers of 2 nodes succeeded; 3 ranks were not seen, and whether they ran is not known"),
        ((-1, "x"), "all succeeded"),
        ((10**4000, None), "all succeeded"),
    ],
)
def test_all_is_said_where_every_node_has_seen_all_of_its_ranks(unseen: tuple[object, object], said: str) -> None:
    b = Bench(2)
    members = b.released(2)
    for node, m in enumerate(members):
        m.send(type="done", finish=finish(node), unseen=unseen[node])
    judgement = b.judged(members)
    assert (judgement["outcome"], judgement["reason"]) == ("succeeded", said)


def test_a_success_that_is_told_twice_is_one() -> None:
    b = Bench(2)
    members = b.released(2)
    for _ in range(2):
        members[0].send(type="done", finish=finish(0))
    assert b.hub.state == RUNNING


def test_followers_are_not_waited_for() -> None:
    b = Bench(3, followers=1)
    members = b.released(3)
    for node in range(2):
        members[node].send(type="done", finish=finish(node))
    assert b.judged(members)["exit_code"] == 0


def test_what_all_have_succeeded_in_may_change_with_the_plan() -> None:
    b = Bench(2)
    b.feed(events.Planned("all 4 ranks succeeded"))
    members = b.released(2)
    for node, m in enumerate(members):
        m.send(type="done", finish=finish(node))
    assert b.judged(members)["reason"] == "all 4 ranks succeeded"


def test_a_later_failure_does_not_win_and_an_earlier_one_does() -> None:
    b = Bench(3)
    members = b.released(3)
    members[2].send(type="fail", suspect=suspect(2, EPOCH, 5))
    assert members[0].of("stop")[0]["judgement"]["exit_code"] == 5
    members[0].send(type="report", suspects=[suspect(0, EPOCH + 1, 4)], finishes=[])
    members[1].send(type="report", suspects=[suspect(1, EPOCH - 1, 3)], finishes=[])
    members[2].send(type="report", suspects=[suspect(2, EPOCH, 5)], finishes=[])
    judgement = b.judged(members)
    assert judgement["exit_code"] == 3
    assert [each["exit_code"] for each in judgement["failures"]] == [5, 4]


def test_a_report_before_any_failure_stops_all() -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].send(type="report", suspects=[suspect(1)], finishes=[], notes=["a full disk"])
    assert members[0].of("stop")
    members[0].send(type="report", suspects=[], finishes=[])
    assert b.judged(members)["notes"] == ["a full disk"]


def test_a_node_speaks_of_itself_alone() -> None:
    """But for node 0, whose mpirun starts ranks on the others."""
    b = Bench(3)
    members = b.released(3)
    members[1].send(type="done", finish=finish(2, EPOCH - 9))
    members[2].send(type="report", suspects=[suspect(1)], finishes=[finish(1, EPOCH - 3)])
    members[1].send(type="report", suspects=[], finishes=[finish(2, EPOCH - 2)])
    members[0].send(type="report", suspects=[suspect(1, EPOCH + 1, 4)], finishes=[])
    judgement = b.judged(members)
    assert judgement["culprit"]["node"] == 2
    assert judgement["reason"] == "rank 1 on node 2 (127.1.0.3) exited with code 3; its last line: boom"
    assert [each["node"] for each in judgement["failures"]] == [1]
    assert [note.split(" had ended")[0] for note in judgement["notes"]] == ["node 2", "node 1"]


@pytest.mark.parametrize(("node", "place"), [(2, 0), (2, -7), (0, 0)])
def test_who_only_says_that_it_is_node_0_speaks_of_itself_too(node: int, place: int) -> None:
    """Also before all have come, and nothing has been looked at."""
    b = Bench(3)
    own = b.member(0)
    impostor = b.member(node, "impostor", facts=None)
    impostor.send(type="ready", facts=FACTS, index=place, host="h9", offers={})
    impostor.send(type="report", suspects=[suspect(1)], finishes=[finish(1)])
    own.send(type="report", suspects=[], finishes=[])
    judgement = b.judged([own])
    assert (judgement["culprit"]["node"], judgement["culprit"]["host"]) == (node, "h9")
    assert judgement["reason"] == f"rank 1 on node {node} (h9) exited with code 3; its last line: boom"


def test_who_leaves_without_a_word_of_its_end_is_lost() -> None:
    b = Bench(3)
    members = b.released(3)
    members[1].send(type="bye")
    b.time.run(20)
    judgement = b.judged([members[0], members[2]])
    assert (judgement["exit_code"], judgement["reason"]) == (
        75, "node 1 (127.1.0.2) sent an invalid message: bye before a report of its end"
    )  # fmt: skip
    assert not any("succeeded" in text for text in b.said)


# The end


def test_one_that_never_reports_is_waited_for_no_longer_than_the_others_wait() -> None:
    b = Bench(3, grace_s=1.0)
    members = b.released(3)
    b.time.run(7)
    value = suspect(1)
    members[1].send(type="fail", suspect=value)
    began = b.time.clock
    b.time.run(0)
    members[0].send(type="report", suspects=[], finishes=[])
    members[1].send(type="report", suspects=[value], finishes=[])
    b.time.until(began + 30, lambda: b.hub.state == JUDGED)
    assert 17.5 < b.time.clock - began <= 17.75  # the grace, time to report, what a node takes of the failure, and a tick
    b.judged(members[:2])


def fails_on_node_1(b: Bench, members: Sequence[Peer]) -> float:
    """When that was. Nodes 0 and 1 report it."""
    began = b.time.clock
    value = suspect(1, EPOCH + began)
    members[1].send(type="fail", suspect=value)
    b.time.run(0)
    members[0].send(type="report", suspects=[], finishes=[])
    members[1].send(type="report", suspects=[value], finishes=[])
    return began


def test_one_that_hangs_is_not_to_blame_for_the_failure_of_another() -> None:
    """Its ranklaunch is stopped, or waits for a dead file system: its kernel answers, and the job goes on (docs/muster.md)."""
    b = Bench(3, grace_s=30.0)
    members = b.released(3)
    members[2].on_message = lambda message: None
    b.time.run(60)
    began = fails_on_node_1(b, members)
    b.time.until(began + 40, lambda: b.hub.state == JUDGED)
    assert 3.0 < b.time.clock - began <= 3.25  # who does not even say that it stops
    judgement = b.judged(members[:2])
    assert (judgement["exit_code"], judgement["culprit"]["node"]) == (3, 1)
    assert b.said[2] == "muster: node 2 (127.1.0.3) has sent nothing for 35 s, but its host answers: ranklaunch there is stopped or stuck"


def test_who_has_not_taken_the_verdict_and_says_nothing_is_known() -> None:
    b = Bench(3)
    members = b.released(3)
    for member in members:
        member.send(type="done", finish=finish(members.index(member)))
    assert b.hub.state == JUDGED
    since = b.time.clock + 1
    b.time.run(2)
    assert b.hub.unheard(since) == "node 0 (127.0.0.1)"
    members[0].send(type="bye")
    members[1].send(type="bye")
    b.time.run(0)
    assert b.hub.unheard(since) == "node 2 (127.1.0.3)"
    members[2].send(type="ping", sent=0.0, heard=0)
    assert b.hub.unheard(since) == ""
    assert not b.hub.settled


@pytest.mark.parametrize("away_s", [8, 60])
def test_a_network_that_is_away_for_a_moment_is_waited_for(away_s: float) -> None:
    """It may be what ranks have failed of. How long it may be away is RANKLAUNCH_LOST_AFTER_S."""
    b = Bench(3, grace_s=60.0)
    members = b.released(3)
    b.time.run(2)
    for member in members:
        member.send(type="ping", sent=0.0, heard=0)
    members[2].on_message = lambda message: None
    began = fails_on_node_1(b, members)
    b.time.until(began + away_s, lambda: b.hub.state == JUDGED)
    deaf = "muster: node 2 (127.1.0.3) has not answered the order to stop: its network may be down; waiting 17 s for an answer"
    assert [text for text in b.said if "has not answered" in text] == [deaf]
    if away_s < 20:
        assert b.hub.state != JUDGED
        members[2].send(type="stopping")
        members[2].send(type="report", suspects=[], finishes=[])
        b.time.run(0)
    else:
        assert 20.0 <= b.time.clock - began <= 20.5
    assert b.hub.judgement
    assert b.hub.judgement.reason.startswith("rank 1 on node 1 (127.1.0.2) exited with code 3")


def test_who_says_something_again_may_be_silent_again() -> None:
    b = Bench(2)
    members = b.released(2)
    for n in range(120):
        members[0].send(type="ping", sent=b.time.clock)
        if n == 60:
            members[1].send(type="ping", sent=b.time.clock)
        b.time.run(1)
    assert len(b.said) == 2
    assert all("node 1 (127.1.0.2) has sent nothing" in line for line in b.said)


def test_node_0_leaves_before_the_others() -> None:
    b = Bench(2)
    members = b.released(2)
    b.feed(events.Dismiss())
    assert [m.types()[-1] for m in members] == ["dismissed"] * 2
    late = b.member(1)
    assert late.types() == ["welcome", "dismissed"]


def test_one_leaves_before_the_others() -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].send(type="done", finish=finish(1))
    members[1].send(type="bye")
    assert b.said == ["muster: node 1 (127.1.0.2) leaves: its ranks have succeeded, and it has waited long enough"]
    assert members[1].closed
    members[0].send(type="done", finish=finish(0))
    assert b.judged(members[:1])["exit_code"] == 0


def test_a_job_with_followers_ends_late() -> None:
    b = Bench(4, followers=1, end_timeout_s=7.0)
    members = b.released(4)
    members[0].send(type="done", finish=finish(0))
    b.feed(events.EndLate("the program succeeded"))
    judgement = b.judged(members)
    assert judgement["exit_code"] == 75
    assert judgement["reason"] == (
        "the program succeeded on node 0 (127.0.0.1), but node 1 (127.1.0.2), node 2 (127.1.0.3) still ran 7 s later "
        "(RANKLAUNCH_END_TIMEOUT_S)"
    )


def test_node_0_waits_for_nobody_any_more() -> None:
    b = Bench(2)
    members = b.released(2)
    b.feed(events.Hurry())  # nothing has ended yet
    members[1].send(type="fail", suspect=suspect(1, EPOCH, 7))
    b.feed(events.Hurry())
    assert b.judged(members)["exit_code"] == 7


# Connections that break


def test_a_connection_that_breaks_and_is_opened_again_is_nothing() -> None:
    b = Bench(2)
    members = b.released(2)
    for _ in range(3):
        members[1].cut(RESET)
        b.time.run(0.9 * liveness.RESET_S)
        members[1] = b.member(1)
        assert members[1].types() == ["welcome", "release"]
    b.time.run(liveness.RESET_S + 0.3)
    assert b.hub.state == RUNNING
    assert b.said == []
    b.fails(members)


def test_one_that_comes_back_before_its_end_was_noticed_takes_its_place() -> None:
    b = Bench(2)
    members = b.released(2)
    again = b.member(1)
    assert again.of("welcome")
    assert members[1].closed
    b.fails([members[0], again])


@pytest.mark.parametrize(("error", "seconds", "code"), [(None, 1.0, 137), (RESET, 2.5, 137), (SILENT, 0.0, 75)])
def test_one_that_does_not_come_back_is_gone(error: OSError | None, seconds: float, code: int) -> None:
    b = Bench(3)
    members = b.released(3)
    ping(b, members[1:], 20)
    ping(b, members[1:2], 15)
    members[2].cut(error)
    began = b.time.clock
    b.time.until(began + 5, lambda: b.hub.state == ENDING)
    assert b.time.clock - began == seconds
    b.time.run(0)
    for m in members[:2]:
        m.send(type="report", suspects=[], finishes=[])
    judgement = b.judged(members[:2])
    assert judgement["exit_code"] == code
    assert "last heard of at" in judgement["reason"]
    assert "node 2 (127.1.0.3)" in judgement["reason"]


def ping(b: Bench, members: Sequence[Peer], seconds: int) -> None:
    """These live so long, each with its own moment of the second."""
    for _ in range(seconds):
        for m in members:
            m.send(type="ping", sent=b.time.clock, heard=0)
            b.time.run(0.2)
        b.time.run(1 - 0.2 * len(members))


CUT_OFF = "node 0 (127.0.0.1) hears none of the 3 other nodes any more: they fell silent together, so its own host or the network"


def test_node_0_that_is_cut_off_from_all_others_says_so() -> None:
    """Whichever of them reaches the limit first; the others' end does not change it."""
    b = Bench(4, grace_s=10.0)
    members = b.released(4)
    ping(b, members, 30)
    silent_at = b.time.clock
    ping(b, members[:1], 19)
    members[2].cut(SILENT)
    b.time.run(0)
    assert b.hub.state == ENDING
    (stop,) = members[0].of("stop")
    last = f"last heard of them at {blame.iso(EPOCH + silent_at - 0.4)}, 19.4 s before"
    assert stop["judgement"]["reason"] == f"{CUT_OFF} to it is the likely cause; {last}"
    b.time.run(1)
    for m in (members[1], members[3]):
        m.cut(SILENT)
    b.time.run(1)
    members[0].send(type="report", suspects=[suspect(0, EPOCH + b.time.clock)], finishes=[])
    b.time.run(0.5)
    judgement = b.judged(members[:1])
    assert judgement == {**stop["judgement"], "failures": judgement["failures"], "because": judgement["because"]}
    assert judgement["exit_code"] == 75


@pytest.mark.parametrize("late", [False, True])
def test_a_node_that_has_given_node_0_up_was_not_killed(late: bool) -> None:
    """Its host answers again when the network does, and resets a connection that it has no more."""
    b = Bench(3, grace_s=1.0, lost_after_s=5.0)
    members = b.released(3)
    ping(b, members, 30)
    ping(b, members[:1], 6)
    for m in members[1:]:
        m.on_message = lambda message: None
    if late:  # of one of them that is heard of first
        members[2].cut(SILENT)
        b.time.run(3)
    for m in members[1 : 2 if late else 3]:
        m.cut(RESET)
    ping(b, members[:1], 4)
    members[0].send(type="report", suspects=[], finishes=[])
    b.time.run(60)
    judgement = b.judged(members[:1])
    assert judgement["reason"].startswith("node 0 (127.0.0.1) hears none of the 2 other nodes any more: they fell silent together")
    assert (judgement["exit_code"], judgement["notes"]) == (75, [])


def test_a_node_that_is_reset_while_it_speaks_was_killed() -> None:
    b = Bench(3, grace_s=1.0, lost_after_s=5.0)
    members = b.released(3)
    ping(b, members, 30)
    members[1].cut(RESET)
    ping(b, (members[0], members[2]), 4)
    assert members[0].of("stop")[0]["judgement"]["exit_code"] == 137


def test_node_0_that_is_cut_off_while_all_stop_says_so() -> None:
    """Its ranks have failed of it before the limit; what it knows then is as much."""
    b = Bench(4, grace_s=1.0)
    members = b.released(4)
    ping(b, members, 30)
    for m in members[1:]:
        m.on_message = lambda message: None
    ping(b, members[:1], 5)
    value = suspect(0, EPOCH + b.time.clock)
    value["culprit"]["error"] = TIMED_OUT
    members[0].send(type="fail", suspect=value)
    b.time.run(1)
    members[0].send(type="report", suspects=[value], finishes=[])
    b.time.run(60)
    assert b.judged(members[:1])["reason"].startswith(CUT_OFF)


def test_a_node_is_lost_where_another_has_spoken_since() -> None:
    """The silence of the other one is of now."""
    b = Bench(3, grace_s=1.0)
    members = b.released(3)
    ping(b, members, 30)
    ping(b, members[:2], 3)
    ping(b, members[:1], 17)
    members[2].cut(SILENT)
    b.time.run(0)
    assert members[0].of("stop")[0]["judgement"]["reason"].startswith("node 2 (127.1.0.3) does not answer")


def test_whose_silence_it_is_is_waited_for_where_the_limit_is_short() -> None:
    """A node that is there says something at least each second."""
    b = Bench(3, lost_after_s=1.0)
    members = b.released(3)
    ping(b, members, 30)
    ping(b, members[:1], 1)
    members[2].cut(SILENT)
    b.time.run(1)
    assert b.hub.state == RUNNING
    members[1].send(type="ping", sent=0.0, heard=0)
    b.time.run(liveness.LOOK_S)
    assert b.hub.state == ENDING
    assert members[0].of("stop")[0]["judgement"]["reason"].startswith("node 2 (127.1.0.3) does not answer")


@pytest.mark.parametrize("silent", [(1,), (1, 2)])
def test_of_two_nodes_nobody_knows_which_side_it_is(silent: tuple[int, ...]) -> None:
    """Nor where the third had been stopped long before."""
    b = Bench(1 + len(silent))
    members = b.released(1 + len(silent))
    ping(b, members[:2], 100)
    ping(b, members[:1], 20)
    members[1].cut(SILENT)
    b.time.run(0)
    assert members[0].of("stop")[0]["judgement"]["reason"].startswith("node 1 (127.1.0.2) does not answer")


TIMED_OUT = {"name": "gloo-timeout", "kind": "consequence", "line": "Timed out", "meaning": "", "remedy": "", "source": "", "retry": ""}


@pytest.mark.parametrize(("after_s", "code"), [(0.5, 137), (4.0, 3)])
def test_one_that_is_killed_well_after_the_first_failure_was_not_what_that_came_of(after_s: float, code: int) -> None:
    """As while the evidence of a time-out is taken."""
    b = Bench(3, grace_s=30.0)
    members = b.released(3)
    b.time.run(60)
    value = suspect(1, EPOCH + b.time.clock)
    value["culprit"]["error"] = TIMED_OUT
    members[1].send(type="fail", suspect=value)
    b.time.run(after_s)
    members[2].cut()
    b.time.run(5)
    for m in members[:2]:
        m.send(type="report", suspects=[value] if m is members[1] else [], finishes=[])
    judgement = b.judged(members[:2])
    assert judgement["exit_code"] == code
    killed = "ranklaunch on node 2 (127.1.0.3) was killed by SIGKILL, 4.0 s after the end of the job had begun"
    assert judgement["notes"] == ([killed] if code == 3 else [])


def test_each_break_has_a_second_of_its_own() -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].cut()
    b.time.run(0.8)
    again = b.member(1)
    b.time.run(0.1)
    again.cut()
    second = b.time.clock
    b.time.until(second + 5, lambda: b.hub.state == ENDING)
    assert b.time.clock == second + liveness.RETURN_S


def test_a_timer_that_comes_too_early_ends_nothing() -> None:
    b = Bench(2)
    b.released(2)[1].cut()
    b.time.run(0.5)
    b.feed(events.Overdue("i1"))
    assert b.hub.state == RUNNING


def test_one_that_goes_after_its_success_is_not_needed() -> None:
    b = Bench(2)
    members = b.released(2)
    members[1].send(type="done", finish=finish(1))
    members[1].cut()
    b.time.run(10)
    assert b.hub.state == RUNNING
    members[0].send(type="done", finish=finish(0))
    assert b.judged(members[:1])["exit_code"] == 0


def test_one_that_goes_after_its_report_is_waited_for_no_longer() -> None:
    b = Bench(2)
    members = b.released(2)
    members[0].send(type="report", suspects=[suspect(0)], finishes=[])
    members[0].cut()
    members[1].send(type="report", suspects=[], finishes=[])
    assert b.judged(members[1:])["exit_code"] == 3


def test_one_that_comes_back_when_all_is_over_hears_it() -> None:
    b = Bench(2)
    members = b.released(2)
    members[0].send(type="fail", suspect=suspect(0))
    members[1].cut(RESET)
    members[0].send(type="report", suspects=[suspect(0)], finishes=[])
    again = b.member(1)
    b.time.run(0)
    assert again.types() == ["welcome", "stop"]
    again.send(type="report", suspects=[], finishes=[])
    assert b.judged([members[0], again])["culprit"]["node"] == 0
    once_more = b.member(1)
    assert once_more.types() == ["welcome", "judgement"]


def test_one_that_goes_while_all_gather_may_come_again() -> None:
    b = Bench(2)
    b.member(1, "first").cut()
    b.time.run(1)
    assert b.said == ["muster: node 1 (127.1.0.2) is gone; waiting for it to connect again"]
    b.fails(b.released(2))


def test_one_whose_connection_breaks_at_the_release_is_released() -> None:
    b = Bench(2)
    b.member(1).cut(RESET)
    other = b.member(0)
    assert other.of("release")
    again = b.member(1)
    assert again.types() == ["welcome", "release"]
