"""The tables of launchers' options, against the launchers' own parsers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from ranklaunch.adapters.launchers import msrun, torchrun
from ranklaunch.adapters.launchers.shared import words
from ranklaunch.adapters.launchers.shared.accelerate import options as accelerate
from ranklaunch.adapters.launchers.shared.deepspeed import options as deepspeed
from testbench.places import child

PARSERS: dict[str, words.Parser] = {
    "torch.distributed.run": torchrun.OPTIONS,
    "accelerate.commands.launch": accelerate.PARSER,
    "deepspeed.launcher.runner": deepspeed.PARSER,
    "mindspore.parallel.cluster.run": msrun.OPTIONS,
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


def read(module: str, lists: list[list[str]]) -> Any:
    command = [sys.executable, child("parsers.py"), module, json.dumps(lists)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return json.loads(done.stdout)
