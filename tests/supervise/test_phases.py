"""What a node says that it waits for, while it does and not afterwards; and whom it asks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.errors import WaitError
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.children import Child
from ranklaunch.supervise.attempt import Phases
from ranklaunch.supervise.context import Start
from ranklaunch.supervise.record import Record
from ranklaunch.system.loop import Loop


class Nodes:
    """What the phases say that they wait for, while they do."""

    def __init__(self) -> None:
        self.phases: Any = None
        self.waits: list[str] = []

    def busy(self, what: str) -> None:
        pass

    def muster(self, *given: object) -> float:
        self.note()
        return 0.0

    def note(self) -> bool:
        self.waits.append(self.phases.waiting)
        return False


class Children:
    """Children that end as soon as they have started."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.running: dict[int, Child] = {}
        self.started: list[Process] = []

    def start(self, processes: Sequence[Process], role: str, plan: Plan | None = None) -> None:
        self.started.extend(processes)


class Never:
    """Condition that never holds."""

    def missing(self) -> str:
        return "a file"

    def close(self) -> None:
        pass


class Attempt:
    """Attempt that has not ended; whenever somebody asks for its ending, the wait of the moment is noted."""

    def __init__(self, start: Start, children: Children, nodes: Nodes) -> None:
        self.start, self.children, self.nodes = start, children, nodes
        self.record, self.loop, self.say = start.record, Loop(), print

    @property
    def ending(self) -> None:
        self.nodes.note()


def phases(nodes: Nodes, env: Mapping[str, str] | None = None) -> Phases:
    plan = replace(helpers.plan(helpers.local(nodes=2)), offers={})
    attempt: Any = Attempt(Start(plan, Record("/logs"), helpers.MemoryFiles()), Children(env or {}), nodes)
    begun = nodes.phases = Phases(attempt)
    return begun


def test_what_is_waited_for_is_said_while_it_is() -> None:
    nodes = Nodes()
    begun = phases(nodes)
    begun._run_steps((Process("a step", ("true",), "/logs/step.log"),))
    begun._muster()
    assert nodes.waits[0] == "a step"
    assert [wait.partition(",")[0] for wait in nodes.waits if "nodes" in wait] == ["the other nodes of the job"]
    assert begun.waiting == ""


def test_a_wait_in_vain_is_over_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> float:
        msg = "too late"
        raise WaitError(msg)

    monkeypatch.setattr("ranklaunch.supervise.waits.waiting.perform", refuse)
    begun = phases(Nodes())
    with pytest.raises(WaitError):
        begun.wait_for(next(iter(begun.plan.waits)), Never())
    assert begun.waiting == ""


@pytest.mark.parametrize(("code", "said"), [('echo "$@" of $WHOSE', "-L of the job\n"), ("echo half; kill -STOP $$", "")])
def test_a_tool_has_what_processes_get_and_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    if not said:
        monkeypatch.setattr("ranklaunch.hangs.devices.LIMIT_S", 0.2)
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{code}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    begun = phases(Nodes(), {"PATH": str(tmp_path), "WHOSE": "the job"})
    assert begun._ask(("nvidia-smi", "-L")) == said
    os.waitpid(-1, 0)
    assert begun._ask(("npu-smi", "info")) == ""
