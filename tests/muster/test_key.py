"""What node 0 says of the key of the muster."""

from __future__ import annotations

import json
import socket
from dataclasses import replace

import helpers
import pytest
from muster_machines import muster

from ranklaunch.muster.nodes import Listener, Nodes
from ranklaunch.muster.secret import secret
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.system.loop import Loop

TWO = {"PATH": "/usr/bin", "RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2", "RANKLAUNCH_NODE": "0"}


def said(plan: Plan, **env: str) -> str:
    """At the start of node 0."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    named = next(iter(env), "")
    lines: list[str] = []
    nodes = Nodes(replace(plan, muster=muster(2, port=port, secret=named)), env, Loop(), lines.append, _nobody)
    nodes.join()
    assert nodes._hub
    nodes._hub.close()
    return "\n".join(lines)


def _nobody() -> Listener:
    raise AssertionError


@pytest.mark.parametrize(("offers", "warned"), [({}, False), ({"ssh host key": "/run/key.pub"}, True)])
def test_a_key_that_can_be_guessed_is_warned_of(plan_of_two: Plan, offers: dict[str, str], warned: bool) -> None:
    plan = replace(plan_of_two, offers=offers)
    assert "muster: the key is derived from the job's name" in said(plan)
    assert ("can run commands on these nodes" in said(plan)) is warned
    assert said(plan, RANKLAUNCH_SECRET="something") == ""


@pytest.fixture
def plan_of_two() -> Plan:
    return helpers.plan(TWO, method="spawn")


ID = "0b24efb1-0000-4000-8000-00000000abcd"


@pytest.mark.parametrize("uid", [ID, f"llm-{ID}", "-----BEGIN EC PRIVATE KEY-----\nabc\n"])
def test_the_key_follows_from_an_id_of_the_job(uid: str) -> None:
    plan = helpers.plan({**TWO, "RANKLAUNCH_JOB_UID": uid}, method="spawn")
    assert plan.muster
    assert plan.muster.secret == "RANKLAUNCH_JOB_UID"
    assert secret(plan.muster, {"RANKLAUNCH_JOB_UID": uid}) == uid.encode()
    assert uid.encode().hex() not in json.dumps(as_json(plan)).encode().hex()
    assert all("RANKLAUNCH_JOB_UID" in process.unset for process in plan.processes)
    plan = helpers.plan({**TWO, "RANKLAUNCH_JOB_UID": uid, "RANKLAUNCH_SECRET": "own"}, method="spawn")
    assert plan.muster
    assert plan.muster.secret == "RANKLAUNCH_SECRET"


@pytest.mark.parametrize(("uid", "warned"), [("llm", True), ("", False)])
def test_what_can_be_guessed_is_no_id(uid: str, warned: bool) -> None:
    """A label that the engine does not know is empty."""
    plan = helpers.plan({**TWO, "RANKLAUNCH_JOB_UID": uid}, method="spawn")
    assert plan.muster
    assert plan.muster.secret == ""
    assert any("RANKLAUNCH_JOB_UID: it holds neither" in text for text in plan.warnings) is warned
