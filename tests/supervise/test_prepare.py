"""What ModelArts runs before the boot file: ma-pre-start.sh and pip-requirements.txt beside it, once for each node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter

PRE_START = "ma-pre-start.sh"


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with a program in it, from which ranklaunch does not start."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import os\nprint('rank', os.environ['RANK'], os.path.exists('prepared'), flush=True)\n")
    return folder


def test_once_before_the_ranks(as_process: Starter, beside: Path) -> None:
    (beside / PRE_START).write_text("sleep 0.2; echo hello; echo once >> prepared\n")
    job = as_process.spawn(2, beside / "train.py")
    check_end(job, "succeeded", 0)
    assert sorted(job.out.lines) == ["[ma-pre-start.sh] hello", "[rank 0] rank 0 True", "[rank 1] rank 1 True"]
    assert (as_process.folder / "prepared").read_text() == "once\n"
    assert (job.attempt / "ma-pre-start.sh.log").read_text() == "hello\n"


def test_failing(as_process: Starter, beside: Path) -> None:
    """Its code is the job's, and no rank is started."""
    (beside / PRE_START).write_text("echo no such mirror >&2; exit 23\n")
    job = as_process.spawn(2, beside / "train.py")
    culprit = {"name": PRE_START, "rank": None, "exit_code": 23, "signal": None, "last_lines": ["no such mirror"]}
    verdict = check_end(job, "failed", 23, culprit=culprit, victims={})
    assert PRE_START in verdict["reason"]
    assert [event["name"] for event in job.events if event["event"] == "spawn"] == [PRE_START]


def test_skipped_on_request(as_process: Starter, beside: Path) -> None:
    (beside / PRE_START).write_text("exit 23\n")
    (beside / "pip-requirements.txt").write_text("a-package-that-does-not-exist\n")
    job = as_process.spawn(2, beside / "train.py", env={"RANKLAUNCH_PRE_START": "off"})
    check_end(job, "succeeded", 0)
    assert sorted(job.out.lines) == ["[rank 0] rank 0 False", "[rank 1] rank 1 False"]


def test_a_service_that_it_starts_lives_as_long_as_the_job(ranklaunch: Starter, beside: Path) -> None:
    (beside / PRE_START).write_text("setsid sh -c 'echo $$ > service; exec sleep 600' &\nwhile [ ! -s service ]; do sleep 0.01; done\n")
    (beside / "train.py").write_text("import os\nos.kill(int(open('service').read()), 0)\nprint('the service is there')\n")
    job = ranklaunch.spawn(1, beside / "train.py")
    check_end(job, "succeeded", 0)
    assert "the service is there" in job.out.text


def test_requirements_are_installed_by_the_users_interpreter(as_process: Starter, beside: Path, tmp_path: Path) -> None:
    """After ma-pre-start.sh, which may set up what pip needs."""
    interpreter = tmp_path / "bin" / "python"
    interpreter.parent.mkdir()
    interpreter.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\n[ "$2" = pip ] || exec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    requirements = beside / "pip-requirements.txt"
    requirements.write_text("# nothing\n")
    (beside / PRE_START).write_text(f'echo pre-start >> "{tmp_path}/calls"\n')
    job = as_process.spawn(1, beside / "train.py", options=("--python", interpreter))
    check_end(job, "succeeded", 0)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["pre-start", f"-m pip install -r {requirements}", f"-u {beside / 'train.py'}"]


def test_a_signal_that_ends_it(as_process: Starter, beside: Path) -> None:
    (beside / PRE_START).write_text("kill -KILL $$\n")
    job = as_process.spawn(1, beside / "train.py")
    check_end(job, "failed", 137, culprit={"name": PRE_START, "signal": "SIGKILL", "rank": None})


def test_it_runs_before_anything_is_bound(as_process: Starter, beside: Path) -> None:
    """A program that only the pre-start script brings is not missed too early."""
    (beside / PRE_START).write_text('printf "#!/bin/sh\\necho made\\n" > "$(dirname "$0")/made"; chmod +x "$(dirname "$0")/made"\n')
    job = as_process.spawn(1, beside / "made")
    check_end(job, "succeeded", 0)
    assert job.log(0) == b"made\n"
