"""Programs that succeed, and must not notice that somebody looks: exit code 0, a rank record for each rank, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from rankside import healthy, running
from rankside.expected import of_kind, read_records, wrong_files
from rankside.healthy import ALONE, BATCHED, PROGRAMS, WITH_TORCH

from testbench.jobs.job import Job, Starter

pytestmark = pytest.mark.processes

AT_ONCE = 13  # ranks of a job
START = 'cd "p$RANK" && . ./start.sh\n'
BATCHES = [BATCHED[first : first + AT_ONCE] for first in range(0, len(BATCHED), AT_ONCE)]


def run(starter: Starter, names: list[str], ranks: int | None = None, method: str = "spawn") -> tuple[Job, list[str]]:
    """A job whose rank N runs the program N of these. ranks: so many of one program instead."""
    folder = starter.folder
    names = names * ranks if ranks else names
    for number, name in enumerate(names):
        PROGRAMS[name].write(folder / f"p{number}")
    (folder / "start.sh").write_text(START)
    env = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    for name, value in PROGRAMS[names[0]].env.items():
        env[name] = str(folder / "p0" / value) if name == "PYTHONPATH" else value
    job = starter.run("bash", "start.sh", options=("--method", method, "--slots", len(names)), cwd=folder, env=env, grace_s=5)
    code = job.end(running.LONG_S)
    records = read_records(folder / "logs")
    wrong = wrong_files(records) + [f"too much: {record}" for record in records if record.kind == "exception"]
    launchers = {record.process for record in of_kind(records, "launcher")}
    wrong += [f"too much: {record}" for record in of_kind(records, "exit") if record.process not in launchers]
    codes = running.codes_of_launchers(records)
    if codes != [0] * len(launchers):
        wrong.append(f"{len(launchers)} launchers have the exit records {codes}")
    for number, name in enumerate(names):
        of_rank = [record for record in of_kind(records, "rank") if running.rank_of(record) == str(number)]
        if len(of_rank) != 1:
            wrong.append(f"{name}: {len(of_rank)} rank records: {[str(record) for record in of_rank]}")
    if code:
        logs = {name: (folder / "logs" / "attempt_1" / f"rank_{number}.log") for number, name in enumerate(names)}
        wrong += [f"{name}: {_end_of(log)}" for name, log in logs.items()]
    return job, [*([f"exit code {code}: {job.err.text[-2000:]}"] if code else []), *wrong]


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-800:] if log.exists() else "no log"


def test_the_table_is_large_enough() -> None:
    assert len(PROGRAMS) >= 100


@pytest.mark.parametrize("names", [pytest.param(names, id=f"{names[0]} to {names[-1]}") for names in BATCHES])
def test_many_in_one_job(as_process: Starter, names: list[str]) -> None:
    _, wrong = run(as_process, [name for name in names if PROGRAMS[name].runs_here()])
    running.check(wrong)


@pytest.mark.parametrize("name", ALONE)
def test_with_variables_of_its_own(as_process: Starter, name: str) -> None:
    _, wrong = run(as_process, [name])
    running.check(wrong)


@pytest.mark.training
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.table] if number else []) for number, name in enumerate(WITH_TORCH)]
)
def test_with_pytorch(as_process: Starter, name: str) -> None:
    """Two ranks of one program."""
    _, wrong = run(as_process, [name], ranks=2)
    running.check(wrong)


@pytest.mark.table
@pytest.mark.training
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize(
    "names", [pytest.param(names, id=f"{names[0]} to {names[-1]}") for names in [*BATCHES, *([name] * 2 for name in WITH_TORCH)]]
)
def test_by_torchrun(as_process: Starter, names: list[str]) -> None:
    """Which starts a script of the shell, too."""
    _, wrong = run(as_process, [name for name in names if PROGRAMS[name].runs_here()], method="torchrun")
    running.check(wrong)


@pytest.mark.table
@pytest.mark.parametrize("name", BATCHED)
def test_alone(as_process: Starter, name: str) -> None:
    if not PROGRAMS[name].runs_here():
        pytest.skip(f"needs {healthy.PROGRAMS[name].needs or healthy.PROGRAMS[name].since}")
    _, wrong = run(as_process, [name])
    running.check(wrong)
