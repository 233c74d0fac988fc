"""Each failure with each launcher on three hosts: all ranks start again in place, and end as if nothing had happened. Of spawn and torchrun
all are run with the other tests, of each other launcher one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from training_jobs import Training

from testbench.hosts import Hosts
from testbench.waiting import sleep_until

pytestmark = [pytest.mark.launchers, pytest.mark.processes]

NEEDED = {"mpirun": "mpirun", "accelerate": "accelerate", "deepspeed": "deepspeed", "msrun": "msrun"}
OF_TORCH = ("torchrun", "accelerate", "deepspeed", "megatron")
SLOTS = {
    "spawn": 2, "torchrun": 2, "ranktable": 2, "pytorch": 1, "accelerate": 2, "deepspeed": 2, "megatron": 2, "msrun": 2, "mpirun": 2,
    "tensorflow": 1,
}  # fmt: skip
MEMORY = 1536 << 20  # of a host; launchers import PyTorch or MindSpore
HANG = {"RANKLAUNCH_HANG": "restart", "RANKLAUNCH_HANG_S": "5"}
WITHOUT_STEPS = {"RANKLAUNCH_FIRST_STEP_S": "5"}  # of methods whose programs' steps nobody reads, since they may be several ranks
# As trains.py takes them, with (node, rank there) in place of ranks; where a node has one rank, it is that.
FAILURES = {
    "a rank exits": ["0:(1,1):4:exit"],
    "a rank is killed": ["0:(2,1):4:kill"],
    "a rank runs out of memory": ["0:(1,0):4:oom"],
    "a rank hangs": ["0:(2,0):4:hang"],
    "two on two nodes at once": ["0:(1,0):4:exit", "0:(2,1):4:kill"],
    "while others stop": ["0:(1,1):4:exit", "0:(0,0):2:spoil", "0:(2,1):2:ignore"],
    "at the gate": ["0:(1,1):1:kill", "1:(1,1):1:exit"],
    "while starting": ["0:(2,0):1:exit"],
}
OF_ALL = ("spawn",)
OF_SOME = {"torchrun": ("a rank hangs", "at the gate")}
OF_ONE = {
    "ranktable": "a rank is killed", "pytorch": "a rank is killed", "accelerate": "a rank exits", "deepspeed": "a rank is killed",
    "megatron": "a rank is killed", "msrun": "two on two nodes at once", "mpirun": "a rank exits", "tensorflow": "while starting",
}  # fmt: skip


def cases() -> Iterator[Any]:
    for method in SLOTS:
        for what in FAILURES:
            is_run = method in OF_ALL or what in OF_SOME.get(method, (OF_ONE.get(method),))
            yield pytest.param(method, what, id=f"{method}-{what}", marks=() if is_run else pytest.mark.table)


@pytest.mark.parametrize(("method", "what"), [*cases()])
def test_after_each_failure_all_ranks_start_again(hosts: Callable[..., Hosts], tmp_path: Path, method: str, what: str) -> None:
    skip_without(method)
    slots = SLOTS[method]
    numbers = {f"({node},{local})": str(node * slots + min(local, slots - 1)) for node in range(3) for local in range(2)}
    fails = [":".join(numbers.get(part, part) for part in fail.split(":")) for fail in FAILURES[what]]
    cluster = hosts(3)
    for host in cluster if what == "a rank runs out of memory" else ():
        host.limit_memory(MEMORY)
    (tmp_path / "run").mkdir()
    env = {
        "RANKLAUNCH_RUN_DIR": str(tmp_path / "run"),
        "RANKLAUNCH_ACCELERATOR": "cpu",
        **(asked(method) if what == "a rank hangs" else {}),
    }
    training = Training(cluster, tmp_path, method, *fails, slots=slots, env=env)
    if what == "at the gate":
        is_lost_at_the_gate(training)
    else:
        (restart,) = training.check(1)
        if what != "a rank hangs":  # which has no culprit: whoever waits was asked to go
            named = {f"rank {fail.split(':')[1]}" for fail in fails}
            assert restart["culprit"] in ({"pytorch"} if method == "pytorch" else named)  # whose program may be several ranks
        assert what != "a rank runs out of memory" or restart["reason"].count("memory") > restart["reason"].count("killed nothing here")


def asked(method: str) -> dict[str, str]:
    return {**HANG, **(WITHOUT_STEPS if method in ("pytorch", "tensorflow") else {})}


def is_lost_at_the_gate(training: Training) -> None:
    """A node, in the pause after the second failure without progress: the others end, and start nothing."""
    nodes = training.job.nodes
    sleep_until(lambda: "starting all ranks again in 10 s" in nodes[2].err, training.job.words, 240)
    nodes[2].popen.send_signal(signal.SIGKILL)
    for node in nodes[:2]:
        node.popen.wait(120)
        assert node.popen.returncode == 137
        assert "not started again: node 2" in "\n".join(node.verdict["notes"])
        node.host.wait_until_empty()
    assert not (training.folder / "sum_2_1_0").exists()
    assert not (training.folder / "twice").exists()


def skip_without(method: str) -> None:
    search = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""), "/usr/sbin"))
    if method in NEEDED and not shutil.which(NEEDED[method], path=search):
        pytest.skip(f"{NEEDED[method]} is not installed here")
    if method in OF_TORCH and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed here")
