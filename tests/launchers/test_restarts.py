"""One failure with each launcher on three hosts: all ranks start again in place, and end as if nothing had happened. Those of spawn and
torchrun are in tests/cluster/test_restarts.py."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from training_jobs import Training

from testbench.hosts import Hosts

pytestmark = pytest.mark.launchers

NEEDED = {"mpirun": "mpirun", "accelerate": "accelerate", "deepspeed": "deepspeed", "msrun": "msrun"}
CASES = {
    "pytorch": (1, "0:2:4:kill"),
    "tensorflow": (1, "0:1:4:exit"),
    "accelerate": (2, "0:3:4:exit"),
    "deepspeed": (2, "0:5:4:kill"),
    "megatron": (2, "0:3:4:kill"),
    "mpirun": (2, "0:3:4:exit"),
    "msrun": (2, "0:5:4:kill"),
}


@pytest.mark.parametrize("method", CASES)
def test_the_training_ends_as_if_nothing_had_happened(hosts: Callable[..., Hosts], tmp_path: Path, method: str) -> None:
    search = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""), "/usr/sbin"))
    if method in NEEDED and not shutil.which(NEEDED[method], path=search):
        pytest.skip(f"{NEEDED[method]} is not installed here")
    if method in ("accelerate", "deepspeed", "megatron") and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed here")
    slots, fail = CASES[method]
    (tmp_path / "run").mkdir()
    env = {"RANKLAUNCH_RUN_DIR": str(tmp_path / "run"), "RANKLAUNCH_ACCELERATOR": "cpu"}
    Training(hosts(3), tmp_path, method, fail, slots=slots, env=env).check(1)
