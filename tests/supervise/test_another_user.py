"""A process that has become another user's, as sudo does, may not be signalled: the job ends in time all the same, and says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbench.jobs.job import Job, Starter
from testbench.places import ROOT
from testbench.waiting import DEADLINE_S

pytestmark = pytest.mark.one_python  # of another user, some of these find their libraries in no way
LIVES_S = 10 * int(DEADLINE_S)  # the process that cannot be ended
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (getenv("RANK") && getenv("RANK")[0] == '1') { sleep(1); return 7; }
    if (setuid(0)) return 3;
    puts("at work");
    fflush(stdout);
    sleep(atoi(argv[1]));
    return 0;
}
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach and write to, with the program `becomes_root`."""
    if os.geteuid() != 0 or not shutil.which("gcc") or not shutil.which("setpriv"):
        pytest.skip("it takes root, gcc and setpriv")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    source, program = folder / "becomes_root.c", folder / "becomes_root"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-o", program, source], check=True)
    program.chmod(0o4755)
    as_nobody = lambda *words: subprocess.run([*NOBODY, *words], capture_output=True, check=False, cwd=folder).returncode  # noqa: E731
    try:
        if as_nobody(program, "0"):
            pytest.skip("programs of /tmp do not become another user's here")
        if as_nobody("test", "-r", ROOT / "src") or as_nobody(sys.executable, "-c", ""):
            pytest.skip("another user cannot reach the code, or this Python")
        yield folder
    finally:
        shutil.rmtree(folder)


def started(starter: Starter, place: Path, method: str, slots: int, seconds: int, grace_s: int = 2) -> Job:
    return starter.run(
        place / "becomes_root", seconds, options=("--method", method, "--slots", slots), grace_s=grace_s, log_dir=place / "logs",
        prefix=NOBODY, cwd=place, env={"HOME": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def ended(job: Job, code: int) -> None:
    """While that process still lives, and it says what is left."""
    assert job.popen.wait(DEADLINE_S) == code
    texts = [text for text in job.verdict["notes"] if "could not be signalled" in text]
    assert len(texts) == 1
    assert "(becomes_root) of user 0 could not be signalled: it may be left running" in texts[0]
    assert "(becomes_root) of user 0 cannot be signalled" in job.err.text
    assert texts[0] in job.err.text
    assert "stuck in the kernel" not in job.err.text
    assert job.verdict["victims"] == []


def test_stopped(as_process: Starter, place: Path) -> None:
    job = started(as_process, place, "plain", 1, LIVES_S)
    job.out.wait_for("at work")
    job.send(signal.SIGTERM)
    ended(job, 143)
    assert job.verdict["stop"]["caught_by"] == job.verdict["stop"]["killed"] == []
    as_process.clean_up()


def test_after_the_failure_of_another_rank(as_process: Starter, place: Path) -> None:
    job = started(as_process, place, "spawn", 2, LIVES_S)
    ended(job, 7)
    as_process.clean_up()


def test_one_that_ends_by_itself_is_no_victim(as_process: Starter, place: Path) -> None:
    job = started(as_process, place, "spawn", 2, 2, grace_s=30)
    assert job.end() == 7
    assert job.verdict["victims"] == []
    assert not [text for text in job.verdict["notes"] if "left running" in text]
