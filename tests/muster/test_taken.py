"""A port of node 0's that another process has: who that is, and how long it is waited for."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import helpers
import pytest
from muster_helpers import HUB, KEY
from muster_machines import muster

from ranklaunch.errors import WaitError
from ranklaunch.muster import door
from ranklaunch.muster.door import Door
from ranklaunch.muster.driver import MemberDriver
from ranklaunch.muster.events import AtDoor, Event
from ranklaunch.muster.nodes import STRANGE_S, Nodes
from ranklaunch.system import ports
from ranklaunch.system.loop import Loop
from ranklaunch.system.ports import Holder
from testbench.waiting import free_port

LISTENS = "import socket, sys, time\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nprint(flush=True)\ntime.sleep(600)"


def test_who_has_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    assert ports.holder(port) is None
    with socket.create_server((HUB, port)):
        found = ports.holder(port)
        assert found
        assert (found.uid, found.pid) == (os.getuid(), os.getpid())
        assert found.command
        monkeypatch.setattr(ports, "_owner", lambda inode: 0)
        assert ports.holder(port) == Holder(os.getuid())


@pytest.mark.parametrize(
    ("holder", "text", "may_be_ours"),
    [
        (Holder(os.getuid(), 7, ("/usr/bin/python3", "-m", "ranklaunch", "run")), "process 7 (/usr/bin/python3 -m ranklaunch run)", True),
        (Holder(os.getuid(), 7, ("python3", "serve.py", "--token", "hunter2")), "process 7 (python3 serve.py --token ***)", False),
        (Holder(os.getuid(), 7, ("x" * 99,)), f"process 7 ({'x' * 60}...)", False),
        (Holder(os.getuid()), f"a process of user id {os.getuid()}", True),
        (Holder(os.getuid() + 1), f"a process of user id {os.getuid() + 1}", False),
        (Holder(os.getuid() + 1, 7, ("ranklaunch", "run")), "process 7 (ranklaunch run)", False),
    ],
)
def test_who_it_is_is_said_without_secrets(holder: Holder, text: str, may_be_ours: bool) -> None:
    assert (holder.text, holder.may_be_ours) == (text, may_be_ours)


def at_door(found: Holder | None, monkeypatch: pytest.MonkeyPatch) -> AtDoor:
    """What is heard of a door whose port is taken, in a job with a grace of 25 seconds."""
    heard: list[Event] = []
    plan = muster(2, port=free_port())
    monkeypatch.setattr(ports, "holder", lambda port: found)
    with socket.create_server((HUB, plan.port)):
        taken = Door(plan, KEY, Loop(), lambda text: None, heard.append, 25.0)
        taken.open()
        taken.close()
    assert heard[1:] == []
    event = heard[0]
    assert isinstance(event, AtDoor)
    return event


@pytest.mark.parametrize(
    ("holder", "who", "patience_s"),
    [
        (Holder(os.getuid(), 7, ("python3", "serve.py")), "process 7 (python3 serve.py)", door.TAKEN_S),
        (Holder(os.getuid(), 7, ("ranklaunch", "run")), "process 7 (ranklaunch run)", door.TAKEN_S + 25),
        (None, "another process", door.TAKEN_S + 25),
    ],
)
def test_an_earlier_start_has_its_grace_to_end(holder: Holder, who: str, patience_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    event = at_door(holder, monkeypatch)
    assert f"of this node is in use by {who}; set another --muster-port (RANKLAUNCH_MUSTER_PORT)" in event.trouble
    assert event.patience_s == patience_s


@pytest.mark.processes
def test_another_process_is_found() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", LISTENS, str(port)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        found = ports.holder(port)
        process.kill()
    assert found
    assert (found.pid, found.command[0]) == (process.pid, sys.executable)


class Seconds(Loop):
    """A loop without events, each step of which takes a second of its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)

    def step(self, most_s: float = math.inf) -> None:
        self.now += 1


def test_another_jobs_node_0_is_not_waited_for_until_the_deadline() -> None:
    """The job's own, whose port that one has, cannot tell anybody."""
    env: Mapping[str, str] = helpers.local(2, "1", 1)
    plan = helpers.plan(env)
    assert plan.muster
    ignore: Any = lambda *_: None  # noqa: E731
    loop = Seconds()
    nodes = Nodes(plan, {}, loop, ignore, ignore)
    nodes._member = MemberDriver(plan.muster, KEY, loop, ignore, nodes)
    member = nodes._member.member
    member.why, member.strange_since = "why", -(STRANGE_S + plan.limits.grace_s - 1)
    with pytest.raises(WaitError, match=r"for 55 s another ranklaunch has answered in place of node 0 \(n0\): why"):
        nodes.muster(plan, {}, lambda: False)
    assert loop.clock() == 1
