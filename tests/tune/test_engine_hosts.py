"""A search over the nodes of a job: node 0 decides, the others follow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tune_jobs import BEST, FEW

from testbench.fixtures import hosts
from testbench.hosts import Entered, Hosts
from testbench.jobs.job import RANKLAUNCH
from testbench.places import child
from testbench.waiting import sleep_until

__all__ = ["hosts"]
pytestmark = [pytest.mark.processes, pytest.mark.chaos]
LONG_S = 240.0


class Job:
    """Each host has a disk of its own, as far as its experiments go."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self.nodes: list[Entered] = []

    def start(self, *options: object, **env: str) -> None:
        (self.folder / "ds.json").write_text(json.dumps(FEW))
        where = {"RANKLAUNCH_HOSTS": ",".join(host.name for host in self.hosts)}
        where = where if "--master-addr" not in options else {"RANKLAUNCH_NODES": str(len(self.hosts))}
        for host in self.hosts:
            kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
            told = {**kept, "LANG": "C", **where, "RANKLAUNCH_NODE": str(host.index), **env}
            words = ("--method", "spawn", "--slots", 2, "--python", sys.executable, "--grace-s", 5, "--memory", "40g")
            program = (child("tuned.py"), "--deepspeed_config", self.folder / "ds.json")
            with open(self.folder / f"{host.name}.out", "ab") as out:
                argv = [*RANKLAUNCH, "tune", *words, "--log-dir", self.folder / host.name, *options, "--", *program]
                self.nodes.append(host.popen(argv, env=told, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def end(self) -> list[int]:
        sleep_until(lambda: all([node.poll() is not None for node in self.nodes]), self.words, LONG_S)  # noqa: C419 - each looks
        codes = [code if code >= 0 else 128 - code for code in [node.returncode for node in self.nodes]]
        for host, code in zip(self.hosts, codes):
            if code == 128 + signal.SIGKILL:  # what it was killed with has its moment to end all below it
                sleep_until(lambda host=host: not host.pids(), self.words, LONG_S)  # type: ignore[misc]
            assert not host.pids(), f"left on {host.name}; {self.words()}"
        self.nodes.clear()
        return codes

    def words(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')}" for path in sorted(self.folder.glob("*.out")))

    def wait_for(self, text: str, times: int = 1) -> None:
        sleep_until(lambda: self.words().count(text) >= times, self.words, LONG_S)

    @property
    def found(self) -> dict[str, Any]:
        path = self.folder / self.hosts[0].name / "node_0" / "tune" / "results.json"
        path = path if path.exists() else self.folder / self.hosts[0].name / "tune" / "results.json"
        values: dict[str, Any] = json.loads(path.read_text())
        return values

    def times(self) -> dict[str, tuple[int, float, float]]:
        """Of each experiment: the host on which it ran, when its first rank was started, and its end."""
        found = {}
        for host in self.hosts:
            for path in (self.folder / host.name).glob("**/exps/*/logs/attempt_*/events.jsonl"):
                events = [json.loads(line) for line in path.read_text().splitlines()]
                at = [event["monotonic"] for event in events if event["event"] in ("spawn", "end")]
                found[path.parts[-4]] = (host.index, min(at), max(at))
        return found


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Job]:
    made = Job(hosts(2), tmp_path)
    yield made
    for node in made.nodes:  # of a test that failed
        node.kill()
        node.wait(LONG_S)


def test_where_only_node_0_is_known_experiments_meet_there_too(job: Job) -> None:
    job.start("--master-addr", job.hosts[0].name, "--max-trials", 2)
    assert job.end() == [0, 0], job.words()
    assert [each["status"] for each in job.found["experiments"]].count("ok") >= 2, job.words()


def test_experiments_of_one_node_run_side_by_side(job: Job) -> None:
    job.start("--exp-nodes", 1, TUNED_S="0.5")
    assert job.end() == [0, 0], job.words()
    assert job.found["best"]["name"] == BEST
    times = job.times()
    assert {host for host, _, _ in times.values()} == {0, 1}
    both = [
        (one, other)
        for one, (host, began, ended) in times.items()
        for other, (its_host, its_began, its_end) in times.items()
        if host < its_host and began < its_end and its_began < ended
    ]
    assert both, times
    assert {each["name"] for each in job.found["experiments"]} == set(times)


@pytest.mark.parametrize(
    ("node", "number"),
    [
        (1, signal.SIGKILL),
        pytest.param(0, signal.SIGTERM, marks=pytest.mark.table),
        pytest.param(1, signal.SIGTERM, marks=pytest.mark.table),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.table),
    ],
)
def test_the_end_of_one_node_is_that_of_all_and_results_stay(number: signal.Signals, node: int, job: Job) -> None:
    """Of experiments that all nodes make together, as they do where nothing is said."""
    job.start(TUNED_S="0.3")
    job.wait_for("experiment 2 of")
    job.nodes[node].send_signal(number)
    assert job.end() == [128 + number] * 2, job.words()
    before = {each["name"] for each in job.found["experiments"]}
    assert len(before) >= 2
    starts = job.words().count("parameters, ")
    job.start()
    assert job.end() == [0, 0], job.words()
    assert (job.found["best"]["name"], job.found["nodes"]) == (BEST, 2)
    optimal = json.loads(next(job.folder.glob("**/ds_config_optimal.json")).read_text())
    assert optimal["train_batch_size"] == 6 * 4
    assert job.words().count("parameters, ") == starts  # the profile run was made once
