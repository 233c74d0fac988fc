"""JAX for real, on CPUs of one to three hosts: how jobs end, and whom the verdict names."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

LATE_S = float(os.environ.get("LATE_S", "0"))
pytestmark = pytest.mark.launchers


def started(hosts: Hosts, folder: Path, orders: Mapping[int, str] | None = None, **env: object) -> LauncherJob:
    job = LauncherJob(hosts, folder, "jax", 2)
    env = {"AT_FILE": folder / "at", **env}
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


# Word of jax_sums.py: exit code.
CODES = {"raise": 1, "exit": 42, "kill": 137}
IN_CI = {("raise", 1, 2), ("exit", 1, 2), ("kill", 1, 2), ("kill", 0, 3)}
RESTART_IN_CI = {("raise", 1, 2), ("kill", 0, 2)}
PLACES = [(process, nodes) for nodes in (1, 2, 3) for process in sorted({0, nodes - 1})]


def cases(in_ci: set[tuple[str, int, int]]) -> list[Any]:
    """A process of each number of nodes does each word. Process 0 has the coordinator."""
    of_words = [(word, process, nodes) for word in CODES for process, nodes in PLACES]
    return [
        pytest.param(*case, marks=() if case in in_ci else pytest.mark.table, id=f"{case[0]}-{case[1]}-of-{case[2]}") for case in of_words
    ]


def ended(job: LauncherJob, code: int, began: float | None = None) -> dict[str, Any]:
    """Return the verdict of a job that has left nothing behind. Print the seconds from the failure to the end of the last supervisor."""
    verdict = job.end(code)
    at = job.folder / "at"
    began = float(at.read_text()) if began is None and at.exists() else began
    print(f"seconds {time.time() - began:.1f}" if began else "no failure")
    assert all(not node.host.bound_ports() for node in job.nodes)
    return verdict


@pytest.mark.parametrize(("word", "process", "nodes"), cases(IN_CI))
def test_a_failure(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, process: int, nodes: int) -> None:
    culprit = ended(started(hosts(nodes), tmp_path, {process: word}), CODES[word])["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (process, process, CODES[word])


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        pytest.param(asked, nodes, marks=() if nodes == 2 else pytest.mark.table, id=f"{asked}-{nodes}")
        for asked, nodes in [("all", 1), ("all", 2), ("last", 2), ("all", 3), ("last", 3)]
    ],
)
def test_a_stop_request_to_all_or_to_one(hosts: Callable[[int], Hosts], tmp_path: Path, asked: str, nodes: int) -> None:
    job = started(hosts(nodes), tmp_path)
    ready(job)
    began = time.time()
    for node in job.nodes if asked == "all" else job.nodes[-1:]:
        node.popen.send_signal(signal.SIGTERM)
    verdict = ended(job, 143, began)
    assert (verdict["outcome"], verdict["culprit"]) == ("stopped", None)


@pytest.mark.parametrize(
    ("index", "nodes"),
    [
        pytest.param(index, nodes, marks=() if (index, nodes) == (1, 2) else pytest.mark.table, id=f"{index}-of-{nodes}")
        for index, nodes in [(1, 2), (0, 2), (2, 3), (0, 3)]
    ],
)
def test_a_host_that_is_cut_off(hosts: Callable[[int], Hosts], tmp_path: Path, index: int, nodes: int) -> None:
    cluster = hosts(nodes)
    job = started(cluster, tmp_path, RANKLAUNCH_LOST_AFTER_S=5)
    ready(job)
    cluster[index].cut()
    began = time.time()
    assert [node.popen.wait(LONG_S) for node in job.nodes] == [75] * nodes, job.words()
    print(f"seconds {time.time() - began:.1f}")
    away = f"node {index} (h{index}) does not answer"
    assert all(away in node.verdict["reason"] for i, node in enumerate(job.nodes) if i != index), job.words()
    assert all(not node.host.pids() for node in job.nodes)
    assert all(not node.host.bound_ports() for node in job.nodes)


def test_a_node_that_comes_late(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    cluster = hosts(2)
    first, second = (LauncherJob(part, tmp_path, "jax", 2) for part in (cluster, cluster))
    first.start(child("jax_sums.py"), options=("--accelerator", "cpu"), env={"STEPS": "3"}, only=[0])
    sleep_until(lambda: "waiting for" in first.nodes[0].err, first.words, LONG_S)
    time.sleep(LATE_S)
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


@pytest.mark.parametrize(("word", "process", "nodes"), cases(RESTART_IN_CI))
def test_a_restart_in_place(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, process: int, nodes: int) -> None:
    """The second round meets anew at the same port, and goes on behind the checkpoint."""
    env = {"STEPS": 6, "CHECKPOINT": tmp_path / "checkpoint", "RANKLAUNCH_MAX_RESTARTS": 1}
    verdict = ended(started(hosts(nodes), tmp_path, {process: word}, **env), 0)
    assert [(each["round"], each["culprit"]) for each in verdict["restarts"]] == [(0, f"rank {process}")]
