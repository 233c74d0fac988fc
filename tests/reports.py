"""Folders of jobs that ended in different ways, and a report of a large one, for what shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from left_behind import BEGAN, LeftBehind, culprit

from ranklaunch.report import model
from ranklaunch.report.model import Accounting, Attempt, Buckets, Job, Mark, Node, OnNode, Process, Report, Round, Seen, Span
from ranklaunch.verdict.model import KnownError, Victim

LINE = "ModuleNotFoundError: No module named 'x'"
IMPORT = KnownError("python-module-not-found", "cause", LINE, "It is not installed.", "Install it.", "https://docs.python.org/3/", "no")
NO_MEMORY = "out of memory, by the kernel's own count"


def _trained(left: LeftBehind, number: int, end: float = 60.0, step: int = 100) -> None:
    """One node up to where it ends; each of its ranks makes a step in half a second."""
    node = left.node(number).starts(0.2 * number, 2.0 + 0.1 * number, 2.5)
    for rank in node.ranks:
        node.tell(5.0, "first output", name=f"rank {rank}")
    for i in range(0, step, 10):
        node.steps(8.0 + i / 2, i + 1)
    for rank in node.ranks:
        log = node.folder / f"rank_{rank}.log"
        log.write_text("".join(f"step {i} of rank {rank}\n" for i in range(300)))
        node.tell(end, "exit", name=f"rank {rank}", rank=rank, pid=100 + rank, exit_code=0, signal=None, max_rss_kb=2_000_000)


def success(left: LeftBehind) -> None:
    for number in (0, 1):
        _trained(left, number)
        left.node(number).tell(60.0, "done").ends(60.5, 61.0).verdict()


def import_error(left: LeftBehind) -> None:
    node = left.node(0).starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1, "rank 1")
    (node.folder / "rank_1.log").write_text("one\ntwo\nModuleNotFoundError: No module named 'x'\n")
    last = ("Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "ModuleNotFoundError: No module named 'x'")
    node.verdict("failed", 1, "rank 1 exited with code 1", culprit=culprit(1, host="h0", last_lines=last, error=IMPORT))
    left.node(1).starts(0.0, 1.0, 2.0).ends(3.2, 4.0, "failed", 1, "node 0")


def no_memory(left: LeftBehind) -> None:
    """On node 1 of 3."""
    killed = culprit(3, 1, exit_code=137, signal="SIGKILL", out_of_memory=True, host="h1")
    for number in range(3):
        _trained(left, number, 30.0, 40)
        left.node(number).ends(30.0, 31.0, "failed", 137, "rank 3").verdict("failed", 137, NO_MEMORY, culprit=killed)


def hang(left: LeftBehind) -> None:
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 1).steps(20.0, 16)
    node.tell(40.0, "hang", text="the job hangs; rank 1: stopped", since="2026-09-21T14:13:41+00:00")
    node.stacks(rank_0=["all_reduce", "step"], rank_1=["read", "batches"])
    (node.folder / "rank_1.log").write_text("I read\n")
    suspect = {"rank": 1, "node": 0, "why": "its process is stopped (state T)", "file": "rank_1.stacks.txt"}
    told = {"since": "2026-09-21T14:13:41+00:00", "signals": ["output", "CPU"], "suspects": [suspect]}
    node.ends(41.0, 42.0, "failed", 75, "the job hangs").verdict("failed", 75, "the job hangs", hang=told)


def restarts(left: LeftBehind) -> None:
    for number in (0, 1):
        node = left.node(number).starts(0.0, 1.0, 2.0).steps(5.0, 1).steps(14.0, 10)
        node.ends(15.0, 16.0, "failed", 1).round("rank 1 died", "starting all ranks again, restart 1")
        again = left.node(number, restart=1).starts(16.0, 18.0, 18.5).steps(20.0, 6).steps(26.0, 12)
        again.ends(27.0, 28.0, "failed", 1).round("rank 1 died anew", "starting all ranks again, restart 2")
        last = left.node(number, restart=2).starts(28.0, 29.0, 29.5).steps(31.0, 9).steps(60.0, 40)
        last.ends(61.0, 62.0).verdict()


def lost_node(left: LeftBehind) -> None:
    left.node(0).starts(0.0, 1.0, 2.0).steps(4.0, 1).steps(24.0, 20).ends(30.0, 31.0, "failed", 75).verdict("failed", 75, "node 1 is lost")
    left.node(1).starts(0.0, 1.0, 2.0).steps(4.0, 1).steps(22.0, 18)


def killed(left: LeftBehind) -> None:
    """In the middle: no verdict, and a line that was never finished."""
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 3).steps(9.0, 7)
    with (node.folder / "events.jsonl").open("a") as file:
        file.write('{"event": "steps", "monot')


def missing_node(left: LeftBehind) -> None:
    _trained(left, 0)
    left.node(0).tell(60.0, "done").ends(60.5, 61.0).verdict()


def only_rank_0(left: LeftBehind) -> None:
    """Prints steps; the ranks of node 1 print none."""
    for number in (0, 1):
        node = left.node(number).starts(0.0, 1.0, 2.0)
        for i in range(0 if number else 10):
            node.tell(5.0 + i, "steps", ranks=[[0, 0, 0, 1 + i, 100, 0.0]])
        node.tell(60.0, "done").ends(60.5, 61.0).verdict()


def pause(left: LeftBehind) -> None:
    """After which the job went on; there was an alarm."""
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 1).steps(10.0, 6)
    since = "2026-09-21T14:13:31+00:00"
    silent = "for 4 s nothing has moved on 2 ranks (output, CPU)"
    node.tell(15.0, "hang", text=f"{silent}; hang alarm at 8 s (RANKLAUNCH_HANG_S)", since=since)
    node.tell(19.0, "hang", text=f"the job hangs: {silent}; no rank stands out", since=since)
    node.tell(31.0, "hang", text="it moves again: output", since=None)
    node.steps(32.0, 7).steps(60.0, 36).tell(60.0, "done").ends(60.5, 61.0).verdict()


def aborted(left: LeftBehind) -> None:
    """Ranks of a hang, by the signal that makes Python write its stacks."""
    node = left.node().starts(0.0, 1.0, 2.0).steps(5.0, 1).steps(20.0, 16)
    for rank in node.ranks:
        node.tell(41.5, "exit", name=f"rank {rank}", rank=rank, pid=100 + rank, exit_code=134, signal="SIGABRT", max_rss_kb=None)
        (node.folder / f"rank_{rank}.log").write_text("Fatal Python error: Aborted\n")
    suspect = {"rank": 1, "node": 0, "why": "it is elsewhere than the others", "file": None}
    told = {"since": "2026-09-21T14:13:41+00:00", "signals": ["output", "CPU"], "suspects": [suspect]}
    victims = tuple(Victim(0, rank, "SIGABRT", f"rank {rank}") for rank in node.ranks)
    node.ends(41.0, 42.0, "failed", 75, "the job hangs").verdict("failed", 75, "the job hangs", hang=told, victims=victims)


def long_lines(left: LeftBehind) -> None:
    """In all that a page shows of a failure."""
    line = f"RuntimeError: {'/a/path/without/a/blank' * 30} {'and words with blanks ' * 20}end of it"
    error = KnownError("python-runtime-error", "cause", line, line, line, f"https://docs.python.org/{'x' * 300}", "yes")
    node = left.node().starts(0.0, 1.0, 2.0).ends(3.0, 4.0, "failed", 1, "rank 1")
    node.tell(3.0, "exit", name="rank 1", rank=1, pid=101, exit_code=1, signal=None, max_rss_kb=2_000_000)
    (node.folder / "rank_1.log").write_text(f"{line}\n" * 9)
    rules = [{"rule": "known-error", "says": line, "of": {"node": 0, "rank": 1, "file": "", "line": 0}}]
    blamed = culprit(1, host=f"h0{'.example' * 20}", last_lines=(line,) * 5, error=error)
    node.verdict("failed", 1, f"rank 1 exited with code 1: {line}", culprit=blamed, because=rules, notes=(line,))


JOBS: dict[str, Callable[[LeftBehind], None]] = {
    "success": success, "import error": import_error, "no memory": no_memory, "hang": hang, "restarts": restarts, "lost node": lost_node,
    "killed": killed, "missing node": missing_node, "only rank 0": only_rank_0, "pause": pause, "aborted": aborted,
    "long lines": long_lines,
}  # fmt: skip
# What the page of each must say.
SAID = {
    "success": ("Succeeded", "exit code 0", "all is well", "bert", "productive", "Node 1", "1.9 GiB"),
    "import error": (
        "Failed", "rank 1 on node 0 (h0)", LINE, "Install it.", "It is not installed.", "the job ends the same way.",
        'File "train.py", line 1, in <module>',
    ),
    "no memory": (NO_MEMORY, "rank 3 on node 1 (h1)", "killed by SIGKILL; the kernel", "what a pity", "failed first"),
    "hang": (
        "the job hangs", "Nothing moved since 2026-09-21 14:13:41 UTC (output, CPU)", "its process is stopped (state T)",
        'File "train.py", line 0 in read', 'File "train.py", line 0 in all_reduce', "I read", "stalled",
    ),
    "restarts": ("2 restarts in place", "rank 1 died anew", "starting all ranks again, restart 2", "repeated", "restart gate"),
    "lost node": ("node 1 is lost", "The events of node 1 stop before the end", "gone before the end"),
    "killed": ("Unfinished", "there is no verdict;"),
    "missing node": ("No files of node 1 are in this folder", "left no files"),
    "only rank 0": ("running, no steps seen", "The seconds of a step are known for 1 rank."),
    "pause": (
        "Nothing moved for 20.0 s, from 2026-09-21 14:13:31 UTC on; then the job went on.", "It had raised the alarm.", "moves again",
    ),
    "aborted": (
        "ended by SIGABRT, sent by ranklaunch to get its stack", "stacks at its end come from SIGABRT, sent by ranklaunch to get them",
    ),
    "long lines": ("end of it", "RANKLAUNCH_MAX_RESTARTS=3"),
}  # fmt: skip


def made(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of one of these jobs."""
    left = LeftBehind(folder, monkeypatch, nodes=3 if name == "no memory" else 2)
    JOBS[name](left)
    return left.folder


def large(nodes: int, slots: int, steps: int = 16, line: str = "", lines: int = 2) -> Report:
    """Of a job that has failed: rank 5 was slow, and rank 7 of node 0 stopped before the others. line: in each text."""
    on_nodes = tuple(_node(node, slots, steps, line) for node in range(nodes))
    began, ended = BEGAN, BEGAN + 100
    log = f"node_0/rank_7.log{line}"
    blamed = model.Culprit("rank 7", 0, 7, f"h0{line}", exit_code=1, last_lines=(f"died{line}",) * 40, log=log)
    last = Round(
        0, "failed", began, began + 2, began + 3, began + 5, began + 8, began + 90, ended, 1, f"it died{line}", blamed, nodes=on_nodes,
        last=nodes - 1, late=f"muster: node {nodes - 1} came last{line}", best=(0, steps),
    )  # fmt: skip
    buckets = Buckets(startup_s=8.0, productive_s=82.0, stopping_s=10.0)
    timeline = (Span("startup_s", began, began + 8), Span("productive_s", began + 8, began + 90), Span("stopping_s", began + 90, ended))
    told = Accounting(100.0, buckets, True, 0.82, 8.0, (), 1)
    notes = (line,) if line else ()
    attempt = Attempt(
        1, "failed", began, ended, 1, f"it died{line}", blamed, notes=notes, rounds=(last,), timeline=timeline, accounting=told
    )
    job = Job(f"large{line}", "local", "spawn", "", ("python", f"train.py{line}"), nodes * slots, "gpu",
              tuple(Node(node, f"h{node}", slots, node * slots) for node in range(nodes)))  # fmt: skip
    tails = tuple(
        model.Tail(f"node_0/rank_{i}.log", f"rank {i}", (f"{line or 'x'}" * (2000 // len(line or "x")),) * lines) for i in range(16)
    )
    differences = (model.Difference(f"torch{line}", ((f"2.0{line}", (0,)), ("2.1", tuple(range(1, nodes))))),)
    return Report(
        f"/logs{line}", job, "failed", 1, f"it died{line}", blamed, began, ended, (attempt,), (), told, differences, tails, (f"note{line}",)
    )


def _node(node: int, slots: int, steps: int, line: str) -> OnNode:
    at = BEGAN + 0.01 * node
    spans = (Span("start", at, at + 1), Span("muster", at + 1, BEGAN + 2, f"all are here{line}"), Span("launch", BEGAN + 2, at + 8),
             Span("steps", at + 8, BEGAN + 90), Span("stop", BEGAN + 90, BEGAN + 100))  # fmt: skip
    marks = (Mark("released", BEGAN + 2, line), Mark("first step", at + 8), Mark("failure", BEGAN + 90, f"rank 7{line}", 7))
    processes = tuple(_process(node, node * slots + i, steps, line) for i in range(slots))
    return OnNode(node, f"h{node}{line}", f"node_{node}", "ended", at, BEGAN + 100, 0.0, spans, marks, processes, (line,) if line else ())


def _process(node: int, rank: int, steps: int, line: str) -> Process:
    seconds = 7.0 if rank == 5 else 5.0
    seen = tuple(Seen(BEGAN + 8 + seconds * i, 0, i) for i in range(steps // 2 if rank == 7 else steps))
    log = f"node_{node}/rank_{rank}.log{line}"
    times = (BEGAN + 3, BEGAN + 5, BEGAN + 95)
    return Process(f"rank {rank}{line}", rank, node, 100 + rank, *times, 143, f"SIGTERM{line}", 10_000, seen, seconds, log)
