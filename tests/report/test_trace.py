"""What Perfetto opens: the Trace Event Format, made piece by piece."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import reports

from ranklaunch.report import assembly
from ranklaunch.report.formats import trace
from ranklaunch.report.model import Report

NEEDED = {"X": {"name", "cat", "pid", "tid", "ts", "dur", "args"}, "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
          "M": {"name", "pid", "tid", "args"}}  # fmt: skip
Event = dict[str, Any]


def events(report: Report) -> list[Event]:
    made = json.loads("".join(trace.shown(report)))
    assert made["displayTimeUnit"] == "ms"
    return list(made["traceEvents"])


def judged(found: list[Event]) -> None:
    """Each has what its phase needs; each thread has one name and one process; spans of a thread lie within each other or apart."""
    for event in found:
        assert event.keys() == NEEDED[event["ph"]] | {"ph"}
        assert all(isinstance(event.get(key, 0), int) and event.get(key, 0) >= 0 for key in ("pid", "tid", "ts", "dur"))
        assert event.get("s", "t") in ("g", "p", "t")
    names = [(event["pid"], event["tid"]) for event in found if event["name"] == "thread_name"]
    assert len(names) == len(set(names)) == len({tid for _, tid in names})
    assert {(event["pid"], event["tid"]) for event in found} == set(names)
    assert {event["pid"] for event in found} == {event["pid"] for event in found if event["name"] == "process_name"}
    for _, spans in itertools.groupby(
        sorted((each for each in found if each["ph"] == "X"), key=lambda each: each["tid"]), key=lambda each: each["tid"]
    ):
        over: list[int] = []
        for span in sorted(spans, key=lambda each: (each["ts"], -each["dur"])):
            while over and over[-1] <= span["ts"]:
                over.pop()
            assert not over or span["ts"] + span["dur"] <= over[-1], span
            over.append(span["ts"] + span["dur"])


@pytest.mark.parametrize("name", reports.JOBS)
def test_events_have_their_form(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(events(assembly.report(str(reports.made(name, tmp_path, monkeypatch)))))


def test_rounds_follow_each_other_on_the_threads_of_their_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = events(assembly.report(str(reports.made("restarts", tmp_path, monkeypatch))))
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    lives = [
        (each["ts"], each["dur"], each["args"]["restart"]) for each in found if each["name"] == "rank 3" and names[each["tid"]] == "rank 3"
    ]
    assert lives == [(2_000_000, 14_000_000, 0), (18_500_000, 9_500_000, 1), (29_500_000, 32_500_000, 2)]
    assert [each["ts"] for each in found if each["name"] == "failure"] == [15_000_000] * 2 + [27_000_000] * 2
    assert {each["args"]["name"] for each in found if each["name"] == "process_name"} == {"bert", "node 0 (h0)", "node 1 (h1)"}


def test_a_large_job_comes_in_small_pieces() -> None:
    report = reports.large(64, 8, line='"\\\n</script>')
    assert max(map(len, trace.shown(report))) < 1000
    judged(events(report))
