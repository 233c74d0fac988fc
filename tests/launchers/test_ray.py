"""Ray for real, on CPUs of one to three hosts: how jobs end, and whom the verdict names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Host, Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

pytestmark = pytest.mark.launchers

LOST_AFTER_S = 5
LATE_S = float(os.environ.get("LATE_S", "0"))
CPU = ("--accelerator", "cpu")
JOINS_S = 6.0  # for a node to join, about
MEMORY = 1536 << 20  # of a host
KILLED = "SIGKILL ended Ray's "
# Word of ray_sums.py: exit code, and "first" or "last" node with the name of the culprit there.
FAILURES: dict[str, tuple[int, str, str]] = {
    "raise": (1, "first", "program"),
    "exit": (42, "first", "program"),
    "worker": (1, "first", "program"),
    "raylet": (137, "last", "ray"),
    "gcs": (137, "first", "ray"),
}
IN_CI = {("exit", 2), ("worker", 2), ("raylet", 2), ("gcs", 2)}
RESTART_IN_CI = {("raylet", 2)}


def run_folder(folder: Path) -> Path:
    """Return a folder with a short path, as the sockets in it need, of the job with this folder."""
    path = Path(tempfile.gettempdir(), f"rt{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}")
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def started(hosts: Hosts, folder: Path, word: str = "", options: tuple[object, ...] = (), **env: object) -> LauncherJob:
    job = LauncherJob(hosts, folder, "ray", 2)
    values = {"WORD": word, "AT_FILE": folder / "at", "RANKLAUNCH_RUN_DIR": run_folder(folder), **env}
    job.start(child("ray_sums.py"), env={name: str(value) for name, value in values.items()}, options=(*CPU, *options))
    return job


def ended(job: LauncherJob, code: int, began: float | None = None) -> dict[str, Any]:
    """Return the verdict of a job that has left nothing behind. Print the seconds from the failure to the end of the last supervisor."""
    verdict = job.end(code)
    last = time.time()
    if began is None and (job.folder / "at").exists():
        began = float((job.folder / "at").read_text())
    print(f"seconds {last - began:.1f}" if began else "no failure")
    nothing_is_left(job)
    return verdict


def processes_of(host: Host, name: str) -> list[int]:
    """Return the pids, as this machine numbers them, of a host's processes with this program name."""
    named = []
    for pid in host.pids():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(f"/{name}".encode()):
                named.append(pid)
    return named


def nothing_is_left(job: LauncherJob) -> None:
    for node in job.nodes:
        assert not node.host.pids(), f"left on {node.host.name}; {job.words()}"
        assert not node.host.bound_ports()
    run_folder(job.folder).rmdir()


def cases(in_ci: set[tuple[str, int]], words: tuple[str, ...]) -> Iterator[Any]:
    for word in words:
        for nodes in (1, 2, 3):
            yield pytest.param(word, nodes, marks=() if (word, nodes) in in_ci else pytest.mark.table, id=f"{word}-{nodes}")


@pytest.mark.parametrize("nodes", [1, 3])
def test_success(hosts: Callable[[int], Hosts], tmp_path: Path, nodes: int) -> None:
    job = started(hosts(nodes), tmp_path, STEPS=3)
    ended(job, 0)
    assert f"ready {nodes} nodes, {2 * nodes} CPUs\n" in job.nodes[0].log("rank_0.log")
    for i, node in enumerate(job.nodes):
        assert node.log(f"ray/node_{i}/raylet.out")


@pytest.mark.parametrize(("word", "nodes"), [*cases(IN_CI, tuple(FAILURES))])
def test_a_failure(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, nodes: int) -> None:
    code, where, name = FAILURES[word]
    job = started(hosts(nodes), tmp_path, word)
    verdict = ended(job, code)
    culprit = verdict["culprit"]
    assert (culprit["node"], culprit["exit_code"]) == (nodes - 1 if where == "last" else 0, code)
    if name == "program":
        assert culprit["rank"] == 0
    else:
        assert culprit["name"] == name
        assert KILLED in verdict["reason"]
        assert not any(node.verdict.get("evidence") for node in job.nodes)  # Ray is to blame, no other rank


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        pytest.param(asked, nodes, marks=() if nodes == 2 else pytest.mark.table, id=f"{asked}-{nodes}")
        for asked, nodes in [("all", 1), ("all", 2), ("last", 2), ("all", 3), ("last", 3)]
    ],
)
def test_a_stop_request_to_all_or_to_one(hosts: Callable[[int], Hosts], tmp_path: Path, asked: str, nodes: int) -> None:
    job = started(hosts(nodes), tmp_path)
    job.said(0, "step 1/")
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
    job = started(cluster, tmp_path, RANKLAUNCH_LOST_AFTER_S=LOST_AFTER_S)
    job.said(0, "step 1/")
    cluster[index].cut()
    began = time.time()
    codes = [node.popen.wait(LONG_S) for node in job.nodes]
    print(f"seconds {time.time() - began:.1f}")
    assert codes == [75] * nodes, job.words()
    reasons = [node.verdict["reason"] for node in job.nodes]
    if index:
        assert all(f"node {index} (h{index}) does not answer" in reason for i, reason in enumerate(reasons) if i != index), reasons
    else:
        assert all("node 0 (h0) does not answer" in reason for reason in reasons[1:]), reasons
    nothing_is_left(job)


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.table), 2, pytest.param(3, marks=pytest.mark.table)])
def test_a_worker_is_killed_for_memory(hosts: Callable[[int], Hosts], tmp_path: Path, nodes: int) -> None:
    """Ray's memory monitor ends the actor; the verdict has Ray's own words."""
    cluster = hosts(nodes)
    for host in cluster:
        host.limit_memory(MEMORY)
    job = started(cluster, tmp_path, "memory", RAY_memory_usage_threshold=0.8, RAY_memory_monitor_refresh_ms=100)
    verdict = ended(job, 1)
    culprit = verdict["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["error"]["name"]) == (0, 0, "ray-out-of-memory"), job.words()
    assert "OutOfMemoryError" in verdict["reason"]


def test_a_node_that_comes_late(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    cluster = hosts(2)
    env = {"STEPS": "3", "RANKLAUNCH_RUN_DIR": str(run_folder(tmp_path))}
    first, second = (LauncherJob(cluster, tmp_path, "ray", 2) for _ in range(2))
    first.start(child("ray_sums.py"), options=CPU, env=env, only=[0])
    sleep_until(lambda: "waiting for" in first.nodes[0].err, first.words, LONG_S)
    time.sleep(LATE_S)
    second.start(child("ray_sums.py"), options=CPU, env=env, only=[1])
    first.nodes += second.nodes
    ended(first, 0)


@pytest.mark.parametrize("word", [pytest.param("gcs"), pytest.param("", marks=pytest.mark.table)])
def test_two_jobs_side_by_side(hosts: Callable[[int], Hosts], tmp_path: Path, word: str) -> None:
    """One of them fails, or none; the other is not disturbed."""
    cluster, jobs = hosts(2), []
    for number, own_word in enumerate((word, "")):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = ("--muster-port", 7100 + number, "--job-name", f"job{number}")
        jobs.append(started(cluster, folder, own_word, options, STEPS=40))
    first, second = jobs
    for job, code in ((first, 137 if word else 0), (second, 0)):
        assert [node.popen.wait(LONG_S) for node in job.nodes] == [code, code], job.words()
    for job in jobs:
        nothing_is_left(job)
    if word:
        assert (first.nodes[1].verdict["culprit"]["node"], first.nodes[1].verdict["culprit"]["name"]) == (0, "ray")


@pytest.mark.parametrize(("word", "nodes"), [*cases(RESTART_IN_CI, ("raise", "worker", "raylet", "gcs"))])
def test_a_restart_in_place(hosts: Callable[[int], Hosts], tmp_path: Path, word: str, nodes: int) -> None:
    """The second round is a cluster of its own, and goes on behind the checkpoint."""
    _, where, name = FAILURES[word]
    env = {"STEPS": 5, "CHECKPOINT": tmp_path / "checkpoint", "RANKLAUNCH_MAX_RESTARTS": 1}
    verdict = ended(started(hosts(nodes), tmp_path, word, **env), 0)
    culprit = "rank 0" if name == "program" else name
    node = nodes - 1 if where == "last" else 0
    assert [(each["round"], each["culprit"], each["node"]) for each in verdict["restarts"]] == [(0, culprit, node)]
    if name == "ray":
        assert KILLED in verdict["restarts"][0]["reason"]


@pytest.mark.table
def test_the_driver_and_a_raylet_fail_at_once(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Each of the two may be the culprit, on all nodes the same."""
    job = started(hosts(2), tmp_path, "both")
    job.nodes[0].popen.wait(LONG_S)
    code = job.nodes[0].popen.returncode
    culprit = ended(job, code)["culprit"]
    assert (code, culprit["node"], culprit["name"]) in ((1, 0, "program"), (137, 1, "ray"))


@pytest.mark.table
def test_a_stop_request_while_a_node_joins(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = started(hosts(2), tmp_path)
    sleep_until(lambda: processes_of(job.nodes[0].host, "gcs_server"), job.words, LONG_S)
    time.sleep(JOINS_S * random.random())
    began = time.time()
    for node in job.nodes:
        node.popen.send_signal(signal.SIGTERM)
    verdict = ended(job, 143, began)
    assert (verdict["outcome"], verdict["culprit"]) == ("stopped", None)


@pytest.mark.table
def test_the_head_is_killed_while_a_node_joins(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = started(hosts(2), tmp_path)
    (pid,) = sleep_until(lambda: processes_of(job.nodes[0].host, "gcs_server"), job.words, LONG_S)
    time.sleep(JOINS_S * random.random())
    began = time.time()
    os.kill(pid, signal.SIGKILL)
    culprit = ended(job, job.nodes[0].popen.wait(LONG_S), began)["culprit"]
    assert (culprit["node"], culprit["name"]) == (0, "ray")


@pytest.mark.table
def test_a_restart_in_place_while_a_raylet_does_not_end(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    env = {"STEPS": 5, "CHECKPOINT": tmp_path / "checkpoint", "RANKLAUNCH_MAX_RESTARTS": 1}
    verdict = ended(started(hosts(2), tmp_path, "frozen", **env), 0)
    assert [(each["round"], each["culprit"], each["node"]) for each in verdict["restarts"]] == [(0, "rank 0", 0)]
