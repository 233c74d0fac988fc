"""Real TensorFlow on several hosts: two workers and two ps train; how a job ends, whoever fails, and whoever waits for ever."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Entered, Host, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import EXAMPLES, child
from testbench.waiting import sleep_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="TensorFlow is not installed"),
]

LONG_S = 240  # four imports of TensorFlow on two busy cores
WORKERS = 2
COMMON = ("outcome", "exit_code", "reason", "culprit")
# The example, but for one container that ends with $CODE when the file `go` is there.
EXITS = """
import os, runpy, sys, threading, time
def leave():
    while not os.path.exists("go"):
        time.sleep(0.05)
    print("told to leave", flush=True)
    os._exit(int(os.environ["CODE"]))
if os.environ["LEAVES"] == sys.argv[-1].partition("=")[2] + os.environ["INDEX"]:
    threading.Thread(target=leave, daemon=True).start()
sys.argv[0] = os.environ["EXAMPLE"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Container:
    def __init__(self, popen: Entered, host: Host, attempt: Path, out: Path) -> None:
        self.popen, self.host, self._attempt, self._out = popen, host, attempt, out

    @property
    def text(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self._attempt / "verdict.json")


class Job:
    """As ModelArts would start it: a container for each worker, and one for each ps."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.containers: dict[str, Container] = {}
        self._hosts, self._folder = hosts, folder

    def start(self, program: object, *args: object, attempt: int = 1, env: Mapping[str, str] | None = None) -> None:
        for host in self._hosts:
            task, index = ("worker", host.index) if host.index < WORKERS else ("ps", host.index - WORKERS)
            name = f"{task}{index}"
            log_dir, out = self._folder / f"logs-{name}", self._folder / f"{name}.out"
            words = ("run", "--python", sys.executable, "--grace-s", 5, "--", program, *args)
            given = {**self._environment(task, index, attempt, env or {}), "MA_LOG_DIR": str(log_dir)}
            with open(out, "wb") as written:
                popen = host.popen(
                    [*RANKLAUNCH, *words], env=given, cwd=self._folder,
                    stdin=subprocess.DEVNULL, stdout=written, stderr=written,
                )  # fmt: skip
            self.containers[name] = Container(popen, host, log_dir / f"attempt_{attempt}", out)

    def _environment(self, task: str, index: int, attempt: int, more: Mapping[str, str]) -> dict[str, str]:
        kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        names = [host.name for host in self._hosts]
        lists = {"TF_WORKER_HOSTS": names[:WORKERS], "TF_PS_HOSTS": names[WORKERS:]}
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "LANG": "C",
            "MA_NUM_HOSTS": str(WORKERS),
            "MA_NUM_GPUS": "0",
            "MA_VJ_NAME": "tf",
            "MA_TASK_NAME": task,
            "VC_TASK_INDEX": str(index),
            "VC_PS_NUM": str(len(names) - WORKERS),
            **{name: f"[{','.join(f'{host}:6234' for host in found)}]" for name, found in lists.items()},
            "MA_PROC_START_CNT": str(attempt),
            "INDEX": str(index),
            **more,
        }

    def said(self, name: str, text: str) -> None:
        sleep_until(lambda: text in self.containers[name].text, lambda: f"{text!r} of {name}; {self.words()}", LONG_S)

    def end(self, code: int) -> None:
        """All end with one code and one verdict, and nothing is left on any host."""
        deadline = time.monotonic() + LONG_S
        codes = {name: container.popen.wait(max(0.1, deadline - time.monotonic())) for name, container in self.containers.items()}
        assert codes == dict.fromkeys(codes, code), self.words()
        verdicts = [{name: container.verdict[name] for name in COMMON} for container in self.containers.values()]
        assert all(verdict == verdicts[0] for verdict in verdicts), verdicts
        for container in self.containers.values():
            assert not container.host.pids(), f"left on {container.host}: {self.words()}"

    @property
    def verdict(self) -> dict[str, Any]:
        return self.containers["ps0"].verdict

    def words(self) -> str:
        return "\n".join(f"{name} ({container.popen.poll()}):\n{container.text}" for name, container in self.containers.items())


MakeJob = Callable[..., Job]


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeJob:
    return lambda ps: Job(hosts(WORKERS + ps), tmp_path)


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"epoch \d+/\d+  loss ([0-9.]+)", text)]


def test_digits_are_learned(job: MakeJob) -> None:
    """The variables are on both ps, both workers learn, and every container ends with 0."""
    trained(job(2))


@pytest.mark.table
def test_a_second_start_goes_on_where_the_first_one_ended(job: MakeJob) -> None:
    found = job(2)
    trained(found)
    chief = found.containers["worker0"].text
    found.start(EXAMPLES / "tf_ps_digits.py", "--epochs", 1, "--checkpoint", "model", attempt=2)
    found.end(0)
    again = found.containers["worker0"].text
    assert "resumed from model at epoch 3" in again
    assert "epoch 4/4" in again
    assert losses(again)[0] < losses(chief)[0]


def trained(found: Job) -> None:
    found.start(EXAMPLES / "tf_ps_digits.py", "--epochs", 3, "--checkpoint", "model")
    found.end(0)
    chief, other = found.containers["worker0"].text, found.containers["worker1"].text
    for index in range(2):
        assert f"[rank 0] hidden_{('weights', 'bias')[index]} is on /job:ps/task:{index}" in chief
        assert f"[ps {index}] ps {index} serves" in found.containers[f"ps{index}"].text
    for text in (chief, other):
        assert len(losses(text)) == 3
        assert losses(text)[-1] < losses(text)[0]
    assert "[rank 1] epoch 3/3" in other
    assert found.verdict["reason"] == "all 2 ranks on 4 nodes succeeded"


def leaves(job: MakeJob, folder: Path, who: str, code: int) -> Job:
    script = folder / "leaves.py"
    script.write_text(EXITS, encoding="utf-8")
    found = job(1)
    env = {
        "LEAVES": who,
        "CODE": str(code),
        "EXAMPLE": str(EXAMPLES / "tf_ps_digits.py"),
        "PYTHONPATH": f"{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}",
    }
    found.start(script, "--epochs", 100_000, "--checkpoint", "model", env=env)
    found.said("worker1", "epoch 2/")
    (folder / "go").touch()
    return found


@pytest.mark.table
def test_a_worker_that_fails_decides_for_all(job: MakeJob, tmp_path: Path) -> None:
    found = leaves(job, tmp_path, "worker1", 42)
    found.end(42)
    culprit = found.verdict["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (1, 1, 42)
    assert culprit["last_lines"][-1] == "told to leave"


@pytest.mark.table  # that any task does is seen in test_tasks.py
def test_a_ps_that_fails_decides_for_all(job: MakeJob, tmp_path: Path) -> None:
    found = leaves(job, tmp_path, "ps0", 43)
    found.end(43)
    culprit = found.verdict["culprit"]
    assert (culprit["node"], culprit["rank"], culprit["name"]) == (2, None, "ps 0")


def test_a_worker_that_waits_for_a_chief_that_has_left_is_ended(job: MakeJob, tmp_path: Path) -> None:
    """TensorFlow itself would wait for ever, without a word."""
    found = job(1)
    found.start(child("tf_chief_leaves.py"), env={"GONE": str(tmp_path / "gone"), "RANKLAUNCH_END_TIMEOUT_S": "5"})
    found.said("worker0", "the program succeeded; waiting for the other nodes")
    (tmp_path / "gone").touch()
    found.end(75)
    for text in ("node 1 (h1)", "still ran 5 s later", "RANKLAUNCH_END_TIMEOUT_S"):
        assert text in found.verdict["reason"]
