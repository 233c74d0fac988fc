"""A log folder whose first attempt an older image wrote, with a plan of schema ranklaunch.plan/1: a real one, of torchrun."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import helpers
import pytest

from testbench.judges import formats
from testbench.waiting import DEADLINE_S, free_port, sleep_until

OLDER = helpers.TESTS / "report" / "older_image"
PROGRAM = """
import os, sys, time
for step in range(3):
    print(f"step {step} loss 0.1", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""

pytestmark = pytest.mark.processes


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    """The folder, while the second attempt runs, which ends when the file `go` is there."""
    logs = Path(shutil.copytree(OLDER, tmp_path / "logs"))
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    words = ("--method", "spawn", "--slots", "2", "--job-name", "older", "--master-port", str(free_port()), "--log-dir", str(logs))
    command = [sys.executable, "-m", "ranklaunch", "run", *words, "--", str(tmp_path / "train.py"), str(tmp_path / "go")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        ranks = [logs / "attempt_2" / f"rank_{rank}.log" for rank in (0, 1)]
        sleep_until(lambda: all(log.exists() and "step 2" in log.read_text() for log in ranks), "the ranks do not begin")
        yield logs
        (tmp_path / "go").touch()
        assert job.wait(DEADLINE_S) == 0


def ranklaunch(command: str, logs: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ranklaunch", command, str(logs), *words], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return done.stdout


def test_both_attempts_are_read(logs: Path) -> None:
    plans = [json.loads((logs / f"attempt_{number}" / "plan.json").read_text()) for number in (1, 2)]
    assert [plan["schema"] for plan in plans] == ["ranklaunch.plan/1", "ranklaunch.plan/2"]
    assert json.loads(ranklaunch("status", logs, "--format", "json"))["attempt"] == 2
    report = json.loads(ranklaunch("report", logs, "--format", "json"))
    assert [attempt["number"] for attempt in report["attempts"]] == [1, 2]
    shown = ranklaunch("report", logs)
    assert "rank 1 on node 0 exited with code 1: ValueError: loss is nan" in shown
    first, second = (ranklaunch("logs", logs, "--attempt", number) for number in "12")
    assert "ValueError: loss is nan" in first
    assert second.count("step 2 loss 0.1") == 2


def test_the_older_plan_fits_its_own_schema() -> None:
    formats.check("plan-1", json.loads((OLDER / "attempt_1" / "plan.json").read_text(encoding="utf-8")))
