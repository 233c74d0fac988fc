"""msrun itself, on two hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import helpers
import pytest

from testbench.hosts import Entered, Host, Hosts
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import RANKLAUNCH
from testbench.places import EXAMPLES, child
from testbench.waiting import sleep_until

END_S = 240.0  # MindSpore needs about half a minute to begin where there is much else to do
GRACE_S = 10

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(not shutil.which("msrun", path=os.path.dirname(sys.executable)), reason="MindSpore is not installed here"),
]


class Node:
    """ranklaunch on one host of a job that msrun starts."""

    def __init__(self, popen: Entered, folder: Path, attempt: int) -> None:
        self.popen = popen
        self.folder = folder
        self.attempt = folder / "logs" / f"attempt_{attempt}"

    @property
    def printed(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    @property
    def said(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    @property
    def verdict(self) -> dict[str, Any]:
        return checked_verdict(self.attempt / "verdict.json")

    def wait_for(self, text: str) -> None:
        def look() -> bool:
            ended = self.popen.poll() is not None  # before the look at what it has written
            assert text in self.printed or not ended, f"ended: {self.words()}"
            return text in self.printed

        sleep_until(look, lambda: f"{text!r} in {self.words()}", END_S)  # type: ignore[arg-type]

    def end(self) -> int:
        try:
            return self.popen.wait(END_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs: {self.words()}")

    def words(self) -> str:
        return f"{self.printed[-4000:]}\n{self.said}"


Start = Callable[..., list[Node]]


@pytest.fixture
def start(hosts: Callable[..., Hosts], tmp_path: Path) -> Start:
    """A job of one node on each host: words are program and arguments."""
    made: list[Hosts] = []

    def run(*words: object, nodes: int = 2, slots: int = 1, attempt: int = 1, **env: str) -> list[Node]:
        if not made:
            made.append(hosts(nodes))
        return [one(host, words, slots, attempt, [h.name for h in made[0]], env) for host in made[0]]

    def one(host: Host, words: Sequence[object], slots: int, attempt: int, names: list[str], env: dict[str, str]) -> Node:
        folder = tmp_path / f"node{host.index}"
        folder.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        of_platform = helpers.modelarts(len(names), slots, host.index, VC_WORKER_HOSTS=",".join(names), MA_PROC_START_CNT=str(attempt))
        given = {**of_platform, **kept, "LANG": "C.UTF-8", "MA_RUN_METHOD": "msrun", "RANKLAUNCH_ACCELERATOR": "cpu"}
        given.update({"RANKLAUNCH_GRACE_S": str(GRACE_S), "MA_LOG_DIR": str(folder / "logs"), **env})
        options = ("--python", Path(sys.executable).with_name("python"))
        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            command = [*RANKLAUNCH, "run", *options, "--", *words]
            popen = host.popen(command, env=given, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return Node(popen, folder, attempt)

    return run


def trained(start: Start, folder: Path, said: str = "", attempt: int = 1) -> tuple[list[Node], list[float]]:
    nodes = start(EXAMPLES / "msrun_digits.py", "--epochs", "2", "--checkpoint", folder / "digits.ckpt", attempt=attempt)
    assert [node.end() for node in nodes] == [0, 0], nodes[0].words()
    return nodes, check_training(nodes, said)


def test_training_whose_logs_a_second_attempt_leaves_alone(start: Start, tmp_path: Path) -> None:
    first, _ = trained(start, tmp_path)
    log = (first[0].attempt / "rank_0.log").read_bytes()
    assert b"epoch 2/2" in log
    second = start(child("arguments.py"), attempt=2)
    assert [node.end() for node in second] == [0, 0], second[0].words()
    assert (first[0].attempt / "rank_0.log").read_bytes() == log
    assert (first[0].attempt / "msrun" / "worker_0.log").read_bytes() == log
    assert json.loads((second[1].attempt / "rank_1.log").read_text())["rank"] == "1"


@pytest.mark.table
def test_a_second_start_goes_on_where_the_first_one_ended(start: Start, tmp_path: Path) -> None:
    _, losses = trained(start, tmp_path)
    second, more = trained(start, tmp_path, "resumed from", attempt=2)
    assert more[-1] < losses[0]
    assert "epoch 4/4" in (second[1].attempt / "rank_1.log").read_text()


def check_training(nodes: list[Node], said: str) -> list[float]:
    """The losses of rank 0, of which the last is the smallest; each line is on the console once, with the tag of its rank."""
    assert "[rank 0] 2 ranks; ignored arguments: []" in nodes[0].printed
    assert said in nodes[0].printed
    for rank, node in enumerate(nodes):
        lines = re.findall(r"^(.*)(epoch \d/\d  loss .*)$", node.printed, re.MULTILINE)
        assert [tag for tag, _ in lines] == [f"[rank {rank}] "] * 2, node.printed
        assert node.verdict["outcome"] == "succeeded"
    losses = [float(loss) for loss in re.findall(r"^\[rank 0\] epoch \d/\d  loss ([0-9.]+)", nodes[0].printed, re.MULTILINE)]
    assert losses[-1] < losses[0] < 2.31
    return losses


def test_a_rank_that_fails_decides_at_once(start: Start) -> None:
    """MindSpore's scheduler would end by itself half a minute later, which its log would tell."""
    nodes = start(child("mindspore_ends.py"), CODES="0,42")
    assert [node.end() for node in nodes] == [42, 42], nodes[0].words()
    for node in nodes:
        culprit = node.verdict["culprit"]
        assert (culprit["node"], culprit["rank"], culprit["exit_code"]) == (1, 1, 42)
        assert "rank 1 on node 1 (h1) exited with code 42" in node.verdict["reason"]
        assert "ready, 2 ranks" in culprit["last_lines"]
    scheduler = (nodes[0].attempt / "scheduler.log").read_text()
    assert "MetaServerNode" in scheduler
    assert "is timed out" not in scheduler


def test_a_rank_of_the_schedulers_node_that_fails(start: Start) -> None:
    nodes = start(child("mindspore_ends.py"), CODES="42,0")
    assert [node.end() for node in nodes] == [42, 42], nodes[0].words()
    assert "rank 0 on node 0 (h0) exited with code 42" in nodes[1].verdict["reason"]
    assert "is timed out" not in (nodes[0].attempt / "scheduler.log").read_text()


def test_a_stop_request_on_one_node_stops_both(start: Start) -> None:
    nodes = start(child("saves_on_term.py"))
    for rank, node in enumerate(nodes):
        node.wait_for(f"[rank {rank}] ready")
    nodes[1].popen.send_signal(signal.SIGTERM)
    assert [node.end() for node in nodes] == [143, 143], nodes[0].words()
    assert [f"[rank {rank}] saved\n" in node.printed for rank, node in enumerate(nodes)] == [True, True], nodes[0].words()


@pytest.mark.table
def test_the_example_saves_on_a_stop_request(start: Start, tmp_path: Path) -> None:
    nodes = start(EXAMPLES / "msrun_digits.py", "--epochs", "1000", "--checkpoint", tmp_path / "digits.ckpt")
    for rank, node in enumerate(nodes):
        node.wait_for(f"[rank {rank}] epoch 1/1000")
    nodes[1].popen.send_signal(signal.SIGTERM)
    assert [node.end() for node in nodes] == [143, 143], nodes[0].words()
    assert re.search(r"^\[rank 0\] stopped in epoch \d+ after image \d+: the next start goes on there$", nodes[0].printed, re.MULTILINE), (
        nodes[0].words()
    )


CATCHES_EARLY = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
import mindspore as ms
from mindspore.communication import init
ms.set_device("CPU")
init("mccl")
print("ready", flush=True)
while not (told or (os.environ.get("FAILS") == os.environ["RANK_ID"] and os.path.exists('go'))):
    time.sleep(0.1)
time.sleep(2)
print(f"saved, told {len(told)} times", flush=True)
sys.stdout.flush()
os._exit(42 if os.environ.get("FAILS") == os.environ["RANK_ID"] else 0)  # so that MindSpore does not tell the scheduler
"""


@pytest.mark.parametrize("why", [pytest.param("stopped", marks=pytest.mark.table), "failed"])
def test_a_scheduler_that_hears_nothing_is_not_waited_for(start: Start, tmp_path: Path, why: str) -> None:
    """It stays in init(), where Python runs no handler, and would end by itself half a minute later, which its log would tell."""
    program = tmp_path / "train.py"
    go = tmp_path / "go"
    program.write_text(CATCHES_EARLY.replace("'go'", repr(str(go))))
    (node,) = start(program, nodes=1, slots=2, RANKLAUNCH_GRACE_S="120", **({"FAILS": "1"} if why == "failed" else {}))
    node.wait_for("[rank 0] ready")
    node.wait_for("[rank 1] ready")
    began = time.monotonic()
    if why == "stopped":
        node.popen.send_signal(signal.SIGTERM)
        assert node.end() == 143
        assert node.printed.count("saved, told 1 times") == 2, node.words()
    else:
        go.touch()
        assert node.end() == 42
    assert "is timed out" not in (node.attempt / "scheduler.log").read_text()
    assert time.monotonic() - began < 60


def test_arguments_arrive_unharmed(start: Start) -> None:
    values = [value for name, value in helpers.HOSTILE.items() if name != "100 kB"]
    (node,) = start(child("arguments.py"), "--log_dir=x", *values, "--worker_num", "9", nodes=1, slots=2)
    assert node.end() == 0, node.words()
    told = [json.loads((node.attempt / f"rank_{rank}.log").read_text()) for rank in range(2)]
    assert told == [{"rank": str(rank), "argv": ["--log_dir=x", *values, "--worker_num", "9"]} for rank in range(2)]


def test_a_module(start: Start) -> None:
    search = f"{os.path.dirname(child('arguments.py'))}:{os.environ.get('PYTHONPATH', '')}"
    (node,) = start("-m", "arguments", "--x", nodes=1, PYTHONPATH=search)
    assert node.end() == 0, node.words()
    assert json.loads((node.attempt / "rank_0.log").read_text()) == {"rank": "0", "argv": ["--x"]}
