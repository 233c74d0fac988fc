"""Real training with PyTorch, and torchrun as it is: what it does to exit codes, output and signals, and what ranklaunch makes of it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from testbench.jobs.ends import check_end, checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.places import child
from testbench.waiting import free_port, sleep_until

pytestmark = [pytest.mark.processes, pytest.mark.training]

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LONG_S = 240  # importing torch in four processes on two busy cores


def simulate(starter: Starter, method: str, nodes: int, slots: str, *words: object) -> Job:
    options = ("--nodes", nodes, "--slots", slots, "--method", method, "--python", sys.executable, "--grace-s", 5)
    return starter.command("simulate", *options, "--log-dir", starter.folder / "logs", "--", *words)


def program(method: str, folder: Path, per_node: int) -> tuple[object, ...]:
    checkpoint = ("--epochs", 2, "--batch_size", 64, "--checkpoint", folder / "digits.pt")
    if method == "pytorch":
        return (EXAMPLES / "ddp_spawn_digits.py", "--procs_per_node", per_node, *checkpoint)
    # With a rank table nobody but the program knows of a port. Not its default: another test run on this machine may have that.
    port = ("--port", free_port()) if method == "ranktable" else ()
    return (EXAMPLES / "ddp_digits.py", *checkpoint, *port)


def trained(starter: Starter, method: str, slots: str, epochs: int = 2) -> Job:
    """Two nodes that have trained for two more epochs."""
    job = simulate(starter, method, 2, slots, *program(method, starter.folder, 2))
    assert job.end(LONG_S) == 0, job.err.text + job.out.text
    ranks = {line.split("]")[1].strip(" [") for line in job.out.lines if f"epoch {epochs}/{epochs}" in line}
    world_size = {"1": 2, "2": 4, "1,2": 3}[slots]
    assert ranks == ({"pytorch"} if method == "pytorch" else {f"rank {rank}" for rank in range(world_size)})
    return job


METHODS = [
    pytest.param("torchrun", marks=pytest.mark.launchers),
    pytest.param("pytorch", marks=pytest.mark.launchers),
    pytest.param("ranktable", marks=[pytest.mark.launchers, pytest.mark.table]),  # the example is torchrun's
]


@pytest.mark.parametrize("method", METHODS)
def test_digits_are_learned(as_process: Starter, method: str) -> None:
    job = trained(as_process, method, "2" if method == "pytorch" else "1")
    assert (as_process.folder / "digits.pt").is_file()
    for node in range(2):
        assert checked_verdict(job.log_dir / f"node_{node}" / "attempt_1" / "verdict.json")["outcome"] == "succeeded"


@pytest.mark.launchers
@pytest.mark.table  # a second start of the example is in test_resuming, one with fewer ranks in test_mpi_examples
def test_a_second_start_goes_on_where_the_first_one_ended(as_process: Starter) -> None:
    """On nodes with different slots, and with fewer the second time."""
    trained(as_process, "spawn", "1,2")
    again = trained(as_process, "spawn", "1", epochs=4)
    assert any("resumed" in line and "epoch 2" in line for line in again.out.lines)
    for attempt in (1, 2):
        assert checked_verdict(again.log_dir / "node_1" / f"attempt_{attempt}" / "verdict.json")["outcome"] == "succeeded"


def torchrun(starter: Starter, *words: object, slots: int = 2, **how: Any) -> Job:
    return starter.run(*words, options=("--method", "torchrun", "--slots", slots), **how)


SURVIVES = """
import os, signal, time
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("deaf", "w").close()
print("ready", flush=True)
while not (os.environ["RANK"] == "1" and os.path.exists("deaf")):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_torchruns_one_becomes_the_ranks_own_code_and_a_survivor_has_our_grace(as_process: Starter) -> None:
    """The script has no @record, so torchrun itself writes no error file. Its own grace are thirty seconds."""
    script = as_process.folder / "survives.py"
    script.write_text(SURVIVES, encoding="utf-8")
    job = torchrun(as_process, script, grace_s=2)
    assert job.end(LONG_S) == 137, job.err.text + job.out.text
    culprit = job.verdict["culprit"]
    assert (culprit["rank"], culprit["exit_code"], culprit["signal"], culprit["name"]) == (1, 137, "SIGKILL", "torchrun")
    assert culprit["last_lines"][0] == "ready"
    assert job.verdict["victims"] == [{"node": 0, "rank": 0, "signal": "SIGKILL", "name": "rank 0"}]
    times = {event["event"]: event["monotonic"] for event in job.events}
    assert times["end"] - times["failing"] < 20
    assert job.log(0) == b"ready\n"
    assert "[rank 0] ready" in job.out.lines


def listens(port: int) -> bool:
    """Whether any process does, on any address."""
    tables = [path.read_text() for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for text in tables for line in text.splitlines()[1:])


@pytest.mark.launchers
@pytest.mark.parametrize("ranklaunch", ["pid1"], indirect=True)
def test_a_stop_while_torchrun_waits_for_another_node(ranklaunch: Starter) -> None:
    """torchrun alone ignores it there, as PID 1."""
    port = free_port()
    options = ("--method", "torchrun", "--nodes", 2, "--node", 0, "--slots", 1, "--hosts", "127.0.0.1,127.0.0.2", "--master-port", port)
    # With a muster it would not even be started before the other node is there.
    job = ranklaunch.run(child("sleeper.py"), options=options, grace_s=5, env={"RANKLAUNCH_MUSTER": "off"})
    sleep_until(lambda: listens(port), "torchrun does not listen for the other node", LONG_S)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, timeout=20)
    assert "ready" not in job.out.text


BOTH = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for i in range(20000):
    os.write(1, b"out %d\\n" % i)
    os.write(2, b"err %d\\n" % i)
os.write(1, b"ready\\n")
signal.sigwait([signal.SIGUSR1])
os.write(1, b"came\\n")
signal.pause()
"""


def test_signals_reach_torchruns_ranks_and_their_two_streams_do_not_meet_within_a_line(as_process: Starter) -> None:
    script = as_process.folder / "both.py"
    script.write_text(BOTH, encoding="utf-8")
    job = torchrun(as_process, script)
    job.out.wait_for("ready", count=2, timeout=LONG_S)
    job.send(signal.SIGUSR1)
    job.out.wait_for("came", count=2, timeout=LONG_S)
    job.send(signal.SIGTERM)
    assert job.end(LONG_S) == 143, job.err.text
    for rank in range(2):
        tag = f"[rank {rank}] "
        lines = [line[len(tag) :] for line in job.out.lines if line.startswith(tag)]
        for stream in ("out", "err"):
            assert [line for line in lines if line.startswith(stream)] == [f"{stream} {i}" for i in range(20000)]
        assert len(lines) == 40002
        assert sorted(job.log(rank).decode().splitlines()) == sorted(lines)


@pytest.mark.launchers
def test_the_plan_as_shell_starts_the_same(as_process: Starter) -> None:
    """Pasted into a shell, its ranks meet."""
    options = ("--method", "spawn", "--slots", 2, "--python", sys.executable, "--log-dir", as_process.folder / "logs", "--format", "sh")
    options = (*options, "--master-port", free_port())
    plan = as_process.command("plan", *options, "--", child("sums.py"))
    assert plan.end(LONG_S) == 0
    script = as_process.folder / "plan.sh"
    script.write_text(plan.out.text, encoding="utf-8")
    shell = as_process.run(script, options=("--method", "plain"))
    assert shell.end(LONG_S) == 0, shell.out.text
    assert json.loads((shell.attempt / "verdict.json").read_text())["outcome"] == "succeeded"
    assert sorted(line[line.index("place") :] for line in shell.out.lines if "place" in line) == ["place 0 sum 2", "place 1 sum 2"]


@pytest.mark.launchers
@pytest.mark.parametrize("allowed", [False, True])
def test_a_torchrun_that_starts_fewer_ranks_than_planned_has_failed(as_process: Starter, allowed: bool) -> None:
    """Here a template of the user's tells it another number, which no plan can see."""
    templates = as_process.folder / "templates" / "torchrun"
    templates.mkdir(parents=True)
    (templates / "command.j2").write_text("torchrun --standalone --nproc_per_node=1 --no_python {{ job.program.words }}\n")
    env = {"RANKLAUNCH_TEMPLATES": str(templates.parent), "RANKLAUNCH_FEWER_RANKS": str(allowed).lower()}
    job = torchrun(as_process, "true", env=env)
    if allowed:
        check_end(job, "succeeded", 0, timeout=LONG_S)
    else:
        assert job.end(LONG_S) == 78
        assert job.verdict["outcome"] == "failed"
    assert "1 of 2 ranks were seen" in job.verdict["reason"]


@pytest.mark.launchers
def test_an_mpirun_that_may_start_fewer_ranks_is_not_said_to_have_started_all(as_process: Starter) -> None:
    templates = as_process.folder / "templates" / "mpirun"
    templates.mkdir(parents=True)
    (templates / "command.j2").write_text("mpirun -np 1 {{ job.program.words }}\n")
    env = {"RANKLAUNCH_TEMPLATES": str(templates.parent), "RANKLAUNCH_FEWER_RANKS": "true"}
    job = as_process.run("true", options=("--method", "mpirun", "--slots", 2), env=env)
    check_end(job, "succeeded", 0, timeout=LONG_S)
    assert job.verdict["reason"] == "mpirun succeeded; 0 of 2 ranks were seen, and whether the others ran is not known"


TELLS = """
import os
os.write(1, f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n".encode())
"""


@pytest.mark.launchers
def test_a_torchrun_that_is_the_program_starts_the_ranks_once(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(TELLS)
    options = ("--slots", 2, "--python", sys.executable)
    job = as_process.run("env", "OMP_NUM_THREADS=1", "torchrun", "--nproc_per_node", 2, program, options=options)
    check_end(job, "succeeded", 0, timeout=LONG_S)
    assert sorted(line for line in job.out.lines if line.startswith("rank")) == ["rank 0 of 2", "rank 1 of 2"]
