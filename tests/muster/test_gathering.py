"""Who may start together, and who may not."""

from __future__ import annotations

from typing import Any

import pytest
from muster_machines import FACTS, Bench, Peer, suspect

from ranklaunch.muster import events
from ranklaunch.muster.hub import GATHERING, JUDGED, RUNNING


def test_two_that_are_the_same_node_are_refused() -> None:
    b = Bench(2, lost_after_s=1.0)
    members = [b.member(1, "a", host="one"), b.member(1, "b", host="two"), b.member(0)]
    b.time.run(5.25)
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    assert "2 containers say that they are node 1: one at 10.0.0.1 and two at 10.0.0.2" in judgement["reason"]


def test_one_that_was_lost_with_its_host_may_still_seem_to_be_there() -> None:
    b = Bench(2, lost_after_s=20.0)
    lost, _, _ = [b.member(1, "a"), b.member(1, "b"), b.member(0)]
    b.time.run(19.5)
    assert b.hub.state == GATHERING
    lost.cut(OSError(110, "Connection timed out"))
    b.time.run(0.5)
    assert b.hub.state == RUNNING


@pytest.mark.parametrize("odd", [1, 2])
def test_those_who_disagree_are_refused(odd: int) -> None:
    b = Bench(3)
    members = b.members(range(3), facts=None)
    for node, m in enumerate(members):
        m.send(type="ready", facts={**FACTS, "torch": "2.5" if node == odd else "2.6"}, index=node, host="")
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    assert f"torch differs: 2.5 on node {odd}" in judgement["reason"]
    assert "RANKLAUNCH_MUSTER_ALLOW=torch on node 0" in judgement["reason"]


def test_those_who_disagree_wait_a_moment_for_the_others() -> None:
    b = Bench(3)
    members = [b.member(0), b.member(1, facts={**FACTS, "torch": "other"})]
    b.time.run(4.9)
    assert b.hub.state == GATHERING
    b.time.run(0.5)
    assert "torch differs" in b.judged(members)["reason"]
    assert "1 of 3 nodes: 127.1.0.3" in b.judged(members)["reason"]


def test_node_0_may_be_ready_after_the_others() -> None:
    b = Bench(3)
    zero = b.member(0, facts=None)
    others = b.members([1, 2])
    zero.send(type="ready", facts={**FACTS, "torch": "2.5"}, index=0, host="")
    assert b.hub.state == JUDGED
    assert b.judged([zero, *others])["exit_code"] == 78


def test_what_may_differ_does_not_matter() -> None:
    b = Bench(2, allowed=("torch",))
    members = [b.member(0), b.member(1, facts={**FACTS, "torch": "other"})]
    assert all(m.of("release") for m in members)


def test_what_one_is_busy_with_is_said() -> None:
    b = Bench(2)
    zero, one = b.member(0), b.member(1, facts=None)
    one.send(type="busy", doing="installing")
    b.time.run(2)
    assert zero.of("status")[0]["missing"] == "1 that is here, but busy: 127.1.0.2 (node 1, installing)"


def test_one_that_comes_when_the_job_has_started_is_sent_away() -> None:
    b = Bench(2)
    members = b.released(2)
    late = b.member(1, "another start")
    judgement = b.judged([late])
    assert judgement["exit_code"] == 75
    assert judgement["reason"] == "node 1 (127.1.0.2) came when the job had already started without it"
    assert late.turned_away
    late.send(type="fail", suspect=suspect(1))
    late.send(type="bye")
    assert b.hub.state == RUNNING
    b.fails(members)


def test_too_few_in_time_are_named() -> None:
    b = Bench(3, timeout_s=10.0)
    member = b.member(1)
    b.time.run(9.7)
    assert b.hub.state == GATHERING
    b.time.run(0.5)
    judgement = b.judged([member])
    assert judgement["exit_code"] == 75
    assert judgement["reason"] == (
        "waited 10 s in vain for the job's nodes: 2 of 3 nodes: 127.0.0.1 (node 0, nothing heard of it), "
        "127.1.0.3 (node 2, nothing heard of it); --muster-timeout-s (RANKLAUNCH_MUSTER_TIMEOUT_S) sets how long"
    )
    assert set(b.asked) == {"127.0.0.1", "127.1.0.3"}


def test_why_one_is_missing_is_found_out() -> None:
    b = Bench(3)
    zero = b.member(0)
    b.time.run(1.5)
    b.feed(events.Resolved(1, (), "its name does not resolve (Name or service not known)"))
    b.feed(events.Resolved(2, ("10.0.3.40",), ""))
    b.time.run(0.5)
    missing = zero.of("status")[0]["missing"]
    assert "127.1.0.2 (node 1, its name does not resolve (Name or service not known))" in missing
    assert "127.1.0.3 (node 2, nothing heard of 10.0.3.40)" in missing


def test_what_keeps_everybody_out_is_said_and_who_was_refused() -> None:
    b = Bench(2)
    zero = b.member(0)
    b.feed(events.AtDoor("port 1 of this node is in use", "10.0.0.9 (another key)"))
    b.time.run(2)
    missing = zero.of("status")[0]["missing"]
    assert missing.startswith("port 1 of this node is in use; 1 of 2 nodes: ")
    assert missing.endswith("; refused: 10.0.0.9 (another key)")


def test_a_port_that_stays_taken_ends_the_job_long_before_the_deadline() -> None:
    b = Bench(2)
    zero = b.member(0, facts=None)  # whatever it is busy with
    taken = events.AtDoor("port 1 of this node is in use", "", 10.0)
    b.feed(taken)
    b.time.run(9.5)
    b.feed(events.AtDoor("", "", 10.0))  # it was an earlier start on its way out
    b.time.run(20)
    b.feed(taken)
    b.time.run(5)
    b.feed(events.AtDoor(taken.trouble, "10.0.0.9 (another key)", 10.0))
    b.time.run(4.5)
    assert b.hub.state == GATHERING
    b.time.run(0.75)
    assert b.judged([zero])["exit_code"] == 75
    assert b.judged([zero])["reason"] == "no node can connect to node 0: port 1 of this node is in use"


def test_an_index_that_the_job_does_not_have_starts_nothing() -> None:
    b = Bench(3, allowed=("all",))
    members = b.members([0, 1, 17])
    b.time.run(4)
    assert b.hub.state == GATHERING
    b.time.run(1.25)
    assert "h17 at 10.0.0.3 says that it is node 17: of 3 nodes the last is 2" in b.judged(members)["reason"]


# What cannot be meant


def refused(*facts: dict[str, str], allowed: tuple[str, ...] = ()) -> str:
    b = Bench(len(facts), allowed=allowed)
    members = b.members(range(len(facts)), facts=None)
    for node, m in enumerate(members):
        m.send(type="ready", facts={**FACTS, **facts[node]}, index=node, host="")
    judgement = b.judged(members)
    assert judgement["exit_code"] == 78
    return str(judgement["reason"])


TWO_AND_ONE = ({"slots": "2 on each", "world_size": "4"}, {"slots": "1 on each", "world_size": "2"})


@pytest.mark.parametrize("allowed", [(), ("all",), ("slots", "world_size")])
def test_slots_that_differ_are_to_be_told_to_every_node(allowed: tuple[str, ...]) -> None:
    reason = refused(*TWO_AND_ONE, allowed=allowed)
    assert "RANKLAUNCH_MUSTER_ALLOW" not in reason
    assert reason.endswith("; if these numbers are right, set RANKLAUNCH_SLOTS=2,1 on every node")


def test_each_nodes_own_slots_are_offered() -> None:
    assert "RANKLAUNCH_SLOTS=2,3,1 on" in refused({"slots": "2 on each"}, {"slots": "4,3,2"}, {"slots": "1 on each"})


@pytest.mark.parametrize("odd", [{}, {"slots": "8,8,8... (9000 characters, sha256:0)"}, {"slots": "many"}, {"slots": "4"}])
def test_slots_that_are_not_known_are_not_offered(odd: dict[str, str]) -> None:
    assert "RANKLAUNCH_SLOTS" not in refused({"slots": "2 on each"}, odd)


def test_what_can_be_meant_beside_what_cannot() -> None:
    first, second = ({**facts, "torch": version} for facts, version in zip(TWO_AND_ONE, "12"))
    assert "set RANKLAUNCH_MUSTER_ALLOW=torch on node 0" in refused(first, second)


def test_a_topology_on_some_nodes_only_is_refused() -> None:
    """Whose ranks would have two orders."""
    text = refused({"route_plan": "true"}, {"route_plan": "true, but without a topology"})
    assert "route_plan differs: true on node 0" in text
    assert "true, but without a topology on node 1" in text
    assert "ROUTE_PLAN=false keeps the given order on all, ROUTE_TOPO_WAIT_TIME sets how long" in text
    assert "RANKLAUNCH_MUSTER_ALLOW" not in text


@pytest.mark.parametrize("name", ["method", "nodes", "world_size", "slots", "tasks", "master_port", "route_plan"])
def test_what_cannot_differ_is_exempt_from_nothing(name: str) -> None:
    reason = refused({name: "1"}, {name: "2"}, allowed=("all", name))
    assert f"{name} differs" in reason
    assert "RANKLAUNCH_MUSTER_ALLOW" not in reason


# The rank tables of a start that is not the first


def gate(count: int = 2, **more: Any) -> tuple[Bench, list[Peer]]:
    """After a failure that all start again from."""
    b = Bench(count, restarts=True, **more)
    members = b.released(count)
    b.fails_once(members)
    return b, members


def ready(m: Peer, node: int, table: str, **more: Any) -> None:
    m.send(type="ready", round=1, facts={**FACTS, "hosts": f"of {table}", "rank_table": table}, index=node, host="", **more)


def test_a_table_that_is_not_yet_the_same_is_waited_for() -> None:
    """What a node said before, and is heard once more, does not count again."""
    b, members = gate()
    for node, m in enumerate(members):
        ready(m, node, ("new", "old")[node])
    b.time.run(30)
    assert "the same rank table on all nodes: new on node 0" in members[0].of("status")[-1]["missing"]
    ready(members[1], 1, "new", again=1)
    assert [m.of("release")[-1]["table"] for m in members] == ["new", "new"]
    ready(members[1], 1, "old")
    assert b.hub.state == RUNNING


def test_a_word_of_an_earlier_table_that_comes_late_is_none() -> None:
    b, members = gate()
    ready(members[1], 1, "new", again=1)
    ready(members[1], 1, "old", again=0)
    ready(members[0], 0, "new")
    assert b.hub.state == RUNNING


def test_one_that_never_becomes_the_same_is_waited_for_until_the_deadline() -> None:
    b, members = gate(timeout_s=60.0)
    for node, m in enumerate(members):
        ready(m, node, ("new", "old")[node])
    b.time.run(61)
    judgement = b.judged(members)
    assert judgement["exit_code"] == 75
    assert "old on node 1" in judgement["reason"]
    assert "never one that is mounted by subPath" in judgement["reason"]


def test_at_the_first_start_tables_that_differ_are_a_mistake() -> None:
    b = Bench(2)
    members = b.members(range(2), facts=None)
    for node, m in enumerate(members):
        m.send(type="ready", facts={**FACTS, "rank_table": str(node)}, index=node, host="")
    assert b.judged(members)["exit_code"] == 78
    assert "rank_table differs" in b.judged(members)["reason"]
