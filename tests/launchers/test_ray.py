"""Ray for real, on CPUs of one to three hosts: how jobs end, and whom the verdict names."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child

pytestmark = pytest.mark.launchers


def started(hosts: Hosts, folder: Path, word: str = "", **env: object) -> LauncherJob:
    job = LauncherJob(hosts, folder, "ray", 2)
    told = {"WORD": word, **{name: str(value) for name, value in env.items()}}
    job.start(child("ray_sums.py"), env=told, options=("--accelerator", "cpu"))
    return job


@pytest.mark.parametrize("nodes", [1, 3])
def test_success(hosts: Callable[[int], Hosts], tmp_path: Path, nodes: int) -> None:
    job = started(hosts(nodes), tmp_path, STEPS=3)
    job.end(0)
    assert f"ready {nodes} nodes, {2 * nodes} CPUs\n" in job.nodes[0].log("rank_0.log")
    for i, node in enumerate(job.nodes):
        assert node.log(f"ray/node_{i}/raylet.out")


@pytest.mark.parametrize(("word", "code"), [("exit", 42), ("worker", 1)])
def test_the_driver_fails(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, code: int) -> None:
    culprit = started(hosts(2), tmp_path, word).end(code)["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (0, 0, code)


@pytest.mark.parametrize(("word", "node"), [("raylet", 1), ("gcs", 0)])
def test_a_process_of_ray_is_killed(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, node: int) -> None:
    verdict = started(hosts(2), tmp_path, word).end(137)
    assert (verdict["culprit"]["node"], verdict["culprit"]["name"]) == (node, "ray")
    assert "was killed by signal 9" in verdict["reason"]


@pytest.mark.parametrize("asked", [(0, 1), (1,)])
def test_a_stop_request_to_all_or_to_one(hosts: Callable[[int], Hosts], tmp_path: Path, asked: tuple[int, ...]) -> None:
    job = started(hosts(2), tmp_path)
    job.said(0, "step 1/")
    for node in asked:
        job.nodes[node].popen.send_signal(signal.SIGTERM)
    verdict = job.end(143)
    assert (verdict["outcome"], verdict["culprit"]) == ("stopped", None)


def test_a_restart_in_place(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """The second round is a cluster of its own, and goes on behind the checkpoint."""
    env = {"STEPS": 5, "CHECKPOINT": tmp_path / "checkpoint", "RANKLAUNCH_MAX_RESTARTS": 1}
    verdict = started(hosts(2), tmp_path, "raylet", **env).end(0)
    assert [(each["round"], each["culprit"], each["node"]) for each in verdict["restarts"]] == [(0, "ray", 1)]
    assert "raylet of this node's Ray was killed by signal 9" in verdict["restarts"][0]["reason"]
