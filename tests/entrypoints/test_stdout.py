"""What a command says comes out whole, or the command says that it did not: whatever stdout is, and whether Python buffers it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ranklaunch.errors import WaitError

pytestmark = pytest.mark.processes

LONG = ("plan", "--method", "spawn", "--slots", "8", "--nodes", "40", "--master-addr", "h", "--all-nodes", "--format", "json", "x.py")
SHORT = (
    ("--help",),
    ("--version",),
    ("run", "--help"),
    ("plan", "--method", "spawn", "true"),
    ("check", "--method", "spawn", "true"),
    ("explain", "--find", "NCCL"),
    ("layout", "--help"),
    ("template",),
    ("tune", "--help"),
    ("spec", "--help"),
    ("completion", "bash"),
)
EITHER = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def started(words: tuple[str, ...], unbuffered: str, stdout: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.Popen([sys.executable, "-m", "ranklaunch", *words], env=env, stdout=stdout, stderr=subprocess.PIPE)


def end(asked: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = asked.communicate(timeout=60)
    return asked.returncode, err.decode()


def refusal(why: str) -> tuple[int, str]:
    said = f"ranklaunch: the system refuses, trying again may help: {why}: 'standard output'\n"
    return WaitError.exit_code, said


@EITHER
def test_a_file_at_its_limit_is_no_success(unbuffered: str, tmp_path: Path) -> None:
    words = ("sh", "-c", 'ulimit -f 4; exec "$@"', "sh", sys.executable, "-m", "ranklaunch", *LONG)
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"}  # the limit would cut that too
    with open(tmp_path / "out", "wb") as out:
        found = subprocess.run(words, env=env, stdout=out, stderr=subprocess.PIPE, check=False)
    assert (found.returncode, found.stderr.decode()) == refusal("[Errno 27] File too large")


@EITHER
def test_a_pipe_that_does_not_block_gets_everything(unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}  # plans show it
    expected = subprocess.run([sys.executable, "-m", "ranklaunch", *LONG], env=env, stdout=subprocess.PIPE, check=True).stdout
    assert len(expected) > 100_000  # more than a pipe holds
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    asked = started(LONG, unbuffered, writable)
    os.close(writable)
    time.sleep(0.5)
    with open(readable, "rb") as pipe:
        assert pipe.read() == expected
    assert end(asked) == (0, "")


@EITHER
@pytest.mark.parametrize("words", SHORT, ids=" ".join)
def test_a_descriptor_that_cannot_be_written_is_said(words: tuple[str, ...], unbuffered: str) -> None:
    with open(os.devnull, "rb") as out:
        assert end(started(words, unbuffered, out.fileno())) == refusal("[Errno 9] Bad file descriptor")


@EITHER
@pytest.mark.parametrize("words", [("--help",), LONG], ids=["short", "long"])
def test_a_terminal_that_has_gone_is_said(words: tuple[str, ...], unbuffered: str) -> None:
    ours, theirs = pty.openpty()
    os.close(ours)
    asked = started(words, unbuffered, theirs)
    os.close(theirs)
    assert end(asked) == refusal("[Errno 5] Input/output error")


@EITHER
@pytest.mark.parametrize("words", [("--help",), LONG], ids=["short", "long"])
def test_a_reader_that_has_gone_needs_no_message(words: tuple[str, ...], unbuffered: str) -> None:
    readable, writable = os.pipe()
    os.close(readable)
    asked = started(words, unbuffered, writable)
    os.close(writable)
    assert end(asked) == (1, "")


@EITHER
def test_lines_that_are_followed_come_at_once(unbuffered: str, tmp_path: Path) -> None:
    """The job that is followed has not ended, and more than what stdout keeps back does not come."""
    run = (sys.executable, "-m", "ranklaunch", "run", "--method", "spawn", "--slots", "1", "--log-dir", str(tmp_path), "--", "sh", "-c")
    with subprocess.Popen([*run, "echo here; sleep 60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        asked = started(("logs", str(tmp_path), "--follow"), unbuffered, subprocess.PIPE)
        late = threading.Timer(30, asked.kill)
        late.start()
        line = asked.stdout.readline() if asked.stdout else b""
        late.cancel()
        assert job.poll() is None
        job.terminate()
        assert b"here" in line
        asked.communicate(timeout=60)
