"""All ranks of one node start again in place after a failure: real processes, with a training that goes on from what it has saved."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_jobs import STEPS, undisturbed

from ranklaunch.restarts import cleaning
from ranklaunch.restarts.cleaning import Held
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.jobs.processes import state_of
from testbench.jobs.users import needs_root
from testbench.places import child
from testbench.waiting import sleep_until

pytestmark = pytest.mark.processes


def check_training(folder: Path, ranks: int) -> None:
    assert [json.loads((folder / f"final_{rank}").read_text()) for rank in range(ranks)] == [undisturbed(ranks)] * ranks
    assert not (folder / "twice").exists()


def train(starter: Starter, folder: Path, *fails: str, restarts: int = 3, env: dict[str, str] | None = None) -> Job:
    words = (child("trains.py"), folder, STEPS, *fails)
    return starter.spawn(2, *words, env={"RANKLAUNCH_MAX_RESTARTS": str(restarts), **(env or {})})


def history(job: Job) -> list[dict[str, Any]]:
    return list(checked_verdict(job.attempt / "verdict.json").get("restarts", []))


@pytest.mark.parametrize(
    ("fails", "rounds"),
    [(["0:1:4:memory"], 1), (["0:0:4:exit", "0:1:4:kill"], 1), (["0:1:1:kill", "1:0:6:exit"], 2)],
    ids=["has no memory", "two at once", "is killed before its first step, and one exits later"],
)
def test_the_training_ends_as_if_nothing_had_happened(as_pid_1: Starter, tmp_path: Path, fails: list[str], rounds: int) -> None:
    job = train(as_pid_1, tmp_path, *fails)
    assert job.end() == 0
    check_training(tmp_path, 2)
    restarts = history(job)
    assert [restart["round"] for restart in restarts] == list(range(rounds))
    assert all(re.match(r"rank [01] (on node 0 )?", restart["reason"]) and restart["decision"] for restart in restarts)
    for number in range(1, rounds + 1):
        folder = job.attempt / f"restart_{number}"
        assert json.loads((folder / "plan.json").read_text())["job"]["restart"] == number
        assert f"count {number}" in (folder / "rank_0.log").read_text()
    assert job.err.text.count("starting all ranks again") == rounds
    assert not [name for name in os.listdir(job.attempt) if name == ".reserved"]


@pytest.mark.parametrize(
    ("fails", "code", "why"),
    [
        (["0:1:1:import"], 1, "no step was recognised, so python-module-not-found would occur again"),
        (["0:1:1:usage"], 2, "not started again: a restart would end with exit code 2 again"),
        (["0:1:4:full"], 1, "not started again: a disk is full, or /dev/shm is"),
        (["0:1:4:zero", "0:0:4:late"], 7, "a rank had ended with 0"),
    ],
    ids=["an import error", "a wrong argument", "a full disk", "one ended with 0"],
)
def test_what_must_not_start_again_does_not(as_process: Starter, tmp_path: Path, fails: list[str], code: int, why: str) -> None:
    job = train(as_process, tmp_path, *fails)
    assert job.end() == code
    assert history(job) == []
    assert why in "\n".join(job.verdict["notes"])
    assert not (job.attempt / "restart_1").exists()


def test_a_failure_that_comes_again_at_its_place_ends_the_job_for_good(as_process: Starter, tmp_path: Path) -> None:
    job = train(as_process, tmp_path, "0:1:4:value", "1:1:4:value", "2:1:4:value")
    assert job.end() == 76
    verdict = job.verdict
    assert (verdict["exit_code"], verdict["culprit"]["exit_code"], len(verdict["restarts"])) == (76, 1, 1)
    assert "the same failure came twice at step 3" in "\n".join(verdict["notes"])


@pytest.mark.parametrize(
    ("round_", "place", "why"),
    [
        (1, "restart_1", "log directory {path}: cannot be written"),
        (2, "restart_2", "log directory {path}: cannot be written"),
        (1, "restart_1/events.jsonl", "{path}: a link is there, where ranklaunch needs a regular file"),
        (1, "restart_1/plan.json", "{path}: a link is there, where ranklaunch needs a regular file"),
    ],
)
def test_a_round_that_cannot_begin_ends_the_job_as_any_failure_does(
    as_process: Starter, tmp_path: Path, round_: int, place: str, why: str
) -> None:
    """Something else than a folder or a file stands in its place."""
    last = tmp_path / "last words"
    last.touch()
    fails = ("0:1:4:told", "1:0:6:exit")[:round_]
    env = {"RANKLAUNCH_TERMINATION_LOG": str(last)}
    job = train(as_process, tmp_path, *fails, env=env)
    job.wait_for_event("spawn")
    path = job.attempt / place
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "go").touch()
    assert job.end() == 78
    verdict = checked_verdict(job.attempt / "verdict.json")
    assert (verdict["outcome"], verdict["exit_code"], len(verdict["restarts"])) == ("failed", 78, round_)
    assert verdict["reason"].startswith(f"restart {round_} cannot begin: {why.format(path=path)}")
    assert verdict["reason"] in last.read_text()
    left = {".reserved", "node_0.sock"} & {name for folder in (job.attempt, *job.attempt.glob("restart_*")) for name in names(folder)}
    assert left == set()
    assert f"failed with exit code 78: {verdict['reason']}" in job.err.text


@needs_root
def test_a_log_folder_that_has_become_read_only_is_the_systems_fault(as_process: Starter, tmp_path: Path) -> None:
    """As a file system does that the kernel has found broken. Started on another host, the job may go on."""
    logs = tmp_path / "logs"
    breaks = f"mount --bind {logs} {logs} && mount -o remount,bind,ro {logs} && exit 7"
    env = {"RANKLAUNCH_MAX_RESTARTS": "2"}
    job = as_process.spawn(1, "sh", "-c", breaks, env=env, outside=("unshare", "--mount"), log_dir=logs)
    assert job.end() == 75
    assert "failed with exit code 75: restart 1 cannot begin: log directory" in job.err.text
    assert "name another" not in job.err.text
    assert job.err.text.count("starting all ranks again") == 1
    assert "not started again: a round that cannot begin is not tried again" in job.err.text


def names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def test_a_stop_request_is_never_followed_by_a_start(as_pid_1: Starter, tmp_path: Path) -> None:
    """While ranks stop after a failure: what decides then is the request."""
    job = train(as_pid_1, tmp_path, "0:0:2:ignore", "0:1:4:exit", env={"RANKLAUNCH_GRACE_S": "3"})
    job.wait_for_event("ending")
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert job.verdict["outcome"] == "stopped"


FAILS_UNSEEN = """
import os, signal, sys, time
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, lambda *_: None)
time.sleep(2)  # within which a launcher's ranks are found
if os.environ["RANK"] == "1":
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid", "dies")
    os._exit(5)
time.sleep(4)
"""


@pytest.mark.launchers
@pytest.mark.parametrize(("restarts", "code"), [(2, 143), (0, 5)])
def test_a_stop_request_that_comes_before_torchrun_has_told_of_a_failure(as_process: Starter, restarts: int, code: int) -> None:
    """Where all would start again, it is the request that decides; where none would, the failure, which came first."""
    program = as_process.folder / "train.py"
    program.write_text(FAILS_UNSEEN)
    env = {"OMP_NUM_THREADS": "1", "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--monitor_interval=5", "RANKLAUNCH_MAX_RESTARTS": str(restarts)}
    job = as_process.run(program, options=("--method", "torchrun", "--slots", 2), env=env, grace_s=20)
    dies = as_process.folder / "dies"
    sleep_until(dies.exists, "the failure", 240)
    sleep_until(lambda: state_of(int(dies.read_text())) in ("Z", ""), "its end")  # of which ranklaunch hears before it does of the signal
    job.send(signal.SIGTERM)
    assert job.end(240) == code, job.err.text
    assert job.verdict["outcome"] == ("stopped" if restarts else "failed")


def test_without_restarts_the_ranks_know_two_variables_more_and_that_is_all(as_process: Starter, tmp_path: Path) -> None:
    job = train(as_process, tmp_path, "0:1:4:exit", restarts=0)
    assert job.end() == 7
    assert "restarts" not in job.verdict
    assert sorted({*os.listdir(job.attempt), "records"}) == [
        "ends.json", "events.jsonl", "plan.json", "rank_0.log", "rank_1.log", "records", "times_0", "verdict.json",
    ]  # fmt: skip


def test_the_id_of_a_job_stays_that_of_its_attempts(as_process: Starter, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        job = as_process.spawn(1, "/bin/sh", "-c", "echo id=$RANKLAUNCH_RUN_ID,$RANKLAUNCH_RESTART_COUNT", log_dir=tmp_path / "logs")
        assert job.end() == 0
        ids += re.findall(r"id=([0-9a-f]{16}),0", job.out.text)
    assert len(ids) == 2
    assert len(set(ids)) == 1


# What is left behind


def test_files_of_dead_ranks_in_shared_memory_go_and_no_others() -> None:
    """Those that they had open, and those named by a pid of theirs; not those of the living, older ones, nor what looks alike."""
    folder, own = Path(cleaning.SHARED), f"rl_test_{os.getpid()}x"
    mine, other, data = folder / f"{own}mine", folder / f"{own}other", folder / f"{own}data"
    program = "import sys, time; files = [open(path, 'a') for path in sys.argv[1:]]; print('ready', flush=True); time.sleep(600)"
    data.write_text("staged before the launch")
    before = cleaning.shared_memory_content()
    rank = subprocess.Popen([sys.executable, "-c", program, mine, other, data], stdout=subprocess.PIPE)
    living = subprocess.Popen([sys.executable, "-c", program, other], stdout=subprocess.PIPE)
    named, alike, padded = (folder / f"rl_test_{name}" for name in (f"{rank.pid}_1", f"{rank.pid}7_1", f"shard-0{rank.pid}"))
    try:
        for process in (rank, living):
            assert process.stdout
            process.stdout.readline()
        named.touch(), alike.touch(), padded.touch()
        held = Held(frozenset({rank.pid}), frozenset(cleaning._files(rank.pid)), before)
        rank.kill()
        rank.wait()
        assert set(cleaning.remove(held)) == {str(mine), str(named)}
        assert all(path.exists() for path in (other, data, alike, padded))
    finally:
        for process in (rank, living):
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()
        for path in (mine, other, data, named, alike, padded):
            path.unlink(missing_ok=True)


def test_what_somebody_has_open_stays_whoever_cannot_be_seen() -> None:
    """As a process of another container does, with which the memory is shared."""
    path = Path(cleaning.SHARED) / f"rl_test_{os.getpid()}_open"
    with path.open("w"):
        assert not cleaning._removed(str(path))
    assert cleaning._removed(str(path))
    assert not path.exists()


def test_logs_of_the_first_and_the_last_rounds_stay(tmp_path: Path) -> None:
    for number in range(1, 9):
        cleaning.prune(str(tmp_path), number)
        (tmp_path / f"restart_{number}" / "evidence").mkdir(parents=True)
        for name in ("rank_0.log", "round.json"):
            (tmp_path / f"restart_{number}" / name).touch()
    kept = {number: sorted(os.listdir(tmp_path / f"restart_{number}")) for number in range(1, 9)}
    assert [number for number in kept if kept[number] == ["round.json"]] == [1, 2, 3]
    assert all(kept[number] == ["evidence", "rank_0.log", "round.json"] for number in range(4, 9))


NPU_SMI = """
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4711          | python                   | 31205                   |
+===========================+===============+====================================================+
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
"""  # as npu-smi info shows it, by Ascend's documentation; no NPU was here to ask


@pytest.mark.parametrize(
    ("kind", "text", "busy"),
    [
        ("gpu", "3\n11\n", ""),
        ("gpu", "3\n20480\n", "device 1 still has 20480 MB in use"),
        ("gpu", "", ""),
        ("npu", NPU_SMI, "NPU 0 still has process 4711"),
        ("npu", NPU_SMI.replace("4711", "    "), ""),
    ],
)  # fmt: skip
def test_what_a_tool_says_of_devices(kind: str, text: str, busy: str) -> None:
    assert cleaning.DEVICE_TOOLS[kind][1](text) == busy


@needs_root
def test_a_checkpoint_that_a_full_file_system_did_not_take(as_process: Starter, tmp_path: Path) -> None:
    """PyTorch does not say that it is full; the program's arguments name the folder."""
    words = "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0"
    fails = f"cat /dev/zero >$0/part 2>/dev/null; echo '{words}'; exit 1"
    folder = tmp_path / "ckpt"
    folder.mkdir()
    mounted = ("unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=64k none '{folder}' && exec \"$@\"", "sh")
    job = as_process.spawn(1, "sh", "-c", fails, folder, env={"RANKLAUNCH_MAX_RESTARTS": "2"}, outside=mounted)
    assert job.end() == 1
    assert not history(job)
    assert f"not started again: the file system of {folder} is full: 100 % of 64.0 KiB used" in "\n".join(job.verdict["notes"])
