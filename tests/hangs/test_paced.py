"""Where the time of a real job went, by what its trainer has written down of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranklaunch.report import assembly
from ranklaunch.report.formats import html
from ranklaunch.report.model import BUCKETS, Report
from testbench.jobs.job import Starter
from testbench.places import child

pytestmark = pytest.mark.processes

SLOW_S = 1.0  # from a line to who reads it, on a machine that has much else to do


def told(report: Report, name: str) -> float:
    return float(getattr(report.accounting.buckets, name))


def test_buckets_are_what_the_trainer_says(as_process: Starter, tmp_path: Path) -> None:
    job = as_process.spawn(2, child("paced.py"), tmp_path / "when", env={"RANKLAUNCH_MAX_RESTARTS": "1"})
    assert job.end() == 0
    report = assembly.report(str(job.attempt))
    one, two = (json.loads(Path(f"{tmp_path}/when.{number}.1").read_text()) for number in (0, 1))
    (attempt,) = report.attempts
    first, second = attempt.rounds
    saving, repeated = one["saved"] - one["saving"], two["step 6"] - two["step 3"]
    expected = {
        "saving_s": saving,
        "repeated_s": repeated,
        "productive_s": (first.failed or 0) - one["step 1"] - saving + (second.failed or 0) - two["step 6"],
    }
    differ = {name: told(report, name) - seconds for name, seconds in expected.items()}
    assert max(map(abs, differ.values())) < SLOW_S, differ
    assert report.accounting.time_to_recover_s == (pytest.approx(two["step 3"] - (first.failed or 0), abs=SLOW_S),)
    assert sum(told(report, name) for name in BUCKETS) == pytest.approx(attempt.ended - attempt.began, abs=0.1)
    assert "Output of all ranks over time" in html.shown(report)
    assert [first.best, second.best] == [(0, 6), (0, 10)]
    assert told(report, "unknown_s") < SLOW_S
    logs = [sum(path.stat().st_size for path in folder.glob("rank_*.log")) for folder in (job.attempt, job.attempt / "restart_1")]
    assert [each.output[-1][1] for each in attempt.rounds] == logs
