"""What programs leave, whichever launcher has started them: the records that the tables of programs.py say, and no process."""

from __future__ import annotations

import importlib.util
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rankside import programs, running
from rankside.expected import Program
from rankside.programs import FIRST, PROGRAMS

from testbench.hosts import Hosts
from testbench.jobs.job import Job, Starter
from testbench.jobs.on_hosts import LauncherJob

pytestmark = pytest.mark.processes

MOST_S = 60  # of a program without a launcher
HERE = {0: 0, 1: 0}  # the nodes of ranks 0 and 1, on one host

Param = object


def runs_here(program: Program) -> bool:
    return sys.version_info[:2] >= program.since


def all_of_all(*of_first: pytest.MarkDecorator) -> list[Param]:
    """All programs, of which the first of each kind is not for the table alone. of_first: marks of those."""
    return [
        pytest.param(program, id=f"{kind}: {program.name}", marks=[*_needs(program), *([pytest.mark.table] if number else of_first)])
        for kind, several in PROGRAMS.items()
        for number, program in enumerate(several)
        if runs_here(program)
    ]


def first_of_each(*kinds_of_ci: str) -> list[Param]:
    """The first program of each kind. kinds_of_ci: those that are not for the table alone."""
    return [
        pytest.param(program, id=kind, marks=[*_needs(program), *([] if kind in kinds_of_ci else [pytest.mark.table])])
        for kind, program in FIRST.items()
        if runs_here(program)
    ]


def _needs(program: Program) -> list[pytest.MarkDecorator]:
    there = all(importlib.util.find_spec(name) for name in program.needs)
    reason = f"needs {', '.join(program.needs)}"
    return [pytest.mark.training, pytest.mark.skipif(not there, reason=reason)] if program.needs else []


def needs(method: str, there: object) -> Param:
    return pytest.param(method, marks=pytest.mark.skipif(not there, reason=f"{method} is not installed"))


torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")


def test_each_kind_has_programs() -> None:
    assert len(PROGRAMS) >= 18
    assert all(len(several) >= 4 for several in PROGRAMS.values())
    assert all(len({program.name for program in several}) == len(several) for several in PROGRAMS.values())


@pytest.mark.parametrize("program", all_of_all())
def test_without_ranklaunch_it_ends_as_the_table_says(program: Program, tmp_path: Path) -> None:
    script = programs.write(program, tmp_path)
    done = subprocess.run(
        [sys.executable, "-u", script],
        **running.bare_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MOST_S,
        preexec_fn=without_core,
        check=False,
    )
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    assert code == programs.exit_code(program), (done.stdout + done.stderr).decode(errors="replace")


def without_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# On this machine


def run(starter: Starter, program: Program, method: str, folder: Path | None = None, **more: str) -> Job:
    """To its end: with the exit code of the table, and no process left."""
    folder = folder or starter.folder
    job = running.start(starter, folder, programs.write(program, folder), method, **more)
    code = job.end(running.LONG_S)
    # A script ends with its torchrun's code, which is 1 whatever the rank's is.
    wanted = min(programs.exit_code(program), 1) if method == "script" else programs.exit_code(program)
    assert code == wanted, job.err.text + job.out.text
    return job


@pytest.mark.parametrize("program", all_of_all())
def test_by_spawn(as_process: Starter, program: Program) -> None:
    job = run(as_process, program, "spawn")
    running.check(running.differences(as_process.folder, program.records, "spawn", HERE), job)


@pytest.mark.training
@torch
@pytest.mark.parametrize("program", all_of_all(pytest.mark.launchers))
def test_by_torchrun(as_process: Starter, program: Program) -> None:
    job = run(as_process, program, "torchrun")
    running.check(running.differences(as_process.folder, program.records, "torchrun", HERE), job)


@pytest.mark.launchers
@pytest.mark.parametrize(
    "method",
    [
        needs("accelerate", importlib.util.find_spec("accelerate")),
        needs("deepspeed", importlib.util.find_spec("deepspeed")),
        needs("msrun", importlib.util.find_spec("mindspore")),
        needs("mpirun", shutil.which("mpirun")),
        needs("megatron", importlib.util.find_spec("torch")),
        needs("script", importlib.util.find_spec("torch")),
    ],
)
@pytest.mark.parametrize("program", first_of_each("an exception in the main thread", "sys.exit with a number"))
def test_by_other_launchers(as_process: Starter, program: Program, method: str) -> None:
    job = run(as_process, program, method)
    running.check(running.differences(as_process.folder, program.records, method, HERE), job)


# On two hosts


@pytest.mark.launchers
@pytest.mark.parametrize(
    "method",
    [
        needs("mpirun", shutil.which("mpirun")),
        needs("deepspeed", importlib.util.find_spec("deepspeed") and shutil.which("pdsh")),
        needs("torchrun", importlib.util.find_spec("torch")),
    ],
)
@pytest.mark.parametrize("program", first_of_each("an exception in the main thread"))
def test_on_two_hosts(hosts: Callable[..., Hosts], tmp_path: Path, program: Program, method: str) -> None:
    """Rank 1 is on the other host, whatever starts it there."""
    script = programs.write(program, tmp_path)
    (tmp_path / "run").mkdir()
    job = LauncherJob(hosts(2), tmp_path, method, 1)
    pdsh = {"RANKLAUNCH_DEEPSPEED_LAUNCHER": "pdsh"} if method == "deepspeed" else {}
    job.start(script, env={**running.ENV, **pdsh, "RANKLAUNCH_RUN_DIR": str(tmp_path / "run")})
    job.end(programs.exit_code(program))
    running.check(running.differences(tmp_path, program.records, method, {0: 0, 1: 1}, logs=tmp_path))


# What users see


@pytest.mark.parametrize("program", first_of_each("an exception in the main thread", "an exception in another thread"))
def test_the_same_output_and_exit_code_with_records_as_without(as_process: Starter, program: Program) -> None:
    seen = {}
    for rankside in ("off", "on"):
        folder = as_process.folder / rankside
        job = run(as_process, program, "spawn", folder, RANKLAUNCH_RANKSIDE=rankside)
        assert bool(list(folder.rglob("records/node_*/*"))) == (rankside == "on")
        seen[rankside] = [text_of(job, rank, folder) for rank in (0, 1)]
    assert program.same_output
    assert seen["on"] == seen["off"]


def text_of(job: Job, rank: int, folder: Path) -> str:
    """The log of a rank, without what differs between any two runs: its folder, addresses and pids."""
    text = job.log(rank).decode(errors="replace").replace(str(folder), "FOLDER")
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", re.sub(r"\bpid \d+", "PID", text))
