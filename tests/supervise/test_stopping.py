"""Being asked to stop: in every phase, by every signal, with ranks that obey and ranks that do not."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter
from testbench.jobs.streams import Stream, tagged
from testbench.places import child
from testbench.waiting import sleep_until

STOPPING = {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129, "SIGQUIT": 131}


@pytest.mark.parametrize(("name", "code"), STOPPING.items())
def test_while_running(as_pid_1: Starter, name: str, code: int) -> None:
    """The ranks get the same signal; the code says which it was."""
    job = as_pid_1.spawn(2, child("sleeper.py"))
    job.out.wait_for("ready", 2)
    job.send(signal.Signals[name])
    verdict = check_end(job, "stopped", code, victims={0: name, 1: name})
    assert re.search(r"ranklaunch: last output: ranks? 0(?: to 1)? \d+ s ago", job.err.text)
    assert verdict["reason"] == f"stopped by {name}"
    assert [event["signal"] for event in job.events if event["event"] == "exit"] == [name, name]


@pytest.mark.parametrize(("number", "name"), [(signal.SIGALRM, "SIGALRM"), (signal.SIGRTMIN + 3, "SIGRTMIN+3")], ids=str)
def test_by_a_signal_that_no_rank_would_catch(as_pid_1: Starter, number: int, name: str) -> None:
    """Such as an alarm that was set before ranklaunch was started: the ranks have their time to save."""
    job = as_pid_1.spawn(2, child("sleeper.py"))
    job.out.wait_for("ready", 2)
    job.send(number)
    verdict = check_end(job, "stopped", 128 + number, victims={0: "SIGTERM", 1: "SIGTERM"})
    assert verdict["reason"] == f"stopped by {name}"


def test_ranks_that_save_and_succeed(as_process: Starter) -> None:
    """A job that was stopped is not a success, whatever its ranks say."""
    job = as_process.spawn(3, child("saves_on_term.py"), "--takes", 0.5)
    job.out.wait_for("ready", 3)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 3
    assert [event["exit_code"] for event in job.events if event["event"] == "exit"] == [0, 0, 0]


SAVES_BADLY = """
import os, signal, sys
code = {ends}[int(os.environ["RANK"])]
def save(number, frame):
    if code == "dies":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    sys.exit(code)
if code != "hears nothing":
    signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while int(os.environ["RANK"]) or not os.path.exists("go"):
    signal.sigtimedwait([], 0.02)
sys.exit(42)
"""


@pytest.mark.parametrize(("code", "outcome"), [(143, "stopped"), (42, "failed")])
def test_ranks_that_fail_while_they_are_being_stopped_are_named(as_process: Starter, tmp_path: Path, code: int, outcome: str) -> None:
    """They did not do what a rank does then, such as saving. The first seven end as many do, the others each with an error of its own."""
    (tmp_path / "train.py").write_text(SAVES_BADLY.format(ends=[0, 0, 143, "dies", "hears nothing", 130, 0, *[1] * 4, 7, 255, 1]))
    job = as_process.spawn(14, tmp_path / "train.py", cwd=tmp_path)
    job.out.wait_for("ready", 14)
    if outcome == "failed":
        (tmp_path / "go").touch()
    else:
        job.send(signal.SIGTERM)
    verdict = check_end(job, outcome, code, culprit={"rank": 0} if outcome == "failed" else None)
    notes = [note for note in verdict["notes"] if "stopped" in note]
    named = [
        f"rank {rank} failed with exit code {7 if rank == 11 else 1} while it was being stopped: see rank_{rank}.log"
        for rank in range(7, 12)
    ]
    assert notes == [*named, "2 more ranks failed while they were being stopped"]
    assert [f"ranklaunch: {note}" for note in notes] == [line for line in job.err.lines if "being stopped" in line]


def test_user_signals_reach_the_ranks_and_stop_nothing(as_pid_1: Starter) -> None:
    """These, and real-time signals, are passed on. SIGTERM comes to each rank once and, when most of the grace is spent, a second time."""
    job = as_pid_1.spawn(2, child("signals.py"), grace_s=2)
    job.out.wait_for("ready", 2)
    for name in ("SIGUSR1", "SIGUSR2", "SIGRTMIN"):
        job.send(signal.Signals[name])
        job.out.wait_for(name, 2)
    assert job.popen.poll() is None
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    for rank in range(2):
        assert job.log(rank).split() == [b"ready", b"SIGUSR1", b"SIGUSR2", b"SIGRTMIN", b"SIGTERM", b"SIGTERM"]


def test_from_the_terminal(as_process: Starter) -> None:
    """^C reaches ranklaunch, and through it each rank exactly once. What it says comes too where who is in the background may not write."""
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[3] |= termios.TOSTOP
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    on_terminal = (sys.executable, child("on_terminal.py"))
    job = as_process.spawn(2, child("signals.py"), grace_s=2, stdout=theirs, stderr=theirs, outside=(*on_terminal, os.ttyname(theirs)))
    os.close(theirs)
    screen = Stream(ours)
    screen.wait_for("ready", 2)
    os.write(ours, b"\x03")
    assert job.end() == 130
    screen.wait_for_end()
    for rank in range(2):
        assert job.log(rank).split() == [b"ready", b"SIGINT", b"SIGTERM"]
    assert "[rank 0] ready\r\n" in screen.text
    assert "stopped with exit code 130: stopped by SIGINT\r\n" in screen.text


def test_a_second_interrupt_ends_everything_now(as_process: Starter) -> None:
    job = as_process.spawn(2, child("ignores_term.py"), grace_s=600)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGINT)
    job.err.wait_for("SIGINT: stopping, at most 600 s; a second SIGINT kills everything at once, even while a checkpoint is being saved")
    job.send(signal.SIGINT)
    check_end(job, "stopped", 130, victims={0: "SIGKILL", 1: "SIGKILL"})
    assert "2 processes left: SIGKILL" in job.err.text
    assert "after the grace" not in job.err.text


# In every phase


def stopped_on_import(starter: Starter, module: str, whom: str) -> Job:
    hook = starter.folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(Path(child("stops_on_import.py")).read_text())
    search = ":".join(filter(None, (str(hook), starter.environment.get("PYTHONPATH"))))
    return starter.spawn(2, child("sleeper.py"), env={"PYTHONPATH": search, "STOP_ON_IMPORT": module, "STOP_WHOM": whom})


@pytest.mark.parametrize("module", ["guardian", "planning", "session"])
def test_before_anything_is_read(ranklaunch: Starter, module: str) -> None:
    """From its first import on, a stop request is kept until somebody can act on it."""
    job = stopped_on_import(ranklaunch, module, "itself")
    check_end(job, "stopped", 143, victims={})
    assert not [event for event in job.events if event["event"] == "spawn"]


def test_before_the_supervisor_has_read_anything(as_process: Starter) -> None:
    """The outer of the two processes passes the request on, however early."""
    check_end(stopped_on_import(as_process, "planning", "outer"), "stopped", 143)


def test_while_waiting_for_a_rank_table(as_process: Starter, tmp_path: Path) -> None:
    table = tmp_path / "jobstart_hccl.json"
    table.write_text('{"status": "initializing"}')
    env = {"RANK_TABLE_FILE": str(table), "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2"}
    job = as_process.run(child("sleeper.py"), options=("--method", "ranktable"), env=env)
    job.wait_for_event("wait")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={})
    assert job.out.text == ""


@pytest.mark.parametrize("muster", ["on", "off"])
def test_while_waiting_for_a_host(as_pid_1: Starter, muster: str) -> None:
    """A name server that never answers does not hold the end either."""
    env = {"RANKLAUNCH_HOSTS": "localhost-does-not-exist.invalid,127.0.0.2", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_MUSTER": muster}
    job = as_pid_1.spawn(1, child("sleeper.py"), env=env)
    job.wait_for_event("wait")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={}, timeout=20)


def test_while_preparing(as_process: Starter, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')\n")
    (tmp_path / "ma-pre-start.sh").write_text("echo ready\nsleep 600\n")
    job = as_process.spawn(2, "train.py")
    job.out.wait_for("[ma-pre-start.sh] ready")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert "started" not in job.out.text


def test_while_starting(as_pid_1: Starter) -> None:
    """Every one of 16 ranks asks ranklaunch to stop as soon as it runs, while the others are being started."""
    job = as_pid_1.spawn(16, "sh", "-c", "kill -TERM $PPID; exec sleep 600")
    check_end(job, "stopped", 143)


def test_twice_is_as_once(as_process: Starter) -> None:
    job = as_process.spawn(2, child("saves_on_term.py"), "--takes", 1)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    job.err.wait_for("SIGTERM: stopping")
    job.send(signal.SIGTERM)
    job.send(signal.SIGHUP)
    check_end(job, "stopped", 143, victims={0: "SIGTERM", 1: "SIGTERM"})
    assert job.out.text.count("saved") == 2


def test_after_a_failure_the_failure_stands(as_process: Starter) -> None:
    """A platform that stops the pod while the other ranks are being ended must not hide who failed."""
    job = as_process.spawn(2, child("ignores_term.py"), "--code", 42, "--rank", 1, grace_s=2)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGUSR1)
    job.wait_for_event("ending")
    job.send(signal.SIGTERM)
    check_end(job, "failed", 42, culprit={"rank": 1, "exit_code": 42}, victims={0: "SIGKILL"})


def test_whoever_stops_the_ranks_too_stops_the_job(as_process: Starter) -> None:
    """Slurm signals every process of a job. A rank's end may be seen first; it is no failure all the same."""
    job = as_process.spawn(3, child("saves_on_term.py"), "--takes", 3)
    job.out.wait_for("ready", 3)
    os.kill(job.children[1], signal.SIGHUP)
    job.wait_for_event("exit")
    job.send(signal.SIGHUP)
    verdict = check_end(job, "stopped", 129)
    assert verdict["reason"] == "stopped by SIGHUP"
    assert verdict["culprit"] is None
    assert verdict["stop"]["signal"] == "SIGHUP"
    assert "SIGHUP: stopping, at most " in job.err.text


def test_after_success_the_success_stands(as_pid_1: Starter) -> None:
    """What the program had finished before the signal stays finished."""
    job = as_pid_1.run(child("family.py"), "--stubborn", "--exit", 0, options=("--method", "plain"), grace_s=2)
    job.wait_for_event("ending")
    job.send(signal.SIGTERM)
    check_end(job, "succeeded", 0)


# Ranks that do not obey


@pytest.mark.parametrize("why", ["stopped", "failed"])
def test_ranks_that_ignore_sigterm(as_process: Starter, why: str) -> None:
    """One grace for all 8 together, then SIGKILL; the code is what decided, not what it took."""
    job = as_process.spawn(8, child("ignores_term.py"), "--code", 42, "--rank", 3, grace_s=2)
    job.out.wait_for("ready", 8)
    began = time.monotonic()
    job.send(signal.SIGTERM if why == "stopped" else signal.SIGUSR1)
    killed = dict.fromkeys(range(8), "SIGKILL")
    if why == "stopped":
        check_end(job, "stopped", 143, victims=killed)
    else:
        del killed[3]
        check_end(job, "failed", 42, culprit={"rank": 3, "exit_code": 42}, victims=killed)
    seconds = time.monotonic() - began
    assert 1.9 < seconds < 3 * 2 + 10
    assert "left after the grace of 2 s: SIGKILL" in job.err.text


# Leaders first


def test_workers_live_while_their_leader_saves(as_process: Starter) -> None:
    """A rank that saves a checkpoint on SIGTERM still has its data loading workers, also after another rank has ended."""
    job = as_process.spawn(2, child("data_loader.py"), "--takes", 1, "--rank", 1)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    for rank in range(2):
        assert tagged(job.out, f"[rank {rank}] ").split(b"\n") == [b"ready", b"worker alive", b"worker still alive", b"saved", b""]


def test_workers_live_while_another_rank_has_failed(as_process: Starter) -> None:
    job = as_process.spawn(2, child("data_loader.py"), "--takes", 0.5, "--rank", 1, "--fail", 0)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGUSR1)
    check_end(job, "failed", 42, culprit={"rank": 0})
    assert job.log(1).split(b"\n") == [b"ready", b"worker alive", b"worker still alive", b"saved", b""]


def test_workers_of_a_leader_that_takes_too_long(as_process: Starter) -> None:
    """When most of the grace is spent the workers are told as well: they too may have something to end."""
    job = as_process.spawn(1, child("data_loader.py"), "--takes", 600, "--rank", 0, grace_s=2)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    job.out.wait_for("worker alive")
    sleep_until(lambda: "worker ends" in job.out.text, "the worker was never told")
    check_end(job, "stopped", 143, victims={0: "SIGKILL"})
