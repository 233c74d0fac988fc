"""A run inside another run of the same job is refused; other ranklaunch commands of a program are not."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from helpers import plan

from ranklaunch.errors import ConfigError
from ranklaunch.processes.children import MARK, marked
from ranklaunch.supervise import nested
from ranklaunch.system import tree
from testbench.jobs.ends import check_end
from testbench.jobs.job import RANKLAUNCH, Starter
from testbench.places import child

PRINTS = child("prints.py")


def script(folder: Path, *words: object) -> Path:
    """A program that becomes these: what the plan sees of it is a file."""
    program = folder / "inner.py"
    program.write_text(f"import os\nos.execv({str(words[0])!r}, {[str(word) for word in words]!r})\n")
    return program


@pytest.mark.parametrize("method", ["plain", "spawn"])
def test_one_log_folder(as_process: Starter, method: str) -> None:
    """Where the inner one would write into the files that the outer one reads."""
    inner = (*RANKLAUNCH, "run", "--log-dir", as_process.folder / "logs", "--python", sys.executable, PRINTS)
    job = as_process.run(script(as_process.folder, *inner), options=("--method", method, "--slots", "2" if method != "plain" else "1"))
    assert job.end() == 78
    told = "".join(path.read_text(errors="replace") for path in job.attempt.glob("*.log"))
    assert "this ranklaunch run is inside another run of the same job: pid" in told
    assert f"logs in {job.attempt}" in told
    assert sum(path.stat().st_size for path in job.log_dir.rglob("*") if path.is_file()) < 1024 * 1024
    assert job.verdict["exit_code"] == 78


def test_two_log_folders(as_process: Starter) -> None:
    """The program would train twice."""
    inner = (*RANKLAUNCH, "run", "--log-dir", as_process.folder / "others", PRINTS)
    job = as_process.run(script(as_process.folder, *inner), options=("--method", "plain"))
    check_end(job, "failed", 78, culprit={"exit_code": 78})
    assert f"logs in {job.attempt}" in "".join(job.verdict["culprit"]["last_lines"])


def test_an_environment_from_a_file_hides_nothing(as_process: Starter) -> None:
    file = as_process.folder / "env"
    file.write_text("A=b\n")
    program = script(as_process.folder, *RANKLAUNCH, "run", "--env-file", file, PRINTS)
    job = as_process.run(program, options=("--method", "plain"))
    check_end(job, "failed", 78, culprit={"exit_code": 78})


def test_below_a_shell_and_a_session_of_its_own(as_process: Starter) -> None:
    program = as_process.folder / "inner.sh"
    program.write_text(f"setsid sh -c '{' '.join(RANKLAUNCH)} run {PRINTS}'; exit $?")
    job = as_process.run(program, options=("--method", "plain"))
    check_end(job, "failed", 78, culprit={"exit_code": 78})


def test_a_job_of_its_own(as_process: Starter) -> None:
    """A search for parameters starts jobs that have names and log folders of their own."""
    inner = (*RANKLAUNCH, "run", "--job-name", "trial-1", "--log-dir", as_process.folder / "trial", PRINTS)
    job = as_process.run(*inner, options=("--method", "plain"))
    check_end(job, "succeeded", 0)
    assert json.loads((as_process.folder / "trial/attempt_1/verdict.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize("command", ["plan", "check"])
def test_commands_that_start_nothing(as_process: Starter, command: str) -> None:
    job = as_process.run(*RANKLAUNCH, command, "--python", sys.executable, PRINTS, options=("--method", "plain"))
    check_end(job, "succeeded", 0)


def test_simulate(as_process: Starter) -> None:
    """And a run below one of its nodes is one of that job."""
    simulate = (*RANKLAUNCH, "simulate", "--nodes", "2", "--slots", "1", "--method", "spawn", "--log-dir", as_process.folder / "simulated")
    job = as_process.run(*simulate, "--python", sys.executable, "--", PRINTS, options=("--method", "plain"))
    check_end(job, "succeeded", 0, timeout=60)


def test_simulate_and_a_run_below_a_node(as_process: Starter) -> None:
    simulate = ("simulate", "--nodes", "1", "--slots", "1", "--method", "spawn", "--log-dir", as_process.folder / "logs")
    job = as_process.command(*simulate, "--", script(as_process.folder, *RANKLAUNCH, "run", PRINTS))
    assert job.end(240) == 78
    assert "inside another run of the same job" in job.out.text


def mark(pid: int, start: int, job: str = "job") -> dict[str, str]:
    return {MARK: json.dumps([pid, start, job, "/logs", "/logs/attempt_1"])}


def test_a_mark_of_one_that_lives() -> None:
    found = nested.outer(marked({"A": "b"}, "a job\n", "/logs/\udcff", "/logs/\udcff/attempt_1"))
    assert found
    assert (found.pid, found.job, found.logs) == (os.getpid(), "a job\n", "/logs/\udcff")
    found.require_other("another", "/elsewhere")
    for same in (("a job\n", "/elsewhere"), ("another", "/logs/\udcff")):
        with pytest.raises(ConfigError, match=rf"pid {os.getpid()}, .*logs in /logs/"):
            found.require_other(*same)


def test_a_mark_of_another_host_or_of_one_that_has_ended() -> None:
    """The pid may be another process's by now."""
    own = tree.identify(os.getpid())
    assert nested.outer(mark(own.pid, own.start + 1)) is None
    assert nested.outer(mark(2**22 + 1, own.start)) is None
    assert nested.outer(nested.unmarked(mark(*own))) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "[]", "{}", "null", "[1]", "[1,2,3]", '["a",1,"","",""]', "[" * 100_000, '[-1,0,"","",""]', '[1e999,0,"","",""]',
        "[1,2,3,4,5,6]", '[99999999999999999999999,1,"a","b","c"]', "\udcff", f"[{'9' * 5000},1,2,3,4]",
    ],
)  # fmt: skip
def test_a_mark_that_is_none(text: str) -> None:
    assert nested.outer({MARK: text}) is None


def test_it_does_not_go_to_other_hosts() -> None:
    found = plan({"RANKLAUNCH_METHOD": "mpirun", "RANKLAUNCH_SLOTS": "2", **mark(1, 1)})
    assert MARK not in " ".join(found.processes[0].argv)
