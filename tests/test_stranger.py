"""A stranger: an environment with nothing but Python, the wheel, and each command of README.md as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import helpers
import pytest

from ranklaunch import __version__
from testbench import places

pytestmark = [pytest.mark.processes, pytest.mark.launchers, pytest.mark.one_python]

CHECKOUT = {"make dist", "make run", "make test"}  # other tests run these, in a checkout
TRAIN = "import os, sys\nprint(f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: {' '.join(sys.argv[1:])}\")\n"
JOB = "MA_NUM_HOSTS=1\nMA_NUM_GPUS=8\nMA_VJ_NAME=llm\nMA_TASK_NAME=worker\nVC_TASK_INDEX=0\nMA_RUN_METHOD=torchrun\nPATH=/usr/bin\n"
PRINTED = {
    "--version": f"ranklaunch {__version__}\n",
    "run": "rank 1 of 2: --epochs 3\n",
    "plan": "--nproc_per_node=8",
    "spec": "kind: Job",
    "report": "SUCCEEDED with exit code 0",
}


def commands() -> Iterator[str]:
    text = (helpers.ROOT / "README.md").read_text(encoding="utf-8")
    yield from re.findall(r"^    (\S.*)$", text, re.MULTILINE)


def test_readme_is_short_and_its_commands_work(tmp_path: Path) -> None:
    assert len((helpers.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    dist: ModuleType = places.module("tools/dist.py")
    assert dist.main(["--build-only", "--out", str(tmp_path / "dist")]) == 0
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.env").write_text(JOB)
    env = dist.bare(tmp_path, {"PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin"})
    tried = []
    for command in commands():
        if command not in CHECKOUT:
            words = shlex.split(command)
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            tried.append(words[1])
            if "--output" not in words:
                assert PRINTED.get(words[1], "") in done.stdout, (command, done.stdout)
    assert {*tried} == {"install", *PRINTED}
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
