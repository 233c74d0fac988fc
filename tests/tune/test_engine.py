"""The command itself, with a program whose speed and need of memory are known: it finds the best, whatever chooses the trials; it goes on
after whatever ended it, and leaves nothing running."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import time

import pytest
from tune_jobs import BEST, FEW, GIB, experiments, found, tune

from ranklaunch.tune.model import TUNERS
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.places import child
from testbench.waiting import DEADLINE_S

pytestmark = pytest.mark.processes


# What chooses, and how it goes through a space, is tested in memory (test_tuners.py); that the command takes its choice is shown by those
# below, too.
@pytest.mark.table
@pytest.mark.parametrize("tuner", TUNERS)
def test_each_tuner_finds_the_best(tuner: str, as_process: Starter) -> None:
    job = tune(as_process, "--tuner", tuner, TUNED_LIMIT=27 * GIB)  # stage 0 needs more for 8 samples, stage 3 has room
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    results = found(job.log_dir)
    assert (results["best"]["name"], results["best"]["confirmed"]) == (BEST, True)
    check_written(job)


def test_what_does_not_fit_is_told_by_the_verdict(as_process: Starter) -> None:
    """And all that is written of a search, and of its experiments."""
    words = ("--api-key", "abc123", "--name", "two words")
    limit = 18 * GIB  # stage 1 has no room for 8 samples, stage 2 has
    job = tune(as_process, "--tuner", "gridsearch", config=FEW, words=words, TUNED_LIMIT=limit)
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    states = {name: each["status"] for name, each in experiments(job.log_dir).items()}
    assert states["z1_mbs8_gas1"] == "out of memory"
    results = found(job.log_dir)
    assert (results["best"]["name"], results["best"]["confirmed"]) == (BEST, True)
    check_written(job)
    with_best = (job.log_dir / "tune" / "summary.txt").read_text().splitlines()[-1]
    options = f"--method=spawn --slots=2 --python={sys.executable} --grace-s=5 --log-dir={job.log_dir}/run"
    program = f"{child('tuned.py')} --deepspeed_config {job.log_dir}/tune/ds_config_optimal.json --api-key '***' --name 'two words'"
    assert with_best == f"with the best: ranklaunch run {options} -- {program}"


def check_written(job: Job) -> None:
    folder = job.log_dir / "tune"
    optimal = json.loads((folder / "ds_config_optimal.json").read_text())
    assert (optimal["zero_optimization"]["stage"], optimal["train_micro_batch_size_per_gpu"], optimal["train_batch_size"]) == (2, 6, 12)
    assert "autotuning" not in optimal
    assert {"summary.txt", "results.svg"} <= {path.name for path in folder.iterdir()}
    made = folder / "exps" / BEST
    assert {"ds_config.json", "command.txt", "log", "verdict.json", "result.json"} <= {path.name for path in made.iterdir()}
    assert checked_verdict(made / "verdict.json")["outcome"] == "succeeded"
    assert "experiment 1 of at most" in job.err.text
    assert BEST in job.verdict["reason"]


def test_one_that_hangs_is_ended_and_the_search_goes_on(as_process: Starter) -> None:
    job = tune(as_process, "--experiment-timeout", 12, config=FEW, TUNED_HANGS="2:6")
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    hung = experiments(job.log_dir)[BEST]
    assert (hung["status"], hung["metrics"]) == ("hung", {})
    assert found(job.log_dir)["best"]["name"] == "z2_mbs8_gas1"


def test_no_configuration_that_works_is_a_failure(as_process: Starter) -> None:
    job = tune(as_process, config=FEW, TUNED_LIMIT=1)
    assert job.end(4 * DEADLINE_S) == 1, job.err.text
    assert "none of" in job.verdict["reason"]
    assert "out of memory" in job.verdict["reason"]


def test_a_search_waits_for_another_in_the_same_folder_and_is_refused_where_that_goes_on(as_process: Starter) -> None:
    """They would remove each other's experiments, and write one file. The other one is this test."""
    exps = as_process.folder / "logs" / "tune" / "exps"
    exps.mkdir(parents=True)
    fd = os.open(exps, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    refused = tune(as_process, "--grace-s", 0)
    assert refused.end(2 * DEADLINE_S) == 75, refused.err.text
    assert f"another search is at work in {exps}: wait for its end" in refused.verdict["reason"]
    waits = tune(as_process, config=FEW)
    waits.err.wait_for("waiting for its end")
    os.close(fd)
    assert waits.end(4 * DEADLINE_S) == 0, waits.err.text


def test_what_cannot_be_written_at_the_end_is_said_and_changes_nothing(as_process: Starter) -> None:
    """A folder stands in the file's place."""
    (as_process.folder / "logs" / "tune" / "summary.txt").mkdir(parents=True)
    job = tune(as_process, config=FEW)
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    assert f"tune: {job.log_dir}/tune/summary.txt: a folder is there" in job.err.text
    assert f"best: {BEST} with" in job.err.text
    assert BEST in job.verdict["reason"]


@pytest.mark.parametrize(
    ("number", "moments"),
    [
        pytest.param(signal.SIGINT, 5, marks=pytest.mark.table),
        pytest.param(signal.SIGTERM, 5, marks=pytest.mark.table),
        (signal.SIGKILL, 3),  # nobody has a chance to write anything
    ],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
def test_it_goes_on_where_it_was_ended(number: signal.Signals, moments: int, as_process: Starter) -> None:
    """At random moments, again and again, until it has been left to its end: no experiment that was finished is made again."""
    chance = random.Random(number)
    whole = tune(as_process, folder="whole", config=FEW)
    assert whole.end(4 * DEADLINE_S) == 0
    finished: dict[str, float] = {}
    for i in range(moments):
        job = tune(as_process, config=FEW)
        # A Python that is still starting itself ends with 1 when it is interrupted.
        job.err.wait_for("ranklaunch: ")
        time.sleep(chance.random() * 2.3)
        job.send(number)
        if number == signal.SIGKILL:
            assert job.end(at_once=False) in (128 + number, 0), job.err.text
        else:
            assert job.end() in (128 + number, 0), job.err.text
        now = {path.parent.name: path.stat().st_mtime for path in (job.log_dir / "tune" / "exps").glob("*/result.json")}
        assert {name: now.get(name) for name in finished} == finished, f"at moment {i}"
        finished = now
    job = tune(as_process, config=FEW)
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    assert {name: (job.log_dir / "tune" / "exps" / name / "result.json").stat().st_mtime for name in finished} == finished
    one, other = (experiments(folder) for folder in (whole.log_dir, job.log_dir))
    assert {name: each["metrics"] for name, each in one.items()} == {name: each["metrics"] for name, each in other.items()}
    assert found(job.log_dir)["best"]["name"] == BEST


def test_dry_run_shows_the_space_and_starts_nothing(as_process: Starter) -> None:
    job = tune(as_process, "--dry-run", config=FEW)
    assert job.end() == 0
    assert BEST in job.out.text
    assert not job.log_dir.exists()


def test_run_starts_the_best(as_process: Starter) -> None:
    job = tune(as_process, "--run", config={**FEW, "train_micro_batch_size_per_gpu": [6]})
    assert job.end(4 * DEADLINE_S) == 0, job.err.text
    assert "trained with stage 2 and micro-batch 6" in job.out.text
