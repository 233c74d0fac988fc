"""What node 0 says of the key of the muster."""

from __future__ import annotations

import socket

import helpers
import pytest
from muster_machines import muster

from ranklaunch.muster.nodes import Nodes, OfNodes
from ranklaunch.plan.model import Plan
from ranklaunch.system.loop import Loop
from ranklaunch.values import replace


def said(plan: Plan, **env: str) -> str:
    """At the start of node 0."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    secret = next(iter(env), "")
    lines: list[str] = []
    nodes = Nodes(replace(plan, muster=muster(2, port=port, secret=secret)), env, Loop(), lines.append, _deaf())
    nodes.join()
    assert nodes._hub
    nodes._hub.close()
    return "\n".join(lines)


def _deaf() -> OfNodes:
    return OfNodes(*[lambda what: None] * 4)


@pytest.mark.parametrize(("offers", "warned"), [({}, False), ({"ssh host key": "/run/key.pub"}, True)])
def test_a_key_that_can_be_guessed_is_warned_of(plan_of_two: Plan, offers: dict[str, str], warned: bool) -> None:
    plan = replace(plan_of_two, offers=offers)
    assert "muster: its key is derived from the job's name" in said(plan)
    assert ("can have commands run on these nodes" in said(plan)) is warned
    assert said(plan, RANKLAUNCH_SECRET="something") == ""


@pytest.fixture
def plan_of_two() -> Plan:
    return helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2", "RANKLAUNCH_NODE": "0"}, method="spawn")
