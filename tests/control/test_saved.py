"""Whether a stop was saved, by markers before and after it."""

from __future__ import annotations

import os
from pathlib import Path

import helpers
import pytest

from ranklaunch.control import save
from ranklaunch.control.stops import Marks, look, saved
from ranklaunch.system import tree
from testbench.waiting import sleep_until

FILE, WRITTEN, FOLDER = (1, 10, 7, 4), (1, 11, 7, 4), (0, 10, 8, 4096)
BOTH, NONE = (0, 1), ()
CASES: dict[str, tuple[Marks, Marks, tuple[int, ...], tuple[int, ...] | None, str]] = {
    "written again": ({"latest": FILE}, {"latest": WRITTEN}, BOTH, NONE, "yes"),
    "written, and killed afterwards": ({"latest": FILE}, {"latest": WRITTEN}, BOTH, BOTH, "yes"),
    "the first": ({}, {"latest": FILE}, BOTH, NONE, "yes"),
    "a new folder": ({"latest": FILE}, {"latest": FILE, "step_2": FOLDER}, BOTH, NONE, "yes"),
    "a new folder, begun when they were killed": ({}, {"step_2": FOLDER}, BOTH, (1,), "unknown"),
    "a new folder, and how one has ended is not known": ({}, {"step_2": FOLDER}, BOTH, None, "unknown"),
    "written, and how one has ended is not known": ({"latest": FILE}, {"latest": WRITTEN}, BOTH, None, "yes"),
    "killed before": ({"latest": FILE}, {"latest": FILE}, BOTH, (1,), "no"),
    "ended by themselves, no marker of this node": ({"latest": FILE}, {"latest": FILE}, BOTH, NONE, "unknown"),
    "one is gone": ({"latest": FILE, "step_1": FOLDER}, {"latest": FILE}, BOTH, NONE, "unknown"),
    "nobody heard": ({}, {}, NONE, BOTH, "no"),
    "nobody heard, and no markers": (None, None, NONE, BOTH, "no"),
    "no markers": (None, None, BOTH, BOTH, "unknown"),
    "not seen before": (None, {"latest": FILE}, BOTH, BOTH, "unknown"),
    "not seen after": ({"latest": FILE}, None, BOTH, BOTH, "unknown"),
}


@helpers.for_each(CASES)
def test_what_is_known(before: Marks, after: Marks, heard: tuple[int, ...], killed: tuple[int, ...] | None, expected: str) -> None:
    """killed: None where nobody knows."""
    assert saved(before, after, heard, killed or (), any_rank=True, all_well=killed == ()) == expected


def test_a_look_at_markers_that_are_there_and_at_some_that_never_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latest").write_text("1000")
    (tmp_path / "checkpoint-1000").mkdir()
    found = look([str(tmp_path / "lat*"), str(tmp_path / "checkpoint-*"), str(tmp_path / "none")], 60.0)
    assert found is not None
    assert {os.path.basename(path): mark[0] for path, mark in found.items()} == {"latest": 1, "checkpoint-1000": 0}
    monkeypatch.setattr("glob.glob", lambda pattern: os.read(os.pipe()[0], 1))
    assert look(["a mount that hangs"], 0.0) is None
    for pid in list(tree.wanted):
        sleep_until(lambda pid=pid: tree.forsake(pid) is not None, "the end of it")  # type: ignore[misc]


def test_a_file_to_touch_on_a_mount_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "save")
    assert save._touched(path) == ""
    assert os.path.exists(path)
    assert save._touched(f"{path}/x") == f"{path}/x: Not a directory"
    monkeypatch.setattr(save, "TOUCH_S", 0.1)
    monkeypatch.setattr(save, "_touch", lambda path: str(os.read(os.pipe()[0], 1)))
    assert save._touched(path) == f"{path}: its file system did not answer within 0.1 s"
