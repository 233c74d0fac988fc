"""JAX for real, on CPUs of one to three hosts: how jobs end, and whom the verdict names."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

pytestmark = pytest.mark.launchers


def started(hosts: Hosts, folder: Path, orders: Mapping[int, str] | None = None, **env: object) -> LauncherJob:
    job = LauncherJob(hosts, folder, "jax", 2)
    told = {"ORDERS": json.dumps({str(process): word for process, word in (orders or {}).items()})}
    job.start(child("jax_sums.py"), env={**told, **{name: str(value) for name, value in env.items()}}, options=("--accelerator", "cpu"))
    return job


def ready(job: LauncherJob) -> None:
    for node in range(len(job.nodes)):
        job.said(node, "step 1/")


@pytest.mark.parametrize("nodes", [1, 3])
def test_success(hosts: Callable[[int], Hosts], tmp_path: Path, nodes: int) -> None:
    """Each node has one process, with all devices of the node, and initialize() needs no arguments."""
    job = started(hosts(nodes), tmp_path, STEPS=3)
    job.end(0)
    for i, node in enumerate(job.nodes):
        assert f"ready {i} of {nodes} devices 2 {2 * nodes}\n" in node.log(f"rank_{i}.log")
        assert f"step 3/3 sum {sum(range(nodes + 1))}\n" in node.log(f"rank_{i}.log")


@pytest.mark.parametrize(("word", "code"), [("raise", 1), ("exit", 42), ("kill", 137)])
def test_the_last_process_fails(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, code: int) -> None:
    culprit = started(hosts(2), tmp_path, {1: word}).end(code)["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (1, 1, code)


def test_the_process_with_the_coordinator_is_killed(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    culprit = started(hosts(3), tmp_path, {0: "kill"}).end(137)["culprit"]
    assert (culprit["node"], culprit["rank"]) == (0, 0)


@pytest.mark.parametrize("asked", [(0, 1), (1,)])
def test_a_stop_request_to_all_or_to_one(hosts: Callable[[int], Hosts], tmp_path: Path, asked: tuple[int, ...]) -> None:
    job = started(hosts(2), tmp_path)
    ready(job)
    for node in asked:
        job.nodes[node].popen.send_signal(signal.SIGTERM)
    verdict = job.end(143)
    assert (verdict["outcome"], verdict["culprit"]) == ("stopped", None)


def test_a_host_that_is_cut_off(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    cluster = hosts(2)
    job = LauncherJob(cluster, tmp_path, "jax", 2)
    job.start(child("jax_sums.py"), options=("--accelerator", "cpu"), env={"RANKLAUNCH_LOST_AFTER_S": "5"})
    ready(job)
    cluster[1].cut()
    assert [node.popen.wait(LONG_S) for node in job.nodes] == [75, 75]
    assert "node 1 (h1) does not answer" in job.nodes[0].verdict["reason"]
    assert all(not node.host.pids() for node in job.nodes)


def test_a_node_that_comes_late(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    cluster = hosts(2)
    first, second = (LauncherJob(part, tmp_path, "jax", 2) for part in (cluster, cluster))
    first.start(child("jax_sums.py"), options=("--accelerator", "cpu"), env={"STEPS": "3"}, only=[0])
    sleep_until(lambda: "waiting for" in first.nodes[0].err, first.words, LONG_S)
    second.start(child("jax_sums.py"), options=("--accelerator", "cpu"), env={"STEPS": "3"}, only=[1])
    first.nodes += second.nodes
    first.end(0)


def test_two_jobs_side_by_side(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """With ports of their own, as two jobs on one host need."""
    cluster, jobs = hosts(2), []
    for number in (0, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        jobs.append(LauncherJob(cluster, folder, "jax", 2))
        ports = ("--master-port", 7000 + number, "--muster-port", 7100 + number, "--job-name", f"job{number}")
        jobs[-1].start(child("jax_sums.py"), options=("--accelerator", "cpu", *ports), env={"STEPS": "5"})
    for job in jobs:
        assert [node.popen.wait(LONG_S) for node in job.nodes] == [0, 0], job.words()


@pytest.mark.parametrize(("process", "word"), [(1, "raise"), (0, "kill")])
def test_a_restart_in_place(hosts: Callable[[int], Hosts], tmp_path: Path, process: int, word: str) -> None:
    """The second round meets anew at the same port, and goes on behind the checkpoint."""
    job = LauncherJob(hosts(2), tmp_path, "jax", 2)
    order = {"ORDERS": json.dumps({str(process): word}), "STEPS": "6", "CHECKPOINT": str(tmp_path / "checkpoint")}
    job.start(child("jax_sums.py"), options=("--accelerator", "cpu"), env={**order, "RANKLAUNCH_MAX_RESTARTS": "1"})
    verdict = job.end(0)
    assert [each["round"] for each in verdict["restarts"]] == [0]
    assert verdict["restarts"][0]["culprit"] == f"rank {process}"
