"""The examples go on in the middle of an epoch, and learn what they would have learned without a stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbench.jobs.job import RANKLAUNCH
from testbench.places import EXAMPLES

pytestmark = [pytest.mark.processes, pytest.mark.launchers]

STOPS = """
import importlib
example, digits = importlib.import_module({example!r}), importlib.import_module("digits")
asked = []
def on_any_rank(*_):
    asked.append(1)
    return len(asked) == 13
getattr(example, "StopRequest", digits.StopRequest).on_any_rank = on_any_rank
example.main()
"""


def ran(folder: Path, method: str, *program: object) -> str:
    options = ("--nodes", 1, "--slots", 2, "--method", method, "--python", sys.executable, "--log-dir", folder / "logs")
    command = [str(word) for word in (*RANKLAUNCH, "simulate", *options, "--", *program)]
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("method", "example", "checkpoint", "said"),
    [
        pytest.param("spawn", "ddp_digits", "digits.pt", "in epoch 1 after step 12", id="spawn"),
        pytest.param("accelerate", "accelerate_digits", "digits", "in epoch 1 after batch 12", id="accelerate", marks=pytest.mark.table),
    ],
)
def test_what_is_learned_in_two_parts_is_what_is_learned_in_one(
    method: str, example: str, checkpoint: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "stops.py").write_text(STOPS.format(example=example))
    whole, parts = tmp_path / "whole" / checkpoint, tmp_path / "parts" / checkpoint
    own = EXAMPLES / f"{example}.py"
    ran(tmp_path, method, own, "--epochs", 2, "--checkpoint", whole)
    assert said in ran(tmp_path, method, tmp_path / "stops.py", "--epochs", 2, "--checkpoint", parts, "--save_steps", 5)
    assert "resumed from" in ran(tmp_path, method, own, "--epochs", 2, "--checkpoint", parts)
    assert learned(whole) == learned(parts)


def learned(checkpoint: Path) -> dict[str, object]:
    """The parameters."""
    import torch

    if checkpoint.is_dir():
        from safetensors.torch import load_file

        model = load_file(max(checkpoint.glob("saved-*")) / "model.safetensors")
    else:
        model = torch.load(checkpoint, weights_only=True)["model"]
    return {name: values.tolist() for name, values in model.items()}
