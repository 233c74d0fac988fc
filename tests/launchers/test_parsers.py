"""The tables of launchers' options, against the launchers' own parsers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from ranklaunch.adapters.launchers.shared import user_options
from testbench.places import child

PARSERS: dict[str, user_options.Parser] = {
    "torch.distributed.run": user_options.TORCHRUN,
    "accelerate.commands.launch": user_options.ACCELERATE,
    "deepspeed.launcher.runner": user_options.DEEPSPEED,
    "mindspore.parallel.cluster.run": user_options.MSRUN,
}

pytestmark = [pytest.mark.launchers, pytest.mark.processes]


@pytest.mark.parametrize("module", PARSERS)
def test_a_launcher_reads_its_options_as_we_do(module: str) -> None:
    if not importlib.util.find_spec(module.partition(".")[0]):
        pytest.skip(f"{module} is not installed")
    ours, theirs = PARSERS[module], read(module, [])
    long = {ours.spelled(name): takes for name, takes in theirs["options"].items()}
    assert {name for name, takes in long.items() if takes} <= {*ours.with_value}
    assert {name for name, takes in long.items() if not takes} <= {*ours.switches}
    for beginning, name in theirs["meant"].items():
        assert name is None or ours.spelled(beginning) == ours.spelled(name), beginning


# A word that takes the place of the program, "" where none does.
EXTRA: dict[str, list[tuple[str, list[str]]]] = {
    "torch.distributed.run": [
        ("other.py", ["other.py"]),
        ("other.py", ["--nnodes=1", "other.py", "--tee", "3"]),
        ("other.py", ["--tee", "3", "other.py"]),
        ("other.py", ["--stand", "other.py"]),
        ("other.py", ["-m", "other.py"]),
        ("other.py", ["-r3", "other.py"]),
        ("other.py", ["--role=a b", "other.py"]),
        ("", [""]),
        ("other.py", ["--", "other.py"]),
        ("PROGRAM", ["--tee", "3", "-r", "3", "--rdzv-conf", "a=1,b=2", "--max-restarts", "-1", "--role=a b", "--standalone", "-m"]),
        ("PROGRAM", ["--"]),
    ],
    "accelerate.commands.launch": [
        ("other.py", ["--use_fsdp", "other.py"]),
        ("other.py", ["--zero-stage", "3", "other.py"]),
        ("PROGRAM", ["--use_deepspeed", "--zero_stage", "3", "--fsdp_offload_params", "true", "-t", "3"]),
    ],
    "deepspeed.launcher.runner": [
        ("other.py", ["--module", "other.py"]),
        ("other.py", ["-ih0", "other.py"]),
        ("PROGRAM", ["--bind_cores_to_rank", "--log_l", "error", "--autotuning", "tune", "-q"]),
    ],
    "mindspore.parallel.cluster.run": [
        ("other.py", ["--bind_core", "True", "other.py"]),
        ("PROGRAM", ["--bind_core", "True", "--tail", "0,1"]),
    ],
}


@pytest.mark.parametrize("module", PARSERS)
def test_what_takes_the_place_of_the_program(module: str) -> None:
    if not importlib.util.find_spec(module.partition(".")[0]):
        pytest.skip(f"{module} is not installed")
    lists = [given for _, given in EXTRA[module]]
    assert read(module, lists)["programs"] == [program for program, _ in EXTRA[module]]
    found = [PARSERS[module].read(given)[1] for given in lists]
    assert ["PROGRAM" if word is None else word for word in found] == [program for program, _ in EXTRA[module]]


def read(module: str, lists: list[list[str]]) -> Any:
    command = [sys.executable, child("parsers.py"), module, json.dumps(lists)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return json.loads(done.stdout)
