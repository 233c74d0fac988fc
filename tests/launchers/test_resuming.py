"""The examples go on in the middle of an epoch: a job that was stopped there, or whose ranks were killed and started again in place, has
learned at its end what it would have learned without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbench.jobs.job import RANKLAUNCH
from testbench.places import EXAMPLES

pytestmark = [pytest.mark.processes, pytest.mark.launchers]

# Before its 13th step, or its third checkpoint, a rank is asked to stop, or is killed where that is its first start.
BREAKS = """
import importlib, os, signal
example = importlib.import_module({example!r})
asked = []

def breaks(own, at=13):
    def on_any_rank(*given):
        asked.append(1)
        if len(asked) == at and {killed} and os.environ["RANKLAUNCH_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        found = own(*given)
        if {killed}:
            return found
        return (len(asked) == at, *found[1:]) if isinstance(found, tuple) else len(asked) == at
    return on_any_rank

if hasattr(example, "batches") and not hasattr(example, "StopRequest"):  # asynchronous workers do not ask each other
    example.save = breaks(example.save, 3)  # of worker 0
else:
    owner = getattr(example, "StopRequest", None) or example.digits.StopRequest
    owner, name = (owner, "on_any_rank") if hasattr(owner, "on_any_rank") else (example.Training, "on_all_ranks")
    setattr(owner, name, breaks(getattr(owner, name)))
example.main()
"""


def ran(folder: Path, method: str, *program: object, **env: str) -> str:
    shape = ("--nodes", 1, "--slots", 2) if method != "tensorflow" else ("--nodes", 3)
    options = (*shape, "--method", method, "--python", sys.executable, "--log-dir", folder / "logs")
    command = [str(word) for word in (*RANKLAUNCH, "simulate", *options, "--", *program)]
    given = {**os.environ, "DS_ACCELERATOR": "cpu", "RANKLAUNCH_ACCELERATOR": "cpu", **env}
    ended = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


EXAMPLE = {  # the ranks of ddp_spawn_digits.py do what those of ddp_digits.py do
    "spawn": ("ddp_digits", "digits.pt"),
    "accelerate": ("accelerate_digits", "digits"),
    "deepspeed": ("deepspeed_digits", "digits"),
    "megatron": ("megatron_digits", "digits.pt"),
    "mpirun": ("mpi_digits", "digits.npz"),
    "msrun": ("msrun_digits", "digits.ckpt"),
    "tensorflow": ("tf_ps_digits", "digits"),
}
ONE_OF_EACH_KIND = (("spawn", "stopped"), ("mpirun", "killed"))  # the others are for the whole table


CASES = [  # asynchronous workers are not asked to stop together
    pytest.param(method, how, id=f"{method}-{how}", marks=() if (method, how) in ONE_OF_EACH_KIND else pytest.mark.table)
    for method in EXAMPLE
    for how in ("killed", "stopped")
    if (method, how) != ("tensorflow", "stopped")
]


@pytest.mark.parametrize(("method", "how"), CASES)
def test_what_is_learned_in_two_parts_is_what_is_learned_in_one(method: str, how: str, tmp_path: Path) -> None:
    killed = how == "killed"
    example, checkpoint = EXAMPLE[method]
    program = EXAMPLES / f"{example}.py"
    for module in EXAMPLES.glob("*.py"):
        (tmp_path / module.name).symlink_to(module)
    (tmp_path / "breaks.py").write_text(BREAKS.format(example=example, killed=killed))
    whole, parts = tmp_path / "whole" / checkpoint, tmp_path / "parts" / checkpoint
    options = ("--epochs", 2, "--save_steps", 5, "--checkpoint")
    undisturbed = ran(tmp_path, method, program, *options, whole)
    broken = {"RANKLAUNCH_MAX_RESTARTS": "1" if killed else "0", "PYTHONPATH": str(EXAMPLES)}
    said = ran(tmp_path, method, tmp_path / "breaks.py", *options, parts, **broken)
    if not killed:
        assert "in epoch 1 after" in said
        said = ran(tmp_path, method, program, *options, parts)
    assert "resumed from" in said
    assert learned(parts, said) == learned(whole, undisturbed)


def learned(checkpoint: Path, said: str) -> object:
    """The parameters; of asynchronous workers how many steps they have taken."""
    import numpy as np

    if "batches of all workers" in said:
        return said.partition(" batches of all workers")[0].split()[-1]
    if checkpoint.suffix == ".npz":
        with np.load(checkpoint) as found:
            return found["weights"].tolist()
    if checkpoint.suffix == ".ckpt":
        return checkpoint.read_bytes()  # to import MindSpore starts processes that stay
    import torch

    if checkpoint.is_dir() and (checkpoint / "latest").exists():
        newest = checkpoint / (checkpoint / "latest").read_text()
        model = torch.load(newest / "mp_rank_00_model_states.pt", weights_only=False)["module"]
    elif checkpoint.is_dir():
        from safetensors.torch import load_file

        model = load_file(max(checkpoint.glob("saved-*")) / "model.safetensors")
    else:
        model = torch.load(checkpoint, weights_only=True)["model"]
    return {name: values.tolist() for name, values in model.items()}
