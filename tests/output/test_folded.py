"""What a job says of itself: each thing once on all nodes together, and what victims write after a failure as one line."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.output.pipe import TAIL, Output
from ranklaunch.supervise import teardown
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit
from testbench.jobs.job import Job, Starter, codes
from testbench.places import child
from testbench.waiting import free_port

LONG_S = 240  # importing torch on two busy cores

# Rank 1 fails; the others write seven lines and a traceback when they are told to end.
FAILS = """
import os, signal, sys, time
rank = os.environ["RANK"]
def on_term(number, frame):
    for i in range(7):
        print("victim", rank, "says", i, flush=True)
    raise KeyError("told to end")
signal.signal(signal.SIGTERM, on_term)
print("ready", flush=True)
if rank == "1":
    time.sleep(1)
    raise ValueError("no header")
time.sleep(600)
"""
ERROR = "ValueError: no header"
# Rank 1 ends first, of what looks like a consequence, for which evidence is taken. The others fail meanwhile, before they are told to end.
FAILS_IN_TURN = """
import os, pathlib, time
rank, pid = os.environ["RANK"], pathlib.Path(__file__).with_name("pid")
print("ready", flush=True)
if rank == "1":
    time.sleep(1)
    pid.with_suffix(".new").write_text(str(os.getpid()))
    pid.with_suffix(".new").rename(pid)
    raise RuntimeError("Connection closed by peer [127.0.0.1]:4711")
while not pid.exists() or os.path.exists(f"/proc/{pid.read_text()}"):
    time.sleep(0.01)
time.sleep(0.2 + 0.1 * int(rank))
raise OSError(f"bad sector {rank}")
"""


def program(starter: Starter, text: str) -> Path:
    path = starter.folder / "train.py"
    path.write_text(text)
    return path


def simulate(starter: Starter, method: str, path: object, **how: Any) -> Job:
    options = ("--nodes", 2, "--slots", 2, "--method", method, "--python", sys.executable, "--grace-s", 5)
    return starter.command("simulate", *options, "--log-dir", starter.folder / "logs", "--", path, **how)


def on_hosts(starter: Starter, path: object) -> list[Job]:
    port = free_port()
    options = ("--hosts", "127.0.0.1,127.0.0.2", "--slots", 2, "--muster-port", port, "--method", "spawn", "--grace-s", 5)
    jobs, env = [], {"RANKLAUNCH_SECRET": "s"}
    for node in range(2):
        logs = starter.folder / f"node_{node}"
        words = ("--python", sys.executable, "--log-dir", logs, "--node", node, "--", path)
        jobs.append(starter.command("run", *options, *words, log_dir=logs, env=env))
    return jobs


def said(*texts: str) -> list[str]:
    """Return ranklaunch's own lines: those that it begins, and those that it quotes."""
    lines = [re.sub(r"^\[node [0-9]+\] ", "", line) for text in texts for line in text.splitlines()]
    return [line for line in lines if line.startswith(("ranklaunch:", "  ")) and "RANKLAUNCH_TEST_ID" not in line]


def of_both(job: Job) -> list[str]:
    return said(job.out.text, job.err.text)


TWO_NODES = pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.training)])


@TWO_NODES
def test_a_healthy_job_says_little(as_process: Starter, method: str) -> None:
    job = simulate(as_process, method, child("environment.py"))
    assert job.end(LONG_S) == 0, job.out.text + job.err.text
    lines = [line for line in of_both(job) if "waiting for the other nodes" not in line]  # on a busy machine
    assert len(lines) <= 6, lines
    assert sum("muster: both nodes are ready" in line for line in lines) == 1
    ends = [line for line in lines if line.startswith("ranklaunch: succeeded with exit code 0: all 4 ranks on 2 nodes succeeded; logs ")]
    assert len(ends) == 2
    assert lines[-1] == f"ranklaunch: succeeded with exit code 0: all 2 nodes succeeded; logs {job.log_dir}"
    assert job.out.text.count("Setting OMP_NUM_THREADS") == (method == "torchrun")
    assert job.out.text.count("*" * 41) == (2 if method == "torchrun" else 0)
    for node in range(2) if method == "torchrun" else ():
        assert "Setting OMP_NUM_THREADS" in (job.log_dir / f"node_{node}" / "attempt_1" / "torchrun.log").read_text()


@TWO_NODES
def test_a_failure_is_told_once(as_process: Starter, method: str) -> None:
    job = simulate(as_process, method, program(as_process, FAILS))
    assert job.end(LONG_S) == 1, job.out.text + job.err.text
    lines = of_both(job)
    assert len(lines) <= 25, lines
    assert sum(line.startswith("ranklaunch: last lines of") for line in lines) == 1
    assert sum(line.strip() == ERROR for line in lines) == 1
    reason = f"ranklaunch: failed with exit code 1: rank 1 on node 0 (127.0.0.1) exited with code 1: {ERROR}"
    assert sum(line.startswith(reason) for line in lines) == 3  # each node, and the simulation
    text = job.out.text
    assert text.count(f"[rank 1] {ERROR}") == 1
    folded = (0, 2, 3) if method == "spawn" else (2, 3)  # torchrun may end rank 0 before ranklaunch hears of rank 1
    assert not any(f"victim {rank} says" in text for rank in folded)
    assert re.search(r"\[node 1\] ranklaunch: not shown, after the failure: [0-9]+ lines of ranks 2-3 \(.*/rank_\*\.log\)", text)
    for node, rank in ((0, 0), (1, 2), (1, 3)):
        assert f"victim {rank} says 6\n" in (job.log_dir / f"node_{node}" / "attempt_1" / f"rank_{rank}.log").read_text()


def test_two_hosts(as_process: Starter) -> None:
    jobs = on_hosts(as_process, child("environment.py"))
    assert codes(jobs) == [0, 0]
    first, second = (said(job.err.text) for job in jobs)
    assert (len(first), len(second)) == (2, 1), first + second
    assert first[0].startswith("ranklaunch: muster: both nodes are ready")


def test_a_failure_on_two_hosts(as_process: Starter) -> None:
    jobs = on_hosts(as_process, program(as_process, FAILS))
    assert codes(jobs) == [1, 1]
    first, second = (said(job.err.text) for job in jobs)
    assert len(first) + len(second) <= 25
    failed = f"ranklaunch: failed with exit code 1: rank 1 on node 0 (127.0.0.1) exited with code 1: {ERROR} (train.py:12)"
    assert [line for line in second if ERROR in line] == [f"{failed}; logs {jobs[1].attempt}"]
    assert f"  {ERROR}" in first


def test_one_node(as_process: Starter) -> None:
    job = as_process.spawn(3, program(as_process, FAILS))
    assert job.end() == 1
    assert "victim" not in job.out.text
    assert re.search(r"ranklaunch: not shown, after the failure: [0-9]+ lines of ranks 0,2 \(.*/rank_\*\.log\)\n", job.err.text)
    assert all(b"victim" in job.log(rank) for rank in (0, 2))


def test_one_victim_is_named_with_its_log(as_process: Starter) -> None:
    job = as_process.spawn(2, program(as_process, FAILS))
    assert job.end() == 1
    log = job.attempt / "rank_0.log"
    assert re.search(rf"not shown, after the failure: [0-9]+ lines of rank 0 \({log}\)\n", job.err.text)


def test_all_lines_of_victims_are_shown_where_that_is_asked_for(as_process: Starter) -> None:
    job = as_process.spawn(2, program(as_process, FAILS), env={"RANKLAUNCH_CONSOLE_VICTIMS": "all"})
    assert job.end() == 1
    assert job.out.text.count("[rank 0] victim 0 says") == 7
    assert "not shown" not in job.err.text


def test_a_stop_request_folds_nothing(as_process: Starter) -> None:
    job = as_process.spawn(2, child("saves_on_term.py"))
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert job.out.text.count("saved") == 2
    assert "not shown" not in job.err.text


def test_ranks_that_fail_by_themselves_are_shown(as_process: Starter) -> None:
    """Rank 0 is to blame: its lines, which came after the first failure, are under the verdict alone."""
    job = as_process.spawn(3, program(as_process, FAILS_IN_TURN))
    assert job.end() == 1
    assert job.verdict["culprit"]["rank"] == 0, job.verdict
    assert job.out.text.count("[rank 2] OSError: bad sector 2\n") == 1
    assert "[rank 0] OSError" not in job.out.text
    assert "\n  OSError: bad sector 0\n" in job.err.text


# Which console has the whole verdict


def shows(node: int, culprit: int | None, *, lost: Sequence[int] = (), agreed: bool = True, nodes: int = 3) -> bool:
    plan = helpers.plan(helpers.local(nodes, index=node), method="spawn")
    who = Culprit(culprit, None, None, 1, None, False, (), "x") if culprit is not None else None
    return teardown.shows_all(plan, who, [Suspect(each, 0.0, "failed", 1, "") for each in lost], agreed)


@helpers.for_each(
    {
        "the culprit's": (2, (), [2]),
        "node 0's without a culprit": (None, (), [0]),
        "node 0's for a node that is lost": (2, (2,), [0, 2]),
    }
)
def test_one_console_has_the_whole_verdict(culprit: int | None, lost: Sequence[int], shown: list[int]) -> None:
    """Node 0 alone knows of nodes that are lost."""
    assert [node for node in range(3) if shows(node, culprit, lost=lost if node == 0 else ())] == shown


def test_each_console_has_the_verdict_where_node_0_has_not_judged() -> None:
    assert all(shows(node, 2, agreed=False) for node in range(3))
    assert shows(0, 0, agreed=False, nodes=1)


# One output


@pytest.fixture
def output(tmp_path: Path) -> Callable[[], tuple[Output, list[bytes]]]:
    def make() -> tuple[Output, list[bytes]]:
        shown: list[bytes] = []
        sink = lambda *lines: shown.append(b"".join(lines))  # noqa: E731
        return Output((str(tmp_path / "log"),), "> ", sink, lambda: 0.0, lambda text: None), shown

    return make


def test_what_was_folded_comes_back_in_order(output: Callable[[], tuple[Output, list[bytes]]]) -> None:
    made, shown = output()
    made.feed(b"one\ntw")
    made.fold()
    made.feed(b"o\nthree\nfo")
    assert (b"".join(shown), made.unshown) == (b"> one\n", 2)
    assert made.unfold() == 0
    made.feed(b"ur\n")
    made.finish()
    assert (b"".join(shown), made.unshown) == (b"> one\n> two\n> three\n> four\n", 0)


def test_what_was_folded_comes_back_after_the_end(output: Callable[[], tuple[Output, list[bytes]]]) -> None:
    made, shown = output()
    made.fold()
    made.feed(b"one\ntwo")
    made.finish()
    assert made.unshown == 2
    assert made.unfold() == 0
    assert b"".join(shown) == b"> one\n> two\n"


def test_of_very_much_the_last_comes_back(output: Callable[[], tuple[Output, list[bytes]]]) -> None:
    made, shown = output()
    made.fold()
    lines = [b"line %05d\n" % i for i in range(2 * TAIL // 11)]
    made.feed(b"".join(lines))
    made.finish()
    before = made.unfold()
    assert b"".join(shown) == b"".join(b"> " + line for line in lines[before:])
    assert 0 < before < len(lines)


def test_stacks_stay_hidden(output: Callable[[], tuple[Output, list[bytes]]]) -> None:
    made, shown = output()
    made.fold()
    made.hide_stacks()
    made.feed(b"Fatal Python error: Aborted\n\nThread 0x1\nwords\n")
    made.unfold()
    made.feed(b"Fatal Python error: Aborted\nmore\n")
    assert b"".join(shown) == b"> words\n> more\n"


def test_nothing_is_folded_twice(output: Callable[[], tuple[Output, list[bytes]]]) -> None:
    made, shown = output()
    made.fold()
    made.feed(b"one\n")
    made.fold()
    made.feed(b"two\n")
    made.unfold()
    made.unfold()
    assert b"".join(shown) == b"> one\n> two\n"
