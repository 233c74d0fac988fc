"""Whatever order things happen in: all are released together or not at all, one judgement for all who get one, and everybody ends."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from muster_network import LIMITS, Net, Node

STARTS_S, RUNS_S = 8.0, 12.0
# A node that starts last waits for the others, for node 0 to say so, for its end and the others', for a host that is lost; and again.
BOUND_S = STARTS_S + LIMITS["timeout_s"] + 15 + RUNS_S + LIMITS["end_timeout_s"] + 2 * (LIMITS["lost_after_s"] + 10) + 30
EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
SECONDS = st.floats(0, 1).map(lambda part: round(part * part, 3))
FAULTS = st.sampled_from(["kill", "cut", "reset", "late reset", "fail", "again", "stop"])


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.one_of(st.integers(2, 4), st.integers(2, 6), st.integers(2, 12), st.integers(5, 64)))
    some = st.integers(0, count - 1)
    return {
        "count": count,
        "seed": draw(st.integers(0, 2**32)),
        "followers": draw(st.sampled_from([0, 0, 0, 1])) if count > 2 else 0,
        "repeats": draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        "slow": draw(st.sampled_from([0.0, 0.01, 0.3, 1.0])),
        "late": draw(st.dictionaries(some, SECONDS.map(lambda s: s * STARTS_S), max_size=4)),
        "missing": draw(st.sampled_from([None, None, None, None, count - 1])),
        "codes": draw(st.dictionaries(some, st.sampled_from([0, 1, 3]), max_size=4)),
        "runs": draw(st.lists(SECONDS.map(lambda s: s * RUNS_S), min_size=1, max_size=4)),
        "stops": draw(st.lists(SECONDS.map(lambda s: s * 2), min_size=1, max_size=3)),
        "talk_s": draw(st.sampled_from([0.0, 0.5, 5.0])),
        "at_release": draw(st.lists(some, max_size=2)),
        "restarts": draw(st.sampled_from([0, 1, 2, 5])),
        "heals": draw(st.booleans()),  # nothing fails by itself in a later round
        "faults": draw(st.lists(st.tuples(SECONDS.map(lambda s: s * 25), FAULTS, some), max_size=6)),
    }


def play(job: dict[str, Any]) -> Net:
    net = Net(job["count"], job["seed"], followers=job["followers"], repeats=job["repeats"], slow=job["slow"], restarts=job["restarts"])
    net.at_release = job["at_release"]
    net.talk_s = job["talk_s"]

    def start(index: int) -> None:
        follower = index >= job["count"] - job["followers"]
        run_s = 1000.0 if follower else job["runs"][index % len(job["runs"])]
        stop_s = job["stops"][index % len(job["stops"])]
        plans = [(run_s, job["codes"].get(index, 0)), *([(run_s, 0)] if job["heals"] else [])]
        net.start(index, net.chance.random(), plans, stop_s)

    for index in range(job["count"]):
        if index != job["missing"]:
            net.time.after(job["late"].get(index, 0.0), lambda index=index: start(index))  # type: ignore[misc]
    for at, fault, index in job["faults"]:
        net.time.after(at, lambda fault=fault, index=index: strike(net, fault, index, start))  # type: ignore[misc]
    net.time.run(STARTS_S)
    net.run(BOUND_S + job["restarts"] * (RUNS_S + LIMITS["timeout_s"] + 30))
    return net


def strike(net: Net, fault: str, index: int, start: Any) -> None:
    node = next((node for node in reversed(net.nodes) if node.index == index), None)
    if not node or node.dead or node.ended:
        return
    if fault == "kill":
        node.kill()
    elif fault == "again" and index:
        node.kill()
        net.time.after(net.chance.random() * 2, lambda: start(index))
    elif fault == "cut":
        node.cut()
    elif fault == "reset":
        node.reset(0.0)
    elif fault == "late reset":
        node.reset(net.chance.random())
    elif fault in ("fail", "stop"):
        node.fails(9 if fault == "fail" else 143)


def was_sent_away(node: Node) -> bool:
    return any("came when the job had already started" in judgement.reason for judgement in node.judgements)


def check(net: Net) -> None:
    # Everybody ends.
    assert [node.instance for node in net.nodes if not (node.dead or node.ended)] == []
    # All together or not at all.
    released = {node.instance for node in net.nodes if node.released}
    assert released <= (net.together or set())
    for node in net.nodes:
        if net.together and node.instance in net.together and not node.disturbed and not node.ending:
            assert node.released, node.instance
    assert net.left_out == []
    assert [decision.round for decision in net.decisions] == list(range(len(net.decisions)))
    # One judgement.
    for number, judged in net.rounds.items():
        assert judged == {repr(net.decisions[number].judgement)}, number
    judgements = {repr(judgement) for node in net.nodes if not was_sent_away(node) for judgement in node.judgements}
    assert len(judgements) <= 1, judgements
    assert judgements <= {repr(net.hub.judgement)}
    # Nobody is taken for one that speaks nonsense.
    assert not any("not understood" in line for line in net.hub_running.said)
    # Where nothing went wrong with the network or the machines, all end alike.
    if net.together and not any(node.disturbed or (node.ended and node.ended[0] in ("left", "alone", "dismissed")) for node in net.nodes):
        assert {node.ended and node.ended[0] for node in net.nodes} == {"judged"}
        assert len(judgements) == 1


def check_words(net: Net) -> None:
    """Each was heard once at most, and in its order. Until the end of a round began none was lost that had time to come, however often
    connections broke: what is missing is at the end of what its node has said in it. Who came too late hears later ones alone."""
    for node in net.nodes:
        by_node = [word for word in net.words if word[0] == node.instance]
        for_node = [word for to, word in net.words_said if not to or node.index in to]
        here = node.instance in (net.together or ())
        for heard, said in ((by_node, node.words_said), (node.words if here else [], for_node)):
            for number in {word[2] for word in heard}:
                those = [word for word in heard if word[2] == number]
                assert those == [word for word in said if word[2] == number][: len(those)], node.instance


@settings(max_examples=EXAMPLES)
@given(jobs())
def test_whatever_happens(job: dict[str, Any]) -> None:
    net = play(job)
    check(net)
    check_words(net)


PLAIN: dict[str, Any] = {
    "count": 3, "seed": 1, "followers": 0, "repeats": 0.0, "slow": 0.01, "late": {}, "missing": None, "codes": {}, "runs": [1.0],
    "stops": [0.1], "at_release": [], "faults": [], "talk_s": 0.0, "restarts": 0, "heals": False,
}  # fmt: skip


def codes(net: Net) -> list[int]:
    return [node.ended[1].exit_code if node.ended and node.ended[0] in ("judged", "lost") else -1 for node in net.nodes]


def test_the_network_itself() -> None:
    """So that the test above does not prove what nobody did."""
    assert codes(play(PLAIN)) == [0, 0, 0]
    assert codes(play({**PLAIN, "codes": {1: 3}})) == [3, 3, 3]
    assert codes(play({**PLAIN, "missing": 2})) == [75, 75]
    assert codes(play({**PLAIN, "runs": [20.0], "faults": [(4.0, "kill", 1)]}))[::2] == [137, 137]
    assert codes(play({**PLAIN, "runs": [20.0], "faults": [(4.0, "cut", 1)]})) == [75, 75, 75]
    assert codes(play({**PLAIN, "runs": [20.0], "faults": [(4.0, "kill", 0)]}))[1:] == [137, 137]
    assert codes(play({**PLAIN, "runs": [20.0], "faults": [(4.0, "cut", 0)]}))[1:] == [75, 75]
    assert codes(play({**PLAIN, "runs": [9.0], "faults": [(4.0, "reset", 1)]})) == [0, 0, 0]
    assert codes(play({**PLAIN, "late": {2: 5.0}, "faults": [(2.0, "again", 1)]}))[0] == 0


def test_rounds_follow_one_another() -> None:
    heals = {**PLAIN, "restarts": 3, "heals": True, "runs": [9.0]}
    net = play({**heals, "codes": {1: 3}})
    assert (codes(net), net.hub.round) == ([0, 0, 0], 1)
    assert (codes(net := play({**heals, "codes": {1: 3, 2: 5}})), net.hub.round) == ([0, 0, 0], 1)  # two failures are one restart
    assert (codes(net := play({**heals, "codes": {1: 3}, "heals": False})), net.hub.round) == ([3, 3, 3], 3)
    for at in (4.0, 9.05, 9.3, 10.5):  # in the round, while it stops, before the next release, in the next round
        net = play({**heals, "codes": {1: 3}, "faults": [(at, "kill", 2)]})
        assert codes(net)[:2] in ([137, 137], [3, 3]), at
        assert codes(play({**heals, "codes": {1: 3}, "faults": [(at, "reset", 2)], "repeats": 1.0})) == [0, 0, 0], at


def test_no_word_is_lost() -> None:
    """Of those that are said while connections break again and again, and every message comes twice."""
    breaks = [(4.0 + 0.7 * i, "late reset" if i % 2 else "reset", i % 2 + 1) for i in range(20)]
    net = play({**PLAIN, "runs": [30.0], "faults": breaks, "repeats": 1.0, "slow": 0.3, "talk_s": 0.4})
    check_words(net)
    assert codes(net) == [0, 0, 0]
    assert len(net.words_said) > 50
    for node in net.nodes:
        assert len(node.words_said) > 50
        assert len(node.words) == len([to for to, _ in net.words_said if not to or node.index in to])
        assert [word for word in net.words if word[0] == node.instance] == node.words_said
        assert len(list(node.member._words)) < 20  # what was heard is not kept
