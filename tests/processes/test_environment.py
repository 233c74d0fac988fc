"""What a rank is born with: nothing of ranklaunch's own state, nothing that would mislead it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from ranklaunch.env.settings import RANK_HEAD
from ranklaunch.processes.children import MARK
from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter
from testbench.jobs.streams import tagged
from testbench.places import child

STATE = """
echo ready
echo "stdin $(readlink /proc/$$/fd/0)"
for fd in /proc/$$/fd/*; do [ -e "$fd" ] && echo "fd ${fd##*/}"; done
echo "ids $(cut -d ' ' -f 1,4,5,6 /proc/$$/stat)"
"""


def test_descriptors_and_group(ranklaunch: Starter) -> None:
    """As if a shell had started it: nothing open but 0, 1 and 2, a process group of its own."""
    job = ranklaunch.spawn(2, "sh", "-c", STATE)
    check_end(job, "succeeded", 0)
    for rank in range(2):
        lines = job.log(rank).decode().splitlines()
        assert "stdin /dev/null" in lines
        assert [line for line in lines if line.startswith("fd ")] == ["fd 0", "fd 1", "fd 2"]
        pid, parent, group, _ = next(line for line in lines if line.startswith("ids ")).split()[1:]
        assert group == pid
        if ranklaunch.as_pid_1:
            assert parent == "1"


def masks(status: bytes) -> dict[str, int]:
    pairs = (line.split(":") for line in status.decode().splitlines() if line.startswith("Sig") and not line.startswith("SigQ"))
    return {name: int(value, 16) & 0x7FFFFFFF for name, value in pairs}  # above are the C library's own, which make leaves ignored


def test_signals(ranklaunch: Starter) -> None:
    """None blocked, none ignored: neither those that ranklaunch handles nor those that Python ignores, such as SIGPIPE."""
    job = ranklaunch.spawn(2, "cat", "/proc/self/status")
    check_end(job, "succeeded", 0)
    for rank in range(2):
        seen = masks(job.log(rank))
        assert seen["SigBlk"] == seen["SigIgn"] == seen["SigCgt"] == seen["SigPnd"] == 0


def test_what_is_ignored_at_the_start_stays_ignored(as_process: Starter) -> None:
    """nohup, and a shell's `&`, ask for it."""
    job = as_process.spawn(1, "cat", "/proc/self/status", prefix=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    check_end(job, "succeeded", 0)
    assert masks(job.log(0))["SigIgn"] == 1 << (signal.SIGHUP - 1)


def test_variables(as_process: Starter) -> None:
    """Inherited ones that would mislead are gone, the others are as they were, and ours are there."""
    misleading = {
        "RANK": "9",
        "WORLD_SIZE": "99",
        "PET_NNODES": "7",
        "TORCHELASTIC_RUN_ID": "x",
        "MS_ROLE": "MS_SCHED",
        "RANK_TABLE_FILE": "/x",
    }
    kept = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "ODD": "a b\n$HOME\t'\"é", "EMPTY": "", "MS_ENABLE_TFT": "1"}
    env = {**misleading, **kept, "RANKLAUNCH_JOB_NAME": "mine"}
    job = as_process.spawn(2, child("environment.py"), "--env", "*", env=env, options=("--platform", "local", "--accelerator", "gpu"))
    check_end(job, "succeeded", 0)
    plan = json.loads((job.attempt / "plan.json").read_text())
    for rank in range(2):
        seen = json.loads(tagged(job.out, f"[rank {rank}] "))["env"]
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        own = {**own, "RANKLAUNCH_ATTEMPT": "1", "PYTHONUNBUFFERED": "1"}
        assert {name: seen[name] for name in own} == own
        assert {name: seen.get(name) for name in kept} == kept
        assert not {"PET_NNODES", "TORCHELASTIC_RUN_ID", "MS_ROLE", "RANK_TABLE_FILE"} & seen.keys()
        given = {**as_process.environment, **env, "RANKLAUNCH_MASTER_PORT": ""}
        recorders = {each["name"] for each in plan["recorders"]["variables"]}
        added = seen.keys() - given.keys() - own.keys() - recorders
        of_all = {"MASTER_ADDR", "MASTER_PORT", "RANKLAUNCH_RUN_ID", "RANKLAUNCH_RESTART_COUNT", RANK_HEAD, MARK}
        assert added <= {*of_all, "LC_CTYPE", plan["recorders"]["fifo"]}  # the second is made by the rank's own Python
        assert json.loads(seen[MARK])[2:] == ["mine", str(job.log_dir), str(job.attempt)]


def test_the_locale_is_not_touched(as_process: Starter) -> None:
    """Python sets LC_CTYPE in its own environment when LANG is C; a rank in another language must not see that."""
    job = as_process.spawn(1, "env", "-0", env={"LANG": "C"})
    check_end(job, "succeeded", 0)
    names = {pair.partition(b"=")[0] for pair in job.log(0).split(b"\0")}
    assert b"LC_CTYPE" not in names
    assert {b"LANG", b"RANK", b"RANKLAUNCH_ATTEMPT"} <= names


def test_a_given_locale_is_kept(as_process: Starter) -> None:
    job = as_process.spawn(1, "env", env={"LANG": "C", "LC_CTYPE": "C.UTF-8"})
    check_end(job, "succeeded", 0)
    assert b"LC_CTYPE=C.UTF-8" in job.log(0).splitlines()


def test_the_users_interpreter_is_first_on_the_path(as_process: Starter, tmp_path: Path) -> None:
    """So that `python` in a script, and launchers installed beside it, are its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    job = as_process.spawn(1, "sh", "-c", "command -v python", options=("--python", folder / "python"))
    check_end(job, "succeeded", 0)
    assert job.log(0).decode() == f"{folder}/python\n"


def test_the_folder_is_kept(as_process: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    job = as_process.spawn(1, child("environment.py"), cwd=folder)
    check_end(job, "succeeded", 0)
    assert json.loads(job.log(0))["cwd"] == str(folder)


def test_a_folder_that_is_gone_matters_to_relative_paths_alone(as_process: Starter) -> None:
    leaves = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    job = as_process.spawn(1, child("prints.py"), prefix=("sh", "-c", leaves, "sh"))
    check_end(job, "succeeded", 0)
