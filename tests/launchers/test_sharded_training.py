"""A training over a mesh of all devices as MaxText lays it out on JAX, on two hosts with two
devices each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob, Node
from testbench.places import child

pytestmark = pytest.mark.launchers

STEPS = 8
LOSS = re.compile(r"^step (\d+)/\d+ loss (\S+)$", re.MULTILINE)


def started(hosts: Hosts, folder: Path, **env: str) -> LauncherJob:
    (folder / "checkpoints").mkdir(parents=True)
    job = LauncherJob(hosts, folder, "jax", 2)
    told = {"CHECKPOINTS": str(folder / "checkpoints"), "STEPS": str(STEPS), **env}
    job.start(child("sharded_training.py"), env=told, options=("--accelerator", "cpu"))
    return job


def losses(node: Node, log: str) -> dict[int, str]:
    return {int(step): loss for step, loss in LOSS.findall(node.log(log))}


def test_a_restart_in_place(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """The steps of both rounds have the losses of a job without a failure."""
    cluster = hosts(2)
    whole = started(cluster, tmp_path / "whole")
    whole.end(0)
    expected = losses(whole.nodes[0], "rank_0.log")
    assert list(expected) == list(range(1, STEPS + 1))
    assert float(expected[STEPS]) < float(expected[1])
    assert losses(whole.nodes[1], "rank_1.log") == expected
    mesh = "mesh {'data': 2, 'fsdp': 2} of 2 processes, after step 0\n"
    assert mesh in whole.nodes[0].log("rank_0.log")

    job = started(cluster, tmp_path / "restarted", FAILURE="1:5", RANKLAUNCH_MAX_RESTARTS="1")
    verdict = job.end(0)
    assert [each["culprit"] for each in verdict["restarts"]] == ["rank 1"]
    assert "FloatingPointError: loss of step 5 is not finite" in verdict["restarts"][0]["reason"]
    first, second = (losses(job.nodes[0], log) for log in ("rank_0.log", "restart_1/rank_0.log"))
    assert (list(first), list(second)) == ([1, 2, 3, 4], [5, 6, 7, 8])
    assert {**first, **second} == expected
