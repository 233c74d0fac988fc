"""A running job is asked how it stands and told to save, by the commands that people type in its containers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranklaunch.supervise.desk.counter import MOST_ASKED, Counter
from ranklaunch.system.loop import Loop
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter, attempts
from testbench.judges import formats
from testbench.places import child
from testbench.waiting import DEADLINE_S, free_port, sleep_until


def asked(*words: object) -> subprocess.CompletedProcess[str]:
    """A command, typed in a container of the job."""
    argv = [sys.executable, "-m", "ranklaunch", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def opened(log_dir: Path, node: int = 0) -> Path:
    """The socket, once it is there."""
    found = lambda: [path / f"node_{node}.sock" for path in attempts(log_dir) if (path / f"node_{node}.sock").exists()]  # noqa: E731
    return Path(sleep_until(found, f"there is no socket below {log_dir}")[0])


def status(log_dir: Path) -> dict[str, Any]:
    found = asked("status", log_dir, "--format", "json")
    assert found.returncode == 0, found.stderr
    formats.check("status", json.loads(found.stdout))
    return dict(json.loads(found.stdout))


def two_nodes(starter: Starter, *words: object, **settings: object) -> list[Job]:
    return [node_of_two(starter, node, port, *words, **settings) for port in [free_port()] for node in (0, 1)]


def node_of_two(starter: Starter, node: int, port: int, *words: object, **settings: object) -> Job:
    log_dir = starter.folder / f"node_{node}"
    shape = ("--hosts", "127.0.0.1,127.0.0.2", "--node", node, "--slots", 1, "--muster-port", port, "--method", "spawn")
    env = {f"RANKLAUNCH_{name.upper()}": str(value) for name, value in settings.items()}
    given = ("--python", sys.executable, "--log-dir", log_dir, "--grace-s", 5, *shape)
    return starter.command("run", *given, "--", *words, env=env, log_dir=log_dir)


def test_status_tells_of_every_rank_of_every_node(as_process: Starter) -> None:
    jobs = two_nodes(as_process, child("saves_on_term.py"))
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    found = status(jobs[1].log_dir)
    assert (found["schema"], found["node"], found["method"]) == ("ranklaunch.status/1", 1, "spawn")
    assert [(node["node"], node["phase"]) for node in found["nodes"]] == [(0, "running"), (1, "running")]
    assert [(rank["rank"], rank["node"], rank["state"], rank["output_bytes"]) for rank in found["ranks"]] == [
        (0, 0, "sleeping", 6), (1, 1, "sleeping", 6),
    ]  # fmt: skip
    assert all(os.path.exists(f"/proc/{rank['pid']}") for rank in found["ranks"])
    assert re.search(r"^ +1 +1 +[0-9]+ +sleeping ", asked("status", jobs[0].log_dir).stdout, re.MULTILINE)
    jobs[0].send(signal.SIGTERM)
    assert [job.end() for job in jobs] == [143, 143]
    assert not [path for job in jobs for path in job.log_dir.glob("**/*.sock")]


def test_status_of_a_job_that_waits_says_for_what(as_process: Starter) -> None:
    job = node_of_two(as_process, 0, free_port(), child("exits.py"), 0)
    opened(job.log_dir)
    (own, other) = status(job.log_dir)["nodes"]
    assert (own["phase"], own["waiting"].partition(",")[0]) == ("starting", "the other nodes of the job")
    assert (other["phase"], other["age_s"]) == ("unknown", None)
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_one_node_that_is_warned_asks_the_ranks_of_all_to_save(as_process: Starter) -> None:
    """And a process that does not catch the signal is not sent it."""
    jobs = two_nodes(as_process, child("signals.py"), save_signal="USR2", save_file=as_process.folder / "save")
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    jobs[1].send(signal.SIGUSR1)
    for job in jobs:
        job.out.wait_for("SIGUSR2", 1)
    assert (as_process.folder / "save").exists()
    again = asked("save", jobs[0].log_dir)
    assert (again.returncode, again.stdout.count("asked a moment ago")) == (0, 2)
    for _ in range(2):
        jobs[0].send(signal.SIGTERM)
    assert all("SIGUSR1" not in job.out.text for job in jobs)
    for job in jobs:
        job.end()


def test_a_rank_that_would_die_of_the_signal_is_named(as_process: Starter) -> None:
    job = as_process.spawn(2, child("sleeper.py"), env={"RANKLAUNCH_SAVE_SIGNAL": "USR1"})
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    found = asked("save", job.log_dir)
    assert "node 0: not rank 0, rank 1: no process there catches SIGUSR1" in found.stdout
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_deadline_becomes_a_stop_in_time(as_process: Starter) -> None:
    job = as_process.spawn(2, child("saves_on_term.py"))
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    assert "the job is stopped in 0 s" in asked("save", job.log_dir, "--deadline", 1).stdout
    assert job.end() == 143
    assert job.out.text.count("saved") == 2
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert {name: stop[name] for name in ("signal", "caught_by", "ended_by_themselves", "killed", "saved")} == {
        "signal": "SIGTERM", "caught_by": [0, 1], "ended_by_themselves": [0, 1], "killed": [], "saved": "unknown",
    }  # fmt: skip


def test_a_stop_that_nobody_heard_has_saved_nothing_and_its_clock_has_an_end(as_process: Starter) -> None:
    job = as_process.spawn(1, child("ignores_term.py"), options=("--grace-s", 2))
    job.out.wait_for("ready", 1)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert (stop["caught_by"], stop["killed"], stop["saved"]) == ([], [0], "no")
    assert re.fullmatch(r"SIGTERM 2\n\.+\nended\n", (job.of_attempt(1) / "stop_clock_0").read_text())


@pytest.mark.parametrize("words", [("save",), ("status", "--format", "yaml"), ("status", "a", "b"), ("save", "--deadline", "soon")])
def test_what_cannot_be_asked(as_process: Starter, words: tuple[str, ...]) -> None:
    """The first: no way to ask this trainer to save is known."""
    job = as_process.spawn(1, child("saves_on_term.py"))
    job.out.wait_for("ready", 1)
    opened(job.log_dir)
    found = asked(*words, *([job.log_dir] if words == ("save",) else []))
    assert (found.returncode, found.stdout) == (78 if words == ("save",) else 2, "")
    assert len(found.stderr.splitlines()) <= 2
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_no_job(tmp_path: Path) -> None:
    found = asked("status", tmp_path)
    assert (found.returncode, len(found.stderr.splitlines())) == (75, 1)


@pytest.mark.parametrize("question", [b"", b"x\n", b"[]\n", b"[" * 50_000 + b"\n", b'{"do": []}\n', b"x" * (2 * MOST_ASKED), b'{"do": "x"'])
def test_whatever_comes_the_counter_answers_the_next(question: bytes, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 50)  # longer than the path of a socket may be
    folder.mkdir()
    loop = Loop()
    counter = Counter(str(folder), "node_0.sock", loop, lambda question, answer: answer({"heard": question.get("do")}))
    assert (folder / "node_0.sock").stat().st_mode & 0o777 == 0o600
    strange = guest(folder)
    try:
        strange.sendall(question)
    except OSError:  # it had enough
        pass
    asks = guest(folder)
    asks.sendall(b'{"do": "it"}\n')
    said = b""
    while b"\n" not in said:
        loop.step(0.1)
        try:
            said += asks.recv(1000)
        except BlockingIOError:
            pass
    assert json.loads(said) == {"heard": "it"}
    counter.close()
    strange.close()
    asks.close()
    assert not list(folder.iterdir())


def guest(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    fd = os.open(folder, os.O_PATH)
    connection.connect(f"/proc/self/fd/{fd}/node_0.sock")
    os.close(fd)
    connection.setblocking(False)
    return connection


def test_stacks_of_both_nodes_and_the_job_goes_on(as_process: Starter) -> None:
    jobs = two_nodes(as_process, child("saves_on_term.py"), stacks="on")
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    both = asked("stacks", jobs[1].log_dir, "--all-nodes").stdout
    assert (both.count("ranks 0-1 (state S):"), both.count("saves_on_term.py")) == (1, 1)
    assert asked("stacks", jobs[1].log_dir).stdout.startswith("rank 1 (state S):\n")
    assert {rank["state"] for rank in status(jobs[0].log_dir)["ranks"]} == {"sleeping"}
    jobs[0].send(signal.SIGTERM)
    assert [job.end() for job in jobs] == [143, 143]
