"""A hostfile where no platform says which nodes there are, and how a node finds itself in it."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

THREE = "# of the cluster\nh0 slots=2\n\n  h1   slots=2 # rack 7\nh2 slots=2\n"
ROUTES = """Local:
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 10.9.0.3
        /32 host LOCAL
     |-- 10.9.0.255
        /32 link BROADCAST
"""


def plan(text: str = THREE, name: str = "h1", path: str = "/w/hosts", more: dict[str, str] | None = None, **env: str) -> Plan:
    files = {path: text, "/proc/sys/kernel/hostname": f"{name}\n", "/proc/net/fib_trie": ROUTES, **(more or {})}
    named = {} if path == "/job/hostfile" else {"RANKLAUNCH_HOSTFILE": path}
    return helpers.plan({**named, **env}, files=files, method="deepspeed", log_dir="/logs")


def refusal(*args: str, **more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*args, **more)
    return str(caught.value)


def test_its_lines_are_the_nodes() -> None:
    found = plan()
    assert [(node.host, node.slots) for node in found.job.nodes] == [("h0", 2), ("h1", 2), ("h2", 2)]
    assert (found.job.node_index, found.job.platform, found.job.master) == (1, "local", "h0")
    told = {each.name: each.source for each in found.values}
    assert (told["slots"], told["node_index"]) == ("/w/hosts", "/w/hosts has h1")
    assert [node.slots for node in plan(RANKLAUNCH_SLOTS="4").job.nodes] == [4, 4, 4]
    assert [node.slots for node in plan("a slots=4 max_slots=8 # rack 7\nh1 slots=2").job.nodes] == [4, 2]


@helpers.for_each(
    {
        "the whole name": (THREE, "h2", 2),
        "the first part of the hostfile's": ("h0.x.y slots=1\nh1.x.y slots=1", "h1", 1),
        "the first part of its own": (THREE, "h2.x.y", 2),
        "the whole name before the first part": ("h1.a slots=1\nh1.b slots=1", "h1.b", 1),
        "an address": ("10.9.0.2 slots=1\n10.9.0.3 slots=1", "any", 1),
        "a name of /etc/hosts": ("x slots=1\ny slots=1", "any", 1),
        "this machine alone": ("localhost slots=2", "any", 0),
    }
)
def test_a_node_finds_itself(text: str, name: str, index: int) -> None:
    hosts = {"/etc/hosts": "127.0.0.1 localhost x\n10.9.0.3 other y # this one\n"}
    assert plan(text, name, more=hosts).job.node_index == index


def test_who_is_told_its_place_does_not_look() -> None:
    assert plan(name="any", RANKLAUNCH_NODE="2").job.node_index == 2
    assert plan("a slots=1\na2 slots=1", RANKLAUNCH_NODE="0").job.node_index == 0


def test_deepspeeds_own_place_counts_where_nothing_else_does() -> None:
    assert len(plan(path="/job/hostfile").job.nodes) == 3
    assert len(plan(path="/job/hostfile", RANKLAUNCH_NODES="1").job.nodes) == 1
    assert plan(path="/job/hostfile", RANKLAUNCH_PLATFORM="local").job.nodes[0].host == "localhost"
    modelarts = helpers.plan(helpers.modelarts(1), files={"/job/hostfile": THREE})
    assert len(modelarts.job.nodes) == 1


@helpers.for_each(
    [
        (("h0 slots=2\nh0 slots=2",), "/w/hosts, line 2: expected each host once, found 'h0 slots=2'"),
        (("h0 slots=2\nh1",), "/w/hosts, line 2: expected HOST slots=N, found 'h1'"),
        (("h0 slots=2 h1 slots=2",), "/w/hosts, line 1: expected HOST slots=N, found 'h0 slots=2 h1 slots=2'"),
        ((r"h0 slots=2\nh1 slots=2",), "line 1: expected HOST slots=N"),
        (("h0 slots=2.9",), "line 1: expected HOST slots=N"),
        (("h0 slots=2 slots=8",), "line 1: expected HOST slots=N"),
        (("h0 slots=2, h1 slots=4",), "line 1: expected HOST slots=N"),
        (("h0 slots=0",), "line 1: expected slots from 1 to"),
        (("h0$ slots=1",), "line 1: expected a host name or an IP address"),
        (("# none\n",), "/w/hosts: expected a line HOST slots=N for each node, found none"),
        ((THREE, "h7"), "no line is this node, called h7, with 10.9.0.3; set --node (RANKLAUNCH_NODE) to this node's line, from 0"),
        (("h1.a slots=1\nh1.b slots=1",), "h1.a, h1.b are all this node, called h1"),
        (("h9 slots=1",), "no line is this node"),
    ]
)
def test_what_is_refused(given: tuple[str, ...], said: str) -> None:
    assert said in refusal(*given)


@pytest.mark.parametrize("path", ["/w/hosts", "/job/hostfile"])
def test_of_a_hostfile_that_cannot_be_used_nothing_else_is_said(path: str) -> None:
    """Its nodes are not known, so neither their number nor this node's place can be wrong."""
    text, said = "h0 slots=8\nh1 lots=8\n", f"{path}, line 2: expected HOST slots=N, found 'h1 lots=8'"
    assert refusal(text, path=path, RANKLAUNCH_NODE="1") == said
    assert refusal(text, path=path, RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS="--include=h1") == said
    assert refusal(text, path=path, RANK="1", WORLD_SIZE="2") == said


def test_a_hostfile_beside_hosts_or_another_number_is_refused() -> None:
    assert "RANKLAUNCH_HOSTFILE='/w/hosts' beside RANKLAUNCH_HOSTS='a,b,c'" in refusal(RANKLAUNCH_HOSTS="a,b,c")
    assert "/w/hosts names 3 hosts, but RANKLAUNCH_NODES is 2" in refusal(RANKLAUNCH_NODES="2")
    with pytest.raises(ConfigError, match="RANKLAUNCH_HOSTFILE=/none: no such file"):
        helpers.plan({"RANKLAUNCH_HOSTFILE": "/none"})


def test_a_platform_that_knows_its_nodes_takes_none_and_says_so() -> None:
    found = helpers.plan(helpers.modelarts(2, RANKLAUNCH_HOSTFILE="/w/hosts"), method="spawn")
    assert any("RANKLAUNCH_HOSTFILE='/w/hosts' has no effect on platform modelarts" in text for text in found.warnings)
