"""The program that runs the Ray of one node, with a shell script in place of Ray."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ranklaunch.files import own_program
from testbench.hosts.holder import state_and_parent
from testbench.waiting import DEADLINE_S, sleep_until

pytestmark = pytest.mark.processes

LOGS = "mkdir -p $2/session_1/logs; echo kept >$2/session_1/logs/raylet.out; "
ORPHAN = "(trap '' TERM; sleep 600 & echo $! >$ORPHAN; wait) & "


def node(folder: Path, script: str) -> subprocess.Popen[bytes]:
    (folder / "port").write_text("7777")
    temp = folder / "ray"
    argv = [own_program("ray_node.py"), folder / "port", folder / "kept", "5", ""]
    fake = ["bash", "-c", script, "ray", "--temp-dir", temp]
    env = {**os.environ, "ORPHAN": str(folder / "orphan")}
    return subprocess.Popen([sys.executable, *argv, *fake], stdout=subprocess.PIPE, env=env)


def orphan_of(folder: Path) -> int:
    return int(sleep_until(lambda: (folder / "orphan").exists() and (folder / "orphan").read_text(), "the orphan"))


def ended(folder: Path, started: subprocess.Popen[bytes]) -> str:
    """Return the output of a node that left its logs, and neither process nor folder."""
    out, _ = started.communicate(timeout=DEADLINE_S)
    assert (folder / "kept/raylet.out").read_text() == "kept\n"
    assert not (folder / "ray").exists()
    assert state_and_parent(orphan_of(folder))[0] in "ZX"
    return out.decode()


STARTS = """
import os, subprocess, time
subprocess.Popen([os.path.dirname(__file__) + "/gcs_server", "600"]).kill()
time.sleep(600)
"""


def test_the_head_is_killed_while_ray_starts(tmp_path: Path) -> None:
    """`ray start` would wait half a minute for a process that has ended."""
    shutil.copy(shutil.which("sleep") or "", tmp_path / "gcs_server")
    (tmp_path / "starts.py").write_text(STARTS)
    started = node(tmp_path, f"{LOGS}{ORPHAN}until [ -s $ORPHAN ]; do sleep 0.1; done; exec {sys.executable} {tmp_path}/starts.py")
    assert ended(tmp_path, started).splitlines()[-1] == f"SIGKILL ended Ray's gcs_server: {tmp_path}/kept/gcs_server.out"
    assert started.returncode == 137


def test_a_process_of_ray_that_ends(tmp_path: Path) -> None:
    """The last line names the process. Of its log, only warnings and errors are shown. Workers that Ray leaves behind are killed."""
    report = "Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9 (signal 9)]\n"
    tail = (
        "1:2,3\tERR scripts.py:128 -- ----- BEGIN raylet.out tail -----\n"
        "[2026-11-30 07:53:18,686 I 22 22] (raylet) accessor.cc:475: all is well\n"
        "[2026-11-30 07:53:18,687 E 22 22] (raylet) main.cc:1: all is not\n"
        "[state-dump] DebugString() time ms: 0\n"
        "1:2,3\tERR scripts.py:128 -- ----- END raylet.out tail (exit code(s)=-9) -----\n"
    )
    (tmp_path / "report").write_text(report)
    (tmp_path / "tail").write_text(f"before\n{tail}behind\n")
    fails = "cd $2/../; cp report $2/session_1/logs/ray_process_exit.log; cat tail; until [ -s orphan ]; do sleep 0.1; done; exit 1"
    started = node(tmp_path, f"{LOGS}{ORPHAN}{fails}")
    *lines, last = ended(tmp_path, started).splitlines()
    assert lines == ["before", "[2026-11-30 07:53:18,687 E 22 22] (raylet) main.cc:1: all is not", "behind"]
    assert last == f"SIGKILL ended Ray's raylet: {tmp_path}/kept/raylet.out"
    assert started.returncode == 137


def test_a_ray_that_does_not_end(tmp_path: Path) -> None:
    """The node is asked to end. Its Ray does not, and is killed."""
    started = node(tmp_path, f"trap '' TERM; {LOGS}{ORPHAN}wait")
    orphan_of(tmp_path)
    started.send_signal(signal.SIGTERM)
    assert ended(tmp_path, started) == ""
    assert started.returncode == 143
