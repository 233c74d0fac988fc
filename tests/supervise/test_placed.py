"""What stands before a rank, as the rank itself sees it; tests/launchers/test_placed.py has the launchers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter
from testbench.places import child


def told(job: Job, rank: int) -> dict[str, Any]:
    return dict(json.loads(job.log(rank).decode()))


@pytest.mark.parametrize("module", [False, True])
def test_a_rank_is_what_it_would_be_without(as_process: Starter, module: bool) -> None:
    """Its program, its arguments, its folder, and nothing of what stood before; the command before it knows its rank."""
    path = Path(child("environment.py"))
    program = ("-m", path.stem) if module else (path,)
    prefix = "sh -c 'BEFORE=$0 exec \"$@\"' 'rank {{ rank }} of {{ node }}'"
    options = ("--bind-cores", sorted(os.sched_getaffinity(0))[0], "--rank-prefix", prefix)
    env = {"PYTHONPATH": str(path.parent), "OMP_NUM_THREADS": "7"}
    job = as_process.spawn(1, *program, "--env", "BEFORE,OMP_NUM_THREADS,RANKLAUNCH_PLACE_*", "a b", "--", env=env, options=options)
    check_end(job, "succeeded", 0)
    seen = told(job, 0)
    assert seen["env"] == {"BEFORE": "rank 0 of 0", "OMP_NUM_THREADS": "7"}
    assert seen["argv"] == ["--env", "BEFORE,OMP_NUM_THREADS,RANKLAUNCH_PLACE_*", "a b", "--"]
    assert (seen["cwd"], seen["executable"]) == (str(as_process.folder), sys.executable)


def test_a_debugger_that_is_not_installed(as_process: Starter, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without what is installed for it
    python.chmod(0o755)
    job = as_process.spawn(2, child("environment.py"), options=("--debugpy", "--python", python))
    verdict = check_end(job, "failed", 69, culprit={"exit_code": 69})
    assert "has no package debugpy: pip install debugpy" in verdict["reason"]


def test_a_failure_is_the_programs_own(as_process: Starter) -> None:
    job = as_process.spawn(2, child("exits.py"), "7", "--rank", "1", options=("--rank-prefix", "nice"))
    check_end(job, "failed", 7, culprit={"rank": 1, "exit_code": 7})
