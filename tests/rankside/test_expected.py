"""The comparison itself: it takes records that are right, and names what is wrong in others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rankside import running
from rankside.expected import MOST_BYTES, Expected, raised

Make = Callable[..., None]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a record of a process; ranks 0 and 1 are pids 10 and 11, and their records and files are there."""
    folder = tmp_path / "logs" / "attempt_1" / "records" / "node_0"
    folder.mkdir(parents=True)

    def record(kind: str, pid: int, number: int | None = None, **data: Any) -> None:
        name = f"{kind}-0-{pid}-500" + (f"-{number}" if number else "") + ".json"
        (folder / name).write_text(json.dumps({"record": kind, "pid": pid, "start": 500, **data}))

    for rank in (0, 1):
        (tmp_path / f"pid-{rank}").write_text(str(10 + rank))
        record("rank", 10 + rank, variables={"RANK": str(rank)}, launcher="ranklaunch", top={"pid": 10 + rank})
    return record


def exception(type: str, message: str, function: str = "main", link: str = "", library: object = None) -> dict[str, Any]:
    frames = [{"file": "train.py", "line": 1, "function": function}]
    return {"type": type, "message": message, "link": link, "frames": frames, "library": library}


def differences(folder: Path, *expected: Expected, method: str = "spawn") -> list[str]:
    return running.differences(folder, expected, method, {0: 0, 1: 0})


NAN = {"from": "main", "thread": "MainThread", "chain": [exception("ValueError", "loss is nan")]}


def test_what_is_right(make: Make, tmp_path: Path) -> None:
    make("exception", 11, 1, **NAN)
    make("exception", 12, 1, **{**NAN, "from": "process"})
    right = (
        raised("ValueError", "loss is nan", function="main", links=(), in_library=False),
        raised("ValueError", "loss...", source="process", by="child"),
        raised("OSError", optional=True),
    )
    assert differences(tmp_path, *right) == []


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (raised("KeyError", "loss is nan"), "type is 'ValueError'"),
        (raised("ValueError", "loss"), "message is 'loss is nan'"),
        (raised("ValueError", "loss is nan", source="thread"), "from is 'main'"),
        (raised("ValueError", "loss is nan", by="child"), "it is the rank's"),
        (raised("ValueError", "loss is nan", function="step"), "user's code is 'main'"),
        (raised("ValueError", "loss is nan", in_library=True), "library is None"),
        (raised("ValueError", "loss is nan", links=(("cause", "OSError", ""),)), "its links are []"),
        (raised("ValueError", "loss is nan", times=2), "missing"),
    ],
)
def test_what_is_wrong_is_named(make: Make, tmp_path: Path, expected: Expected, said: str) -> None:
    make("exception", 11, 1, **NAN)
    assert any(said in line for line in differences(tmp_path, expected))


def test_what_is_too_much_is_named(make: Make, tmp_path: Path) -> None:
    make("exception", 10, 1, **NAN)
    (line,) = differences(tmp_path)
    assert line.startswith("too much: exception-0-10-500-1.json (rank 0)")


def test_ranks_and_launchers(make: Make, tmp_path: Path) -> None:
    make("rank", 12, variables={"RANK": "1"}, launcher="", top={"pid": 11})
    make("launcher", 13, name="torchrun")
    wrong = "\n".join(differences(tmp_path, method="spawn"))
    assert "rank records of rank 1 are ['rank-0-11-500.json', 'rank-0-12-500.json']" in wrong
    assert "rank-0-12-500.json has the launcher ''" in wrong
    assert "launcher records are of ['torchrun']" in wrong
    assert "no exit record of launcher-0-13-500.json" in wrong


def test_exceptions_of_a_launcher_are_its_own(make: Make, tmp_path: Path) -> None:
    make("launcher", 13, name="torchrun")
    make("exception", 13, 1, **NAN)
    make("exit", 13, code=1)
    assert all("has the launcher 'ranklaunch'" in line for line in differences(tmp_path, method="torchrun"))


@pytest.mark.parametrize(
    ("numbers", "right"),
    [((1, 2, 3), True), ((1, 3), False), (range(1, 17), True), ((*range(1, 9), *range(33, 41)), True), (range(1, 18), False)],
)
def test_numbers(make: Make, tmp_path: Path, numbers: tuple[int, ...], right: bool) -> None:
    for number in numbers:
        make("exception", 11, number, **NAN)
    assert differences(tmp_path, raised("ValueError", times=len(numbers))) != right


def test_files_that_are_no_records(make: Make, tmp_path: Path) -> None:
    make("exception", 11, 1, **NAN, more="x" * MOST_BYTES)
    (tmp_path / "logs/attempt_1/records/node_0/exception-0-11-500-1.json.tmp").write_text("")
    wrong = "\n".join(differences(tmp_path, raised("ValueError")))
    assert "exception-0-11-500-1.json has 65" in wrong
    assert "exception-0-11-500-1.json.tmp is no name of a record" in wrong
