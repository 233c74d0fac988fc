"""DeepSpeed's own --autotuning below ranklaunch, on CPUs: what it finds is shown, and what it leaves behind is ended."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob

pytestmark = [
    pytest.mark.processes,
    pytest.mark.launchers,
    pytest.mark.table,  # it is DeepSpeed's own, which takes as long as twenty of our jobs
    pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed"),
    pytest.mark.skipif(not importlib.util.find_spec("tabulate"), reason="tabulate is not installed"),
    pytest.mark.skipif(not shutil.which("pdsh"), reason="needs pdsh"),
]

LONG_S = 900  # DeepSpeed is imported fifteen times, on two busy cores
# Each experiment leaves a process in a session of its own.
PROGRAM = """
import argparse, subprocess, deepspeed, torch
deepspeed.ops.__compatible_ops__ = {}  # else it compiles an all-reduce of its own, which takes minutes
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
options = deepspeed.add_config_arguments(parser).parse_args()
subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
model = torch.nn.Linear(4, 2)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=options.deepspeed_config)
for _ in range(100):
    engine.backward(engine(torch.ones(engine.train_micro_batch_size_per_gpu(), 4)).sum())
    engine.step()
print("all steps are done")
"""
# One experiment after the profile run.
CONFIG = {
    "train_micro_batch_size_per_gpu": [8],
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "autotuning": {"enabled": True, "fast": True, "start_profile_step": 2, "end_profile_step": 4},
}


@pytest.fixture
def job(hosts: Callable[..., Hosts], tmp_path: Path, request: pytest.FixtureRequest) -> LauncherJob:
    return LauncherJob(hosts(request.param), tmp_path, "deepspeed", slots=1)


def start(job: LauncherJob, how: str, **env: str) -> None:
    (job.folder / "ds.json").write_text(json.dumps(CONFIG))
    (job.folder / "train.py").write_text(PROGRAM)
    own = {"DS_ACCELERATOR": "cpu", "RANKLAUNCH_RUN_DIR": str(job.folder), "RANKLAUNCH_EXTRA_DEEPSPEED_PARAMS": f"--autotuning {how}"}
    job.start("train.py", "--deepspeed_config", "ds.json", env={**own, **env})


def check_found(job: LauncherJob, ranks: int) -> None:
    results = job.folder / "autotuning_results"
    assert json.loads((results / "profile_model_info/model_info.json").read_text())["num_params"] == 10
    assert json.loads((results / "z1_gas1_tmbspg8/metrics.json").read_text())["throughput"] > 0
    optimal = json.loads((results / "ds_config_optimal.json").read_text())
    assert (optimal["zero_optimization"], optimal["train_batch_size"], "autotuning" in optimal) == ({"stage": 1}, 8 * ranks, False)
    for name in ("summary.txt", "ds_config_optimal.json"):
        assert (results / name).read_text().splitlines()[0] in job.nodes[0].err, job.words()


@pytest.mark.parametrize("job", [1], indirect=True)
def test_tuning_on_one_node(job: LauncherJob) -> None:
    """Without an SSH server here its own cleaning up fails, and it goes on."""
    start(job, "tune")
    verdict = job.end(0)
    check_found(job, 1)
    assert "localhost: ssh exited with exit code" in job.nodes[0].out
    assert "ended processes that the program left behind: " in " ".join(verdict["notes"])


@pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/sbin"), reason="needs sshd")
@pytest.mark.parametrize("job", [2], indirect=True)
def test_tuning_over_two_nodes_by_pdsh(job: LauncherJob) -> None:
    """The best is started again as it was tried, so it ends after the steps that are measured."""
    start(job, "run", RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh")
    job.nodes[0].popen.wait(LONG_S)
    job.end(0)
    check_found(job, 2)
    out = job.nodes[0].out
    assert "Done running with the optimal DeepSpeed configuration" in out
    assert "all steps are done" not in out
