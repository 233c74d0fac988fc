"""Machines that refuse: no descriptors, no processes, a name server that never answers, signals blocked by whoever started us."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter
from testbench.jobs.users import as_user, needs_root, open_to_all
from testbench.places import child

# One for each worker of a test run: they would take the port from each other.
NAME_SERVER = f"127.0.53.{int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:]) + 1}"
BLOCKED = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); os.execvp(sys.argv[1], sys.argv[1:])"


def test_no_descriptor_left(as_process: Starter) -> None:
    """The ranks that could be started are ended, and trying again may help. A rank takes some three descriptors: wherever it is that
    they run out, ranklaunch itself can still do what the end needs."""
    for limit in (38, 39, 40):
        limited = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")
        job = as_process.spawn(30, child("sleeper.py"), prefix=limited, log_dir=as_process.folder / f"logs_{limit}")
        assert job.end() == 75
        assert "Too many open files" in job.verdict["reason"]
        assert len(job.verdict["victims"]) > 1
        culprit = job.verdict["culprit"]  # the last fork may have met the limit a moment before ranklaunch itself does
        assert culprit is None or culprit["exit_code"] == 75


def test_so_few_descriptors_that_no_rank_starts(as_process: Starter) -> None:
    for limit in range(8, 13):
        limited = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")
        job = as_process.spawn(1, child("sleeper.py"), prefix=limited, log_dir=as_process.folder / f"logs_{limit}")
        assert job.end() == 75
        assert "Traceback" not in job.err.text
        assert "Too many open files" in job.verdict["reason"]


@needs_root
def test_not_even_two_processes(as_process: Starter) -> None:
    """Before there is a supervisor: nothing is known yet, so there is no verdict, but one message."""
    open_to_all(as_process.folder)
    job = as_process.spawn(1, "sleep", 600, prefix=(*as_user(54322), "prlimit", "--nproc=1"))
    assert job.end() == 75
    assert "Traceback" not in job.err.text
    assert "Resource temporarily unavailable" in job.err.text


@needs_root
def test_a_disk_without_room_for_a_file(as_process: Starter) -> None:
    logs = as_process.folder / "full"
    logs.mkdir()
    filled = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o nr_inodes=1 none {logs}; exec "$@"', "sh")
    job = as_process.spawn(1, child("sleeper.py"), prefix=filled, log_dir=logs)
    assert job.end() == 75
    assert "No space left on device" in job.err.text
    assert "Traceback" not in job.err.text


@needs_root
def test_a_port_that_may_not_be_bound(as_process: Starter) -> None:
    """It is said at once: to wait would not help."""
    open_to_all(as_process.folder)
    env = {"RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_MUSTER_PORT": "79"}
    job = as_process.spawn(1, "sleep", 600, env=env, prefix=("unshare", "--net", *as_user(54323)))
    verdict = check_end(job, "failed", 78, timeout=20)
    assert "user id 54323 may not listen on port 79 of this node: Permission denied" in verdict["reason"]


@needs_root
def test_no_process_left(as_process: Starter) -> None:
    """A limit on processes, which a pod has too; here it is a user's."""
    open_to_all(as_process.folder)
    job = as_process.spawn(20, "sleep", 600, prefix=(*as_user(54321), "prlimit", "--nproc=8"))
    verdict = check_end(job, "failed", 75)
    assert "Resource temporarily unavailable" in verdict["reason"]


@pytest.fixture
def silent_name_server(tmp_path: Path) -> Iterator[Path]:
    """A file for /etc/resolv.conf."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind((NAME_SERVER, 53))
        except OSError as error:
            pytest.skip(f"needs the port of a name server: {error}")
        path = tmp_path / "resolv.conf"
        path.write_text(f"nameserver {NAME_SERVER}\noptions timeout:30 attempts:5\n")
        yield path


@needs_root
@pytest.mark.parametrize(
    ("how", "muster"),
    [
        ("stopped", "on"),
        pytest.param("stopped", "off", marks=pytest.mark.table),
        pytest.param("deadline", "on", marks=pytest.mark.table),
        ("deadline", "off"),
    ],
)
def test_a_name_server_that_never_answers(as_process: Starter, silent_name_server: Path, how: str, muster: str) -> None:
    """The system's resolver cannot be interrupted; neither a stop request nor the deadline waits for it."""
    mounted = ("unshare", "--mount", "sh", "-c", f"mount --bind '{silent_name_server}' /etc/resolv.conf && exec \"$@\"", "sh")
    deadline = "600" if how == "stopped" else "3"
    env = {
        "RANKLAUNCH_HOSTS": "node0.example,127.0.0.2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_WAIT_S": deadline, "RANKLAUNCH_MUSTER": muster,
        "RANKLAUNCH_MUSTER_TIMEOUT_S": deadline,
    }  # fmt: skip
    job = as_process.spawn(1, child("sleeper.py"), env=env, outside=mounted)
    job.wait_for_event("wait")
    if how == "stopped":
        job.send(signal.SIGTERM)
        check_end(job, "stopped", 143, timeout=20)
    else:
        verdict = check_end(job, "failed", 75, timeout=20)
        assert "node0.example" in verdict["reason"]


def test_signals_that_were_blocked(as_pid_1: Starter) -> None:
    """A mask is inherited, from a program that forgot to reset it: it must not make a stop request wait."""
    env = {"RANKLAUNCH_HOSTS": "does-not-exist.invalid,127.0.0.2", "RANKLAUNCH_NODE": "1"}
    job = as_pid_1.spawn(1, child("sleeper.py"), env=env, prefix=(sys.executable, "-c", BLOCKED))
    job.wait_for_event("wait")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, timeout=20)


def test_ranks_do_not_inherit_a_mask(as_pid_1: Starter) -> None:
    job = as_pid_1.spawn(1, "grep", "SigBlk", "/proc/self/status", prefix=(sys.executable, "-c", BLOCKED))
    check_end(job, "succeeded", 0)
    assert int(job.log(0).split()[1], 16) == 0


def test_a_log_directory_that_goes_away(as_process: Starter) -> None:
    """Somebody cleans up: the job goes on, and its verdict is there at the end."""
    job = as_process.spawn(2, child("told.py"), "--code", 42, "--rank", 1)
    job.out.wait_for("ready", 2)
    moved = job.log_dir.rename(job.log_dir.with_name("moved"))  # at once: ranklaunch may be writing
    shutil.rmtree(moved, ignore_errors=True)
    job.send(signal.SIGUSR1)
    assert job.end() == 42
    assert "rank 1 exits with 42" in job.out.text
    assert job.verdict["culprit"]["rank"] == 1
    assert f"{job.attempt}, with the logs, was removed or moved while the job ran" in job.err.text


def test_words_that_are_not_text(as_process: Starter) -> None:
    """Arguments, variables and folders arrive byte for byte."""
    folder = Path(os.fsdecode(os.fsencode(as_process.folder) + b"/caf\xe9 it's $HOME\n"))
    folder.mkdir()
    shutil.copy(child("bytes.py"), folder / "train.py")
    value = os.fsdecode(b"\xff\xfe a  b\t'\"\\ $(id) \n")
    words = ("", " ", value, "--", "-m", "{{ job }}", "*")
    job = as_process.spawn(2, folder / "train.py", *words, env={"ODD": value})
    check_end(job, "succeeded", 0)
    seen = json.loads(job.log(0))
    assert [bytes.fromhex(word) for word in seen["argv"]] == [os.fsencode(str(folder / "train.py")), *map(os.fsencode, words)]
    assert bytes.fromhex(seen["ODD"]) == os.fsencode(value)
    json.loads((job.attempt / "plan.json").read_text())


def test_no_grace_at_all(as_process: Starter) -> None:
    job = as_process.spawn(2, child("ignores_term.py"), grace_s=0)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={0: "SIGKILL", 1: "SIGKILL"}, timeout=20)


def test_a_storm_of_signals(as_pid_1: Starter) -> None:
    """None of them takes the place of the one that asks to stop."""
    job = as_pid_1.spawn(2, child("saves_on_term.py"), "--ignores-usr1")
    job.out.wait_for("ready", 2)
    for _ in range(5000):
        job.send(signal.SIGUSR1)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 2


def test_everybody_is_told_at_once(as_process: Starter) -> None:
    """As Slurm and systemd do it: SIGTERM to every process of the job. The code says that it was stopped."""
    job = as_process.spawn(2, child("saves_on_term.py"), "--takes", 0.2)
    job.out.wait_for("ready", 2)
    for pid in job.family.members():
        if pid != job.popen.pid or not job.as_pid_1:
            os.kill(pid, signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 2


@needs_root
def test_a_proc_of_another_namespace(as_process: Starter) -> None:
    """Its numbers are those of strangers: none is taken for the job's."""
    job = as_process.spawn(2, child("exits.py"), 42, "--rank", 1, outside=("unshare", "--pid", "--fork"))
    assert job.end() == 42
    assert "warning: /proc does not show this container's processes" in job.err.text
    assert "processes that the program left behind" not in job.err.text
