"""Thousands of nodes at one node 0, by real sockets."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import pytest
from muster_helpers import Bench, Client
from muster_machines import suspect

from ranklaunch.muster import door
from ranklaunch.muster.hub import RUNNING


@pytest.mark.one_python
def test_thousands_of_members(bench: Callable[..., Bench], record_property: Callable[[str, object], None]) -> None:
    wanted = 2048
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = door.UNKNOWN_MOST + door.SPARE_FDS + 500
    nodes = wanted if hard == resource.RLIM_INFINITY else min(wanted, (hard - spare) // 2)
    if nodes < wanted and os.environ.get("CI"):
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
    while len(b.door._unknown) < door.UNKNOWN_MOST:
        b.loop.after(0, lambda: None)
        b.loop.step()
    for _ in range(5):
        b.loop.after(0, lambda: None)
        b.loop.step()
    b.run(lambda: all(m.of("welcome") or m.closed for m in members), "each is welcome, or closed")
    assert sum(m.closed for m in members) == 0
