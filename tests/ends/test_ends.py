"""ends.json of real jobs: all that ended, in its schema, without secrets."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from training_jobs import STEPS

from ranklaunch.ends.model import JobFacts, MemoryKills, NodeEnds, RankEnd, Record, with_records
from ranklaunch.verdict.model import Ending, Judgement
from testbench.jobs.job import Job, Starter
from testbench.judges import formats
from testbench.places import child

pytestmark = pytest.mark.processes

FAILS = """
import os, time
print(f"rank {os.environ['RANK']} uses api_key=h7Kq2mXw9RtZ3vBn", flush=True)
time.sleep(1 if os.environ["RANK"] == "1" else 600)  # a rank of torchrun is looked for a moment after its start
raise ValueError("loss is nan")
"""


def ends(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "ends.json").read_text())
    formats.check("ends", found)
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {end["name"]: end for end in found["ends"]}


def fails(starter: Starter, method: str) -> Job:
    (starter.folder / "fails.py").write_text(FAILS)
    words = (starter.folder / "fails.py", "--token", "w8Lp4sTy6JdC1xQf")
    job = starter.run(*words, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(60) == 1
    assert job.verdict["culprit"]["rank"] == 1
    return job


def test_a_failure_of_a_rank(as_process: Starter) -> None:
    job = fails(as_process, "spawn")
    found = ends(job.attempt)
    first, second = found["ends"]
    assert (found["ending"]["pid"], found["ending"]["exit_code"], found["ending"]["outcome"]) == (first["pid"], 1, "failed")
    assert (first["rank"], first["local_rank"], first["role"], first["status"], first["sent"]) == (1, 1, "rank", 1 << 8, [])
    assert first["output"].endswith("ValueError: loss is nan\n")
    assert (second["rank"], second["signal"], [each["signal"] for each in second["sent"]]) == (0, signal.SIGTERM, [signal.SIGTERM])
    assert first["at"] <= second["sent"][0]["at"] <= second["at"]
    started = {event["rank"]: event["pid"] for event in job.events if event["event"] == "spawn"}
    assert {end["rank"]: end["pid"] for end in found["ends"]} == started
    assert all(end["start"] for end in found["ends"])
    text = (job.attempt / "ends.json").read_text()
    assert "h7Kq2mXw9RtZ3vBn" not in text
    assert "w8Lp4sTy6JdC1xQf" not in text
    assert "api_key=***" in text


@pytest.mark.training
def test_a_failure_of_a_rank_below_a_launcher(as_process: Starter) -> None:
    found = by_name(ends(fails(as_process, "torchrun").attempt))
    launcher, culprit, other = found["torchrun"]["launcher"], found["rank 1"], found["rank 0"]
    assert (launcher["watched"], launcher["expected"], launcher["failing"]) == ("files", [0, 1], True)
    assert (launcher["reported"]["rank"], launcher["reported"]["pid"], launcher["reported"]["exit_code"]) == (1, culprit["pid"], 1)
    assert (culprit["role"], culprit["parent"], culprit["by_itself"]) == ("below", found["torchrun"]["pid"], True)
    assert culprit["exit_code"] in (1, None)  # None: torchrun fetched the status before it could be read
    assert culprit["output"].endswith("ValueError: loss is nan\n")
    assert other["by_itself"] is False


def test_a_stop(as_process: Starter) -> None:
    job = as_process.spawn(2, child("sleeper.py"), grace_s=5)
    job.wait_for_event("first output", 2)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    found = ends(job.attempt)
    assert (found["ending"]["outcome"], found["stop"]["signal"]) == ("stopped", signal.SIGTERM)
    assert all(found["stop"]["at"] <= end["sent"][0]["at"] <= end["at"] for end in found["ends"])


def test_a_success_keeps_no_output(as_process: Starter) -> None:
    job = as_process.spawn(2, child("exits.py"), 0)
    assert job.end() == 0
    found = ends(job.attempt)
    assert [(end["exit_code"], end["output"], end["sent"]) for end in found["ends"]] == [(0, None, [])] * 2
    assert found["ending"]["outcome"] == "succeeded"


def test_each_round_has_its_own(as_process: Starter, tmp_path: Path) -> None:
    job = as_process.spawn(2, child("trains.py"), tmp_path, STEPS, "0:1:4:exit", env={"RANKLAUNCH_MAX_RESTARTS": "3"})
    assert job.end() == 0
    first, last = ends(job.attempt), ends(job.attempt / "restart_1")
    assert (first["ending"]["outcome"], last["ending"]["outcome"]) == ("failed", "succeeded")
    assert (first["job"]["restart"], last["job"]["restart"]) == (0, 1)
    assert first["state"]["launched"]
    assert first["job"]["restarts"]["most"] == 3


def test_what_stands_in_its_place_changes_nothing(as_process: Starter) -> None:
    (as_process.folder / "logs" / "attempt_1" / "ends.json").mkdir(parents=True)
    job = as_process.spawn(1, child("exits.py"), 3, options=("--attempt", 1))
    assert job.end() == 3
    assert json.loads((job.attempt / "verdict.json").read_text())["exit_code"] == 3
    assert "defect" not in job.err.text


def test_records_belong_to_the_process_with_that_pid_and_start() -> None:
    facts = JobFacts("job", "", 1, 0, "local", "spawn", "ranks", "cpu", 0, (), ("train.py",))
    both = tuple(RankEnd(0, rank, rank, 7, start, f"rank {rank}", "rank") for rank, start in ((0, 100), (1, 200)))
    node = NodeEnds(facts, Ending(Judgement("failed", 1, ""), 1.0), None, MemoryKills(), ends=both)
    raised, exited = Record("exception", 0, "h", 7, 200, 1.0, 1.0), Record("exit", 0, "h", 8, 100, 1.0, 1.0)
    found = with_records(node, {(7, 200): [raised], (8, 100): [exited]})
    assert [end.records for end in found.ends] == [(), (raised,)]


def test_a_round_that_cannot_begin_leaves_those_of_the_first(as_process: Starter, tmp_path: Path) -> None:
    job = as_process.spawn(2, child("trains.py"), tmp_path, STEPS, "0:1:4:exit", env={"RANKLAUNCH_MAX_RESTARTS": "3"})
    job.wait_for_event("spawn", 2)
    (job.attempt / "restart_1").write_text("")
    assert job.end() == 78
    found = ends(job.attempt)
    assert (found["job"]["restart"], len(found["ends"]), found["ending"]["exit_code"]) == (0, 2, 7)
