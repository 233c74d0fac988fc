"""A search by real launchers; and one with the real DeepSpeed, on CPUs: a configuration that cannot fit is found out, and the best is
measured twice."""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tune_jobs import BEST, experiments, found, tune

from testbench.jobs.job import RANKLAUNCH, Starter
from testbench.places import EXAMPLES

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(not importlib.util.find_spec("deepspeed"), reason="DeepSpeed is not installed"),
]

LONG_S = 900  # DeepSpeed is imported five times, on two busy cores
CONFIG = {
    "train_micro_batch_size_per_gpu": [32],
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": [1], "reduce_bucket_size": [500_000, 20_000_000_000]},  # the second is a buffer of 80 GB
    "autotuning": {"start_profile_step": 2, "end_profile_step": 8},
}
MOST = 30 << 30  # bytes of address space
# Of the program whose speed is known, without a profile run: two trials, and the best again.
TWO = {
    "train_micro_batch_size_per_gpu": [6, 8],
    "zero_optimization": {"stage": [2]},
    "autotuning": {"model_info": {"num_params": 1000}},
}


@pytest.mark.parametrize(
    "method", ["torchrun", pytest.param("accelerate", marks=pytest.mark.table), pytest.param("deepspeed", marks=pytest.mark.table)]
)
def test_experiments_of_each_launcher(method: str, as_process: Starter) -> None:
    job = tune(as_process, "--method", method, config=TWO, DS_ACCELERATOR="cpu")
    assert job.end(LONG_S) == 0, job.err.text
    tried = experiments(job.log_dir)
    assert {name: each["status"] for name, each in tried.items()} == dict.fromkeys(tried, "ok")
    assert (found(job.log_dir)["best"]["name"], len(tried)) == (BEST, 3)


def test_digits_are_tuned(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG))
    words = ("--method", "spawn", "--slots", "1", "--python", sys.executable, "--log-dir", tmp_path / "logs")
    program = (EXAMPLES / "deepspeed_digits.py", "--deepspeed_config", "ds.json", "--epochs", "3")
    done = subprocess.run(
        ["env", "DS_ACCELERATOR=cpu", "OMP_NUM_THREADS=1", *RANKLAUNCH, "tune", *words, "--", *program],
        cwd=tmp_path, capture_output=True, text=True, timeout=LONG_S, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "logs" / "tune" / "results.json").read_text())
    states = {each["name"]: each["status"] for each in results["experiments"]}
    best = results["best"]["name"]
    assert sorted(states.values()) == ["ok", "ok", "ok", "out of memory"], states
    assert states["profile"] == states[best] == states[f"confirm_{best}"] == "ok"
    assert results["model"]["num_params"] > 1000
    optimal = json.loads((tmp_path / "logs" / "tune" / "ds_config_optimal.json").read_text())
    assert optimal["zero_optimization"]["reduce_bucket_size"] == 500_000
