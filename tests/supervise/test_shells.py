"""Ranks that are shells, as of a train.sh without exec: signals are for the programs in them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter
from testbench.jobs.processes import command_of, state_of
from testbench.jobs.streams import tagged
from testbench.places import child
from testbench.waiting import sleep_until

# A shell ends with $? of its last command only if it does not become that command.
SCRIPTS = {
    "without exec": "{program}; code=$?; exit $code",
    "with an exit trap": "trap 'echo left' EXIT; {program}; code=$?; exit $code",
    "in another script": "sh -c '{program}; code=$?; exit $code'; code=$?; exit $code",
    "into a pipe": "{program} | tee copy.$RANK; exit 0",
}


def in_shell(starter: Starter, script: str, *words: object, shell: str = "bash", ranks: int = 2, grace_s: float = 60) -> Job:
    program = " ".join(map(str, (sys.executable, *words)))
    return starter.spawn(ranks, shell, "-c", script.format(program=program), grace_s=grace_s)


# Each script by the shell that is less likely to become its last command.
IN_SHELLS = [
    pytest.param(script, shell, id=f"{name}-{shell}", marks=() if shell == "bash" or name == "without exec" else pytest.mark.table)
    for name, script in SCRIPTS.items()
    for shell in ("sh", "bash")
]


@pytest.mark.parametrize(("script", "shell"), IN_SHELLS)
def test_a_program_saves_before_its_shell_ends(as_process: Starter, script: str, shell: str) -> None:
    job = in_shell(as_process, script, child("saves_on_term.py"), "--takes", 1, shell=shell)
    job.out.wait_for("ready", 2)
    began = time.monotonic()
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    for rank in range(2):
        assert job.log(rank).split()[:2] == [b"ready", b"saved"], job.err.text
    assert [event["exit_code"] for event in job.events if event["event"] == "exit"] == [0, 0]
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("shell", "script", "code", "told"),
    [
        ("sh", "echo ready\r\nno-tool\r\n", 127, "train.sh: 2: no-tool\\r: not found"),
        ("bash", "echo ready\r\nno-tool\r\n", 127, "train.sh: line 2: $'no-tool\\r': command not found"),
        ("bash", "echo ready\r\nexit 3\r\n", 2, "train.sh: line 2: exit: 3\\r: numeric argument required"),
        ("sh", f"{sys.executable} train.py\r\n", 2, "train.py\\r': [Errno 2] No such file or directory"),
    ],
)
def test_a_script_with_line_ends_of_windows(as_process: Starter, tmp_path: Path, shell: str, script: str, code: int, told: str) -> None:
    """To dash and to most programs a carriage return is a part of the last word; on a terminal it draws over what stands before it."""
    (tmp_path / "train.sh").write_bytes(script.encode())
    job = as_process.spawn(1, shell, tmp_path / "train.sh")
    verdict = check_end(job, "failed", code, culprit={"rank": 0})
    assert verdict["reason"].endswith(told), verdict
    assert verdict["culprit"]["error"]["name"] == "script-windows-line-ends"
    assert verdict["culprit"]["last_lines"][-1].endswith(told)
    (*_, last) = tagged(job.out, "[rank 0] ").splitlines()
    assert last.decode().endswith(told)


def test_a_shell_ends_after_what_has_passed_the_signal_on(as_process: Starter) -> None:
    """timeout ignores it from then on, and waits for its program."""
    job = in_shell(as_process, "timeout 600 {program}; echo $?; exit 3", child("saves_on_term.py"), "--takes", 3, ranks=1)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.log(0).split() == [b"ready", b"saved", b"0"]
    assert [event["exit_code"] for event in job.events if event["event"] == "exit"] == [3]


def test_each_signal_comes_once(as_process: Starter) -> None:
    job = in_shell(as_process, SCRIPTS["without exec"], child("signals.py"), grace_s=3)
    job.out.wait_for("ready", 2)
    for name in ("SIGUSR1", "SIGUSR2"):
        job.send(signal.Signals[name])
        job.out.wait_for(name, 2)
    assert job.popen.poll() is None
    job.send(signal.SIGINT)
    check_end(job, "stopped", 130)
    for rank in range(2):
        assert job.log(rank).split() == [b"ready", b"SIGUSR1", b"SIGUSR2", b"SIGINT", b"SIGTERM"]


def test_a_signal_that_nobody_catches_is_not_passed_on(as_process: Starter) -> None:
    """It would end the ranks."""
    job = in_shell(as_process, "sleep 600; exit 0", shell="sh")
    # Before it runs, a program has its shell's signal mask, with which it could as well be waiting for the signal.
    sleep_until(lambda: [command_of(pid) for pid in job.family.members()].count("sleep 600") == 2, "the programs of the shells")
    job.send(signal.SIGUSR1)
    job.err.wait_for("SIGUSR1 is not passed on to rank 0, rank 1: no process there catches it, so it would end them")
    assert job.popen.poll() is None
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={0: "SIGTERM", 1: "SIGTERM"})


@pytest.mark.parametrize("shell", ["sh", pytest.param("bash", marks=pytest.mark.table)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_script_does_not_go_on_for_long(as_process: Starter, number: signal.Signals, shell: str) -> None:
    """After the program that was told, it begins with its next command; at SIGINT it waits for that too, unless it dies of it as well."""
    job = in_shell(as_process, "{program}; echo next; sleep 600; exit 0", child("saves_on_term.py"), shell=shell, ranks=1)
    job.out.wait_for("ready")
    began = time.monotonic()
    job.send(number)
    check_end(job, "stopped", 128 + number)
    assert (b"saved" in job.log(0)) == (number == signal.SIGTERM)
    assert time.monotonic() - began < 30


READS = """
import subprocess, sys, time
with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as program:
    for line in program.stdout:
        print(line, end="", flush=True)
time.sleep(2)
print("passed on", flush=True)
sys.exit(program.returncode)
"""
IGNORES = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
@pytest.mark.parametrize(
    ("wrapper", "script"),
    [
        pytest.param(READS, "exec {program}", id="reads"),
        pytest.param(READS, "{program}; code=$?; exit $code", id="reads, in a shell"),
        pytest.param(
            READS,
            f"exec {sys.executable} -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' {{program}}",
            id="reads, in another",
        ),
        pytest.param(IGNORES, "exec {program}", id="ignores"),
    ],
)
def test_a_program_is_told_in_the_place_of_a_wrapper_that_outlasts_it(as_process: Starter, method: str, wrapper: str, script: str) -> None:
    """One that reads what its program writes, as `conda run` does, would take that with it."""
    (as_process.folder / "wrapper.py").write_text(wrapper)
    program = f"{sys.executable} wrapper.py {sys.executable} {child('saves_on_term.py')} --takes 1 --says 200000"
    (as_process.folder / "train.sh").write_text(script.format(program=program))
    options = ("--method", method, "--slots", 2)
    job = as_process.run(as_process.folder / "train.sh", options=options, env={"OMP_NUM_THREADS": "1"}, grace_s=60)
    job.out.wait_for("ready", 2)
    began = time.monotonic()
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 2
    assert job.out.text.count("passed on") == (2 if wrapper == READS else 0)
    assert time.monotonic() - began < 40


def test_a_script_with_a_trap_of_its_own_decides(as_process: Starter) -> None:
    script = "trap 'echo trapped; kill -TERM $!' TERM; {program} & wait; wait; exit 3"
    job = in_shell(as_process, script, child("saves_on_term.py"), "--takes", 1, ranks=1)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.log(0).split() == [b"ready", b"trapped", b"saved"]


def test_a_stopped_program_is_woken(as_process: Starter) -> None:
    """Who was stopped by SIGSTOP does not hear that it is to end, and could save nothing."""
    job = as_process.spawn(2, child("saves_on_term.py"), grace_s=60)
    job.out.wait_for("ready", 2)
    os.kill(job.children[0], signal.SIGSTOP)
    sleep_until(lambda: "T" in map(state_of, job.children), "no rank was stopped")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={0: "SIGTERM", 1: "SIGTERM"})
    assert job.out.text.count("saved") == 2


@pytest.mark.launchers
@pytest.mark.parametrize("method", ["torchrun", "mpirun"])
def test_a_stopped_launcher_is_woken(as_process: Starter, method: str) -> None:
    """mpirun passes on what its ranks write, and in SIGSTOP it would lose what they say while they save."""
    job = as_process.run(child("saves_on_term.py"), options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=60)
    job.out.wait_for("ready", 2)
    launcher = job.children[0]
    os.kill(launcher, signal.SIGSTOP)
    sleep_until(lambda: state_of(launcher) == "T", "it was not stopped")
    began = time.monotonic()
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 2
    assert time.monotonic() - began < 50


SLOW_FILTER = """
exec > >(while IFS= read -r line; do sleep 0.005; echo "$line"; done | tee copy) 2>&1
for i in {1..200}; do echo "line $i"; done
echo "ValueError: no image 17"
exit %d
"""


@pytest.mark.parametrize("code", [0, 7])
def test_a_filter_that_is_slower_than_the_program_reads_all_of_it(as_process: Starter, code: int) -> None:
    """What the rank had said is its own, although it comes later."""
    script = as_process.folder / "train.sh"
    script.write_text(SLOW_FILTER % code)
    job = as_process.run("bash", script, options=("--method", "plain"), grace_s=60)
    assert job.end() == code
    lines = [f"line {number}" for number in range(1, 201)]
    assert job.log(0).decode().splitlines()[:200] == lines
    assert (as_process.folder / "copy").read_text().splitlines()[:200] == lines
    assert code == 0 or job.verdict["culprit"]["error"]["line"] == "ValueError: no image 17"


def test_what_no_longer_reads_is_not_waited_for(as_process: Starter) -> None:
    job = as_process.run("bash", "-c", "echo left | sleep 1000 & sleep 0.2; exit 3", options=("--method", "plain"), grace_s=60)
    began = time.monotonic()
    assert job.end() == 3
    assert time.monotonic() - began < 30
