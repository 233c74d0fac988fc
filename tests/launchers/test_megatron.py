"""Tensor and data parallelism on two hosts: what is learned does not depend on the layout, and a job ends as its ranks do."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import EXAMPLES, child

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed"),
]

MakeJob = Callable[..., LauncherJob]
PROGRAM = EXAMPLES / "megatron_digits.py"
COMPARE = """
import sys, torch
one, other = (torch.load(path)["model"] for path in sys.argv[1:])
assert one.keys() == other.keys()
print(max((one[name] - other[name]).abs().max().item() for name in one))
"""


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path) -> MakeJob:
    return lambda nodes=2: LauncherJob(hosts(nodes), tmp_path, "megatron")


def difference(one: Path, other: Path) -> float:
    done = subprocess.run([sys.executable, "-c", COMPARE, one, other], capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize(
    ("nodes", "options", "args", "sizes"),
    [
        pytest.param(1, ("--tp", 2), (), (2, 1), id="one-node"),
        pytest.param(2, ("--tp", 2), (), (2, 2), id="tp-2", marks=pytest.mark.table),
        pytest.param(2, (), ("--tensor-model-parallel-size", "4"), (4, 1), id="tp-4", marks=pytest.mark.table),
    ],
)
def test_what_is_learned_does_not_depend_on_the_layout(
    job: MakeJob, tmp_path: Path, nodes: int, options: tuple[object, ...], args: tuple[str, ...], sizes: tuple[int, int]
) -> None:
    alone = [sys.executable, PROGRAM, "--epochs", "2", "--checkpoint", tmp_path / "alone.pt"]
    subprocess.run(alone, check=True, capture_output=True, timeout=LONG_S)
    trained = job(nodes=nodes)
    trained.start(PROGRAM, "--epochs", 2, "--checkpoint", tmp_path / "digits.pt", *args, options=options)
    assert trained.end(0)["outcome"] == "succeeded"
    assert f"[rank 0] tensor parallel {sizes[0]}, data parallel {sizes[1]}\n" in trained.nodes[0].out
    assert difference(tmp_path / "alone.pt", tmp_path / "digits.pt") < 1e-4
    plan = json.loads(trained.nodes[-1].log("plan.json"))
    assert (plan["layout"]["tp"], plan["layout"]["dp"]) == sizes
    assert "epoch 2/2" in trained.nodes[0].out
    warned = "share each layer and are spread over nodes" in trained.nodes[0].err
    assert warned == (sizes[0] > 2)


def test_a_rank_that_fails_is_named_on_all_nodes(job: MakeJob) -> None:
    failed = job()
    failed.start(child("exits.py"), 42, "--rank", 2, options=("--tp", 2))
    verdict = failed.end(42)
    assert (verdict["culprit"]["node"], verdict["culprit"]["rank"]) == (1, 2)
    assert "rank 2 on node 1 (h1) exited with code 42" in verdict["reason"]


@pytest.mark.table  # torchrun's own, as in every job of its
def test_a_stop_request_stops_all(job: MakeJob) -> None:
    stopped = job()
    stopped.start(PROGRAM, "--epochs", 1000, options=("--tp", 2))
    stopped.said(0, "epoch 1/1000")
    stopped.nodes[0].popen.send_signal(signal.SIGTERM)
    assert stopped.end(143)["outcome"] == "stopped"
    assert "[rank 0] stopped in epoch" in stopped.nodes[0].out


def test_a_layout_that_does_not_fit_starts_nothing(job: MakeJob) -> None:
    refused = job()
    refused.start(PROGRAM, options=("--tp", 3))
    assert refused.end(78)["reason"].startswith("4 ranks cannot be divided by tp 3 x pp 1 x cp 1 = 3")
    assert not any(node.out for node in refused.nodes)
