"""Attempts that follow one another in one session, and processes that are none of the job's."""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.jobs.streams import tagged
from testbench.places import child
from testbench.waiting import sleep_until


def session(starter: Starter, ranks: int, *words: object, second: list[object] | None = None) -> Job:
    """words and second: the program of the first attempt and of the second."""
    given = {"SECOND": second}
    env = {name: json.dumps([str(word) for word in value]) for name, value in given.items() if value}
    return starter.spawn(ranks, *words, env=env, prefix=(sys.executable, child("session.py")))


def in_company(starter: Starter, seconds: float, *words: object) -> Job:
    """Three ranks, and a companion that holds a stop up for so long."""
    return starter.spawn(3, *words, env={"COMPANION": str(seconds)}, prefix=(sys.executable, child("session.py")))


def end_of(job: Job, attempt: int) -> dict[str, Any]:
    return checked_verdict(job.of_attempt(attempt) / "verdict.json")


def with_company(job: Job) -> dict[str, Any]:
    """The verdict, to which the company of the test has added what no schema knows."""
    return dict(json.loads((job.of_attempt(1) / "verdict.json").read_text()))


def plan_of(job: Job, attempt: int) -> dict[str, Any]:
    return dict(json.loads((job.of_attempt(attempt) / "plan.json").read_text()))


def test_a_second_attempt_has_a_plan_and_logs_of_its_own(as_pid_1: Starter) -> None:
    """The first fails; the second succeeds, and so does the session."""
    job = session(as_pid_1, 3, child("exits.py"), 7, second=[child("exits.py"), 0])
    assert job.end() == 0
    first, second = (job.log_dir / f"attempt_{number}" for number in (1, 2))
    assert (end_of(job, 1)["outcome"], end_of(job, 1)["exit_code"]) == ("failed", 7)
    assert (end_of(job, 2)["outcome"], end_of(job, 2)["culprit"], end_of(job, 2)["victims"]) == ("succeeded", None, [])
    assert [plan_of(job, number)["job"]["attempt"] for number in (1, 2)] == [1, 2]
    culprit = end_of(job, 1)["culprit"]["rank"]
    assert (first / f"rank_{culprit}.log").read_bytes() == b"ready\nrank %d exits with 7\n" % culprit
    for rank in range(3):
        assert (second / f"rank_{rank}.log").read_bytes() == b"ready\nrank %d exits with 0\n" % rank
        assert tagged(job.out, f"[rank {rank}] ").endswith(b"ready\nrank %d exits with 0\n" % rank)
    for folder in (first, second):
        events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
        assert (events[0], events[-1]) == ("read", "end")
        assert events.count("spawn") == events.count("exit") == 3


def test_nothing_of_the_first_attempt_is_open_in_the_second(as_process: Starter) -> None:
    job = session(as_process, 8, child("exits.py"), 7, second=[child("exits.py"), 0])
    assert job.end() == 0
    before, after = map(int, re.findall(r"^descriptors ([0-9]+)$", job.out.text, re.MULTILINE))
    assert after == before


def test_a_stop_request_ends_the_second_attempt_and_the_session(as_pid_1: Starter) -> None:
    job = session(as_pid_1, 2, child("exits.py"), 7, second=[child("saves_on_term.py")])
    log = job.log_dir / "attempt_2" / "rank_1.log"
    sleep_until(lambda: log.exists() and log.read_bytes(), "the second attempt's rank 1 is not ready")
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert end_of(job, 2)["outcome"] == "stopped"


def test_after_a_stop_request_no_attempt_follows(as_process: Starter) -> None:
    job = session(as_process, 2, child("saves_on_term.py"), second=[child("exits.py"), 0])
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert not (job.log_dir / "attempt_2").exists()


def test_a_companion_sees_a_failure_before_the_others_are_ended(as_process: Starter) -> None:
    job = in_company(as_process, 0.5, child("exits.py"), 7, "--rank", 1)
    assert job.end() == 7
    verdict = with_company(job)
    assert (verdict["lived"], verdict["culprit"]["rank"]) == ([0, 2], 1)
    assert job.out.text.count("held by failed") == 1


def test_a_stop_request_waits_for_no_companion(as_process: Starter) -> None:
    job = in_company(as_process, 3600, child("exits.py"), 7, "--rank", 1)
    job.out.wait_for("held by failed", 1)
    job.send(signal.SIGTERM)
    assert job.end() == 7


def test_nobody_is_asked_about_a_stop_request(as_process: Starter) -> None:
    job = in_company(as_process, 3600, child("saves_on_term.py"))
    job.out.wait_for("ready", 3)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert "held by" not in job.out.text
    assert with_company(job)["lived"] == []


def test_the_time_of_an_end_is_that_of_the_death_though_the_loop_was_busy(as_pid_1: Starter) -> None:
    """The order of the failures of two nodes is that of these times."""
    job = as_pid_1.spawn(1, child("exits.py"), 7, env={"DEAF": "1"}, prefix=(sys.executable, child("session.py")))
    assert job.end() == 7
    ends = json.loads((job.of_attempt(1) / "ends.json").read_text())["ends"]
    assert [end["at"] < with_company(job)["deaf_until"] - 0.25 for end in ends] == [True]
