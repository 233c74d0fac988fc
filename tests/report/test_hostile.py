"""Whoever wrote what is in the folder: it is shown harmless, and takes no more memory or time than what a job leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import helpers
import pytest
from left_behind import LeftBehind

from ranklaunch.report import assembly, node_events, reading
from ranklaunch.report.formats import prom, text
from ranklaunch.report.node_events import Told
from testbench.judges import formats

EVIL = "\x1b[2J\x1b]0;evil\x07</script>\u202e\x00 HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz"


def event(number: int, kind: str, /, **more: object) -> bytes:
    line = {"event": kind, "monotonic": number / 100, "time": "2026-09-21T14:13:20+00:00", **more}
    return json.dumps(line).encode()


def test_what_is_written_cannot_move_a_terminal_and_tells_no_secret(left: LeftBehind) -> None:
    node = left.node()
    node.tell(0.0, "read", platform=EVIL, method=EVIL, why=EVIL, attempt=1, container_s=None)
    node.tell(0.0, "wait", kind="muster", what=EVIL, timeout_s=1.0).tell(1.0, "spawn", name=EVIL, rank=0, pid=1)
    node.tell(2.0, "trouble", text=EVIL).tell(2.0, "hang", text=EVIL, since="2026-09-21T14:13:20+00:00").ends(3.0, 4.0, EVIL, 1, EVIL)
    (node.folder / "rank_1.log").write_bytes(b"\xff\xfe" + EVIL.encode() + b"\n" + b"x" * 600_000)
    verdict = {
        "outcome": EVIL, "exit_code": 1, "reason": EVIL, "culprit": {"node": 0, "rank": 1, "name": "rank 1", "host": f"h\n{EVIL}",
        "last_lines": [EVIL], "error": {"name": EVIL, "kind": EVIL, "line": EVIL, "meaning": EVIL, "remedy": EVIL}}, "notes": [EVIL],
        "hang": {"signals": [EVIL], "suspects": [{"rank": 1, "node": 0, "why": EVIL, "file": EVIL}]},
    }  # fmt: skip
    (node.folder / "verdict.json").write_text(json.dumps(verdict))
    report = assembly.report(str(left.folder))
    whole_of_it = helpers.call("report", str(left.folder), "--format", "json").json
    formats.check("report", whole_of_it)
    found = [text.shown(report), prom.shown(report), *strings(whole_of_it)]
    assert any("evil" in each for each in found)
    assert [each for each in found if not each.replace("\n", "").isprintable() or "hf_abc" in each] == []
    assert report.outcome == "unfinished"


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (str(key), *strings(each))]
    return [text for each in value for text in strings(each)] if isinstance(value, list) else [value] if isinstance(value, str) else []


WRONG = (
    b"\xff\xfe", b"[" * 100_000, b"5", b"{}", b'{"event": 5}', b'{"event": "read", "time": "yesterday"}', b'{"event": "spawn"}',
    b'{"event": "read", "monotonic": 1e999, "time": []}', b'{"event": ["read"], "time": "2026-09-21T14:13:20"}',
)  # fmt: skip


def test_of_very_many_steps_some_are_passed_over_and_the_last_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_events, "MOST_ADDED", 1000)
    found = Told()
    for number in range(5000):
        found.feed(event(number, "steps", ranks=[[0, 99, 0, number, 0, 0.0]]))
    found.finish()
    steps = found.steps[99].all()
    assert (steps[0].step, steps[-1].step) == (0, 4999)
    assert len(steps) < 50


def test_a_line_without_an_end_has_its_end_shown(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_bytes(b"first\n" + b"x" * 1_000_000 + b"the end\n")
    assert reading.Reader(str(tmp_path)).tail("rank_0.log")[-1].startswith("xxx")


def test_lines_that_are_no_events_are_counted() -> None:
    found = Told()
    for line in WRONG:
        found.feed(line)
    assert (found.spoilt, found.first) == (len(WRONG), None)


def test_events_with_other_values_than_theirs() -> None:
    values: tuple[object, ...] = (None, True, -1, 10**400, "", [], {}, [[1]], [[0, 10**9, 0, 1, 0, 0]], [[9, 0, 0, 1, 0, 0]], [["a"] * 6])
    names = ("kind", "what", "late", "clock_s", "name", "rank", "pid", "ranks", "seconds", "ago_s", "signal", "text", "since", "by")
    for name in node_events._HEARD:
        for value in values:
            found = Told()
            found.feed(event(100, name, **dict.fromkeys(names, value)))
            assert sum(len(each.all()) for each in found.steps.values()) == 0


def test_a_clock_that_cannot_be(left: LeftBehind) -> None:
    """As a node tells it that has written anything: times beyond the calendar's end."""
    for number in (0, 1):
        left.node(number).tell(0.0, "read").tell(1.0, "released", clock_s=1e300 if number else -1e300).ends(2.0, 3.0)
    report = assembly.report(str(left.folder))
    assert 0 < report.began < report.ended < report.began + 10
    assert {node.clock_s for node in report.attempts[0].rounds[0].nodes} == {0.0}


def test_a_plan_with_other_values_than_its_own(left: LeftBehind) -> None:
    node = left.node(0).starts(0.0, 1.0, 2.0).ends(9.0, 10.0)
    path = node.folder / "plan.json"
    plan = {
        "job": {"world_size": 2, "slots": [2]},
        "processes": [{"name": "rank 0", "rank": 0, "log": "rank_0.log", "outputs": {"logs": [{"key": "0"}]}}],
    }
    for odd in (None, True, -1, 1e300, "", "\x1b", [], {}, [[1]], {"a": 1}):
        for changed in changed_once(plan, odd):
            path.write_text(json.dumps(changed), encoding="utf-8")
            assert len(assembly.report(str(left.folder)).attempts) == 1


def changed_once(value: object, odd: object) -> list[object]:
    """The value with each of its parts in turn replaced."""
    if isinstance(value, dict):
        return [odd, *({**value, key: each} for key in value for each in changed_once(value[key], odd))]
    if isinstance(value, list):
        return [odd, *([*value[:at], each, *value[at + 1 :]] for at in range(len(value)) for each in changed_once(value[at], odd))]
    return [odd]


def test_of_very_many_events_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_events, "MOST_NAMES", 100)
    monkeypatch.setattr(node_events, "MOST", 20)
    found = Told()
    for number in range(3000):
        for name in ("spawn", "first output", "exit", "wait", "hang", "trouble", "signal", "evidence"):
            found.feed(event(number, name, name=f"rank {number}", rank=number, kind="k", text=str(number), since=None))
        found.feed(event(number, "saved", seconds=1, ago_s=0))
        found.feed(event(number, "steps", ranks=[[number, number + 3, 0, number, 0, 0], [0, 0, 0, number, 0, 0]]))
    lists = (found.waits, found.hangs, found.troubles, found.signals, found.evidence)
    assert max(map(len, lists)) == 20
    assert max(map(len, (found.spawned, found.wrote, found.exits, found.steps))) == 100
    assert len(found.saved) <= 800
    steps = [seen.step for seen in found.steps[0].all()]
    assert (steps[0], steps[-1], steps == sorted(steps), len(steps) <= node_events.MOST_STEPS + 1) == (0, 2999, True, True)


def test_of_files_too_large_the_beginning_and_the_end_are_read(left: LeftBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    node = left.node().starts(0.0, 1.0, 2.0)
    with (node.folder / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "' + b"y" * 600_000 + b'"}\n')
        file.writelines(event(500_000 + number, "first output", name=f"rank {number}") + b"\n" for number in range(3000))
    node.ends(9.0, 10.0).verdict()
    monkeypatch.setattr(reading, "EVENTS", 256 * 1024)
    report = assembly.report(str(left.folder))
    assert (report.outcome, report.attempts[0].rounds[0].released is not None, report.attempts[0].rounds[0].ended is not None) == (
        "succeeded", True, True,
    )  # fmt: skip
    assert "were read" in report.troubles[0]


def test_what_is_no_file_is_not_waited_for(left: LeftBehind, tmp_path: Path) -> None:
    left.node(0).starts(0.0, 1.0, 2.0).ends(9.0, 10.0).verdict()
    other = left.folder / "node_1" / "attempt_1"
    other.mkdir(parents=True)
    os.mkfifo(other / "events.jsonl")
    (other / "evidence" / "node_1" / "\u00b2").mkdir(parents=True)
    (other / "plan.json").symlink_to("/dev/zero")
    (other / "verdict.json").mkdir()
    (left.folder / "again").symlink_to(left.folder)
    report = assembly.report(str(left.folder))
    assert report.outcome == "succeeded"
    assert sum("a FIFO" in each or "a link" in each or "a folder" in each for each in report.troubles) == 3
