"""msrun's scheduler, which is no rank, and which msrun looks after only when its ranks have ended: played by a script in msrun's place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter

pytestmark = pytest.mark.processes

# Starts the program as scheduler and as two ranks, as msrun does, and fails where one of them has.
MSRUN = """
import os, subprocess, sys, time
folder, program = sys.argv[1:]
started = []
for name in ("scheduler", "worker_0", "worker_1"):
    with open(f"{folder}/{name}.log", "wb") as log:
        started.append(subprocess.Popen([sys.executable, program, name], stdout=log, stderr=log))
for process in started[1:] + started[:1]:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    time.sleep(1)  # it looks now and then
sys.exit(any([process.wait() for process in started]))
"""
PROGRAM = """
import os, signal, sys, time
def save(number, frame):
    print("saved", flush=True)
    sys.exit(3 if name == "worker_1" else 0)
signal.signal(signal.SIGTERM, save)
name, end = sys.argv[1], os.environ["END"]
print("ready", flush=True)
while name == "scheduler" and not os.path.exists(end):
    time.sleep(0.02)
if name == "scheduler" and os.environ["HOW"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if name == "scheduler":
    sys.exit("no such port")
if os.environ["HOW"] == "late":
    while not os.path.exists(end + ".ranks"):
        time.sleep(0.02)
    print("[WARNING] CUDA out of memory. Tried to allocate 2 GiB: trying again with less", flush=True)
    sys.exit(0)
time.sleep(600)
"""


def job(starter: Starter, tmp_path: Path, how: str) -> Job:
    """Its scheduler ends when both ranks have begun, or have ended."""
    for name, text in (("msrun.py", MSRUN), ("program.py", PROGRAM)):
        (tmp_path / name).write_text(text)
    (tmp_path / "templates" / "msrun").mkdir(parents=True)
    (tmp_path / "templates" / "msrun" / "command.j2").write_text(
        f"{sys.executable} {tmp_path}/msrun.py {{{{ log_dir }}}} {{{{ job.program.words }}}}"
    )
    env = {"RANKLAUNCH_TEMPLATES": str(tmp_path / "templates"), "END": str(tmp_path / "end"), "HOW": how, "RANKLAUNCH_ACCELERATOR": "cpu"}
    made = starter.run(tmp_path / "program.py", options=("--method", "msrun", "--slots", 2), env=env)
    for rank in range(2):
        made.out.wait_for(f"[rank {rank}] ready")
    made.wait_for_event("spawn", 3)  # what is too short to be seen has no event of its end
    if how == "late":
        (tmp_path / "end.ranks").touch()
        made.wait_for_event("exit", 2)
    (tmp_path / "end").touch()
    return made


def test_a_scheduler_that_is_killed_ends_the_job_at_once(as_process: Starter, tmp_path: Path) -> None:
    """Ranks of MindSpore would go on without it for half a minute, and then end themselves by SIGTERM."""
    made = job(as_process, tmp_path, "killed")
    culprit = {"name": "scheduler", "rank": None, "signal": "SIGKILL", "exit_code": 137}
    verdict = check_end(made, "failed", 137, culprit=culprit)
    assert verdict["reason"].startswith("scheduler on node 0 was killed by SIGKILL; its last line: ready")
    assert [made.log(rank).split() for rank in range(2)] == [[b"ready", b"saved"]] * 2
    assert "rank 1 failed with exit code 3 while it was being stopped: see rank_1.log" in verdict["notes"]


def test_a_scheduler_that_fails_after_its_ranks(as_process: Starter, tmp_path: Path) -> None:
    """Ranks that have ended with 0 have not failed, whatever they wrote."""
    verdict = check_end(job(as_process, tmp_path, "late"), "failed", 1, culprit={"name": "scheduler", "rank": None})
    assert verdict["reason"] == "scheduler on node 0 exited with code 1; its last line: no such port"
    assert "no such port" in verdict["culprit"]["last_lines"]
    assert verdict["failures"] == []
