"""Exceptions that processes wrote down of themselves, in a report."""

from __future__ import annotations

import json
from typing import Any

import helpers
from left_behind import BEGAN, LeftBehind, OnNode

from ranklaunch.report import assembly
from ranklaunch.report.formats import html, text
from testbench.judges import formats


def put(node: OnNode, kind: str, pid: int, at: float = 1.0, **details: Any) -> None:
    folder = node.folder / "records" / f"node_{node.number}"
    folder.mkdir(parents=True, exist_ok=True)
    value = {"schema": "ranklaunch.record/1", "record": kind, "node": node.number, "host": "h", "pid": pid, "start": 5}
    value.update(time=BEGAN + at, monotonic=at, **details)
    number = f"-{details['number']}" if kind == "exception" else ""
    (folder / f"{kind}-{node.number}-{pid}-5{number}.json").write_text(json.dumps(value))


def starts(node: OnNode, pid: int, rank: int) -> None:
    process = {"pid": 1, "start": 1}
    put(node, "rank", pid, argv=["python", "train.py"], variables={"RANK": str(rank)}, top=process, parent={**process, "argv": []},
        launcher="ranklaunch", python="3.11.2")  # fmt: skip


def raises(
    node: OnNode, pid: int, message: str, at: float = 2.0, source: str = "main", number: int = 1, thread: str = "MainThread"
) -> None:
    frame = {"file": "/w/train.py", "line": 88, "function": "step"}
    cause = {"type": "KeyError", "message": "'loss'", "link": "cause", "frames": [], "library": None}
    chain = [{"type": "ValueError", "message": message, "link": "", "frames": [frame], "library": None}, cause]
    put(node, "exception", pid, at, **{"from": source, "thread": thread, "number": number, "chain": chain})


def block(left: LeftBehind) -> list[str]:
    lines = text.shown(assembly.report(str(left.folder))).splitlines()
    begin = lines.index("exceptions:")
    return lines[begin : lines.index("", begin)]


def test_who_raised_and_when(left: LeftBehind) -> None:
    """Ranks that raised the same once, a launcher last, on all nodes."""
    one, two = left.node(0).starts(0.0, 1.0, 2.0), left.node(1).starts(0.0, 1.0, 2.0)
    for node, rank in ((one, 0), (one, 1), (two, 2)):
        starts(node, 100 + rank, rank)
        raises(node, 100 + rank, "loss is nan", at=5.0 + rank)
    raises(two, 102, "disk", at=4.0, source="thread", number=2, thread="saver")
    put(one, "launcher", 90, argv=["torchrun"], parent={"pid": 1, "start": 1, "argv": []}, name="torchrun", python="3.11.2")
    raises(one, 90, "failed", at=3.0)
    raises(one, 200, "no shard", at=9.0, source="process")
    raises(two, 201, "no port", at=9.0)
    for node in (one, two):
        node.ends(10.0, 11.0, "failed", 1, "rank 0").verdict("failed", 1, "rank 0 failed")
    assert block(left) == [
        "exceptions:",
        "  rank 2 (pid 102), in thread saver, 14:13:24: ValueError: disk at train.py:88 in step; caused by KeyError: 'loss'",
        "  ranks 0-2, first 14:13:25: ValueError: loss is nan at train.py:88 in step; caused by KeyError: 'loss'",
        "  a child process (pid 200) on node 0, 14:13:29: ValueError: no shard at train.py:88 in step; caused by KeyError: 'loss'",
        "  a helper (pid 201) on node 1, 14:13:29: ValueError: no port at train.py:88 in step; caused by KeyError: 'loss'",
        "  torchrun (pid 90) on node 0, 14:13:23: ValueError: failed at train.py:88 in step; caused by KeyError: 'loss'",
        "  (recorded by the processes themselves; an exception explains an end only together with the exit code)",
    ]
    page = html.shown(assembly.report(str(left.folder)))
    assert all(each in page for each in ("Exceptions</h2>", "ValueError: loss is nan", "caused by KeyError", "ranks 0-2, first"))
    found = helpers.call("report", str(left.folder), "--format", "json").json
    formats.check("report", found)
    assert [(each["node"], each["rank"], each["launcher"]) for each in found["exceptions"][-2:]] == [(1, None, ""), (0, None, "torchrun")]


def test_many_are_counted_and_only_those_of_the_last_round_are_shown(left: LeftBehind) -> None:
    first = left.node().starts(0.0, 1.0, 2.0).ends(6.0, 7.0, "failed", 1).round("rank 1 died", "starting all ranks again, restart 1")
    raises(first, 100, "of the first round")
    last = left.node(restart=1).starts(7.0, 8.0, 9.0).ends(12.0, 13.0, "failed", 1)
    for number in range(1, 13):
        raises(last, 100, f"loss {number}", number=number)
    lines = block(left)
    assert (len(lines), lines[-2]) == (11, "  and 4 more")
    assert not any("first round" in line for line in lines)
