"""Files that are not what they seem: a FIFO, a link, a device or a folder in a file's place ends in one message, and never hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ranklaunch.system import disk
from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter
from testbench.places import child

KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a link": lambda path: path.symlink_to("elsewhere"),
    "a folder": Path.mkdir,
    "a device": lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)),
}
FILES = ("rank_0.log", "events.jsonl", ".reserved", "plan.json", "verdict.json")


def make(kind: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "elsewhere").write_text("of somebody else")
    try:
        KINDS[kind](path)
    except PermissionError:
        pytest.skip("needs the right to make devices")


@pytest.mark.parametrize("name", FILES)
def test_a_fifo_in_the_folder_of_an_attempt(as_process: Starter, tmp_path: Path, name: str) -> None:
    path = tmp_path / "logs" / "attempt_1" / name
    make("a FIFO", path)
    job = as_process.spawn(1, child("exits.py"), 0, options=("--attempt", "1"))
    assert job.end(20) == 78
    assert f"{path}: a FIFO is there" in job.err.text
    assert "Traceback" not in job.err.text


@pytest.mark.parametrize("kind", ["a FIFO", pytest.param("a folder", marks=pytest.mark.table)])
def test_what_a_run_does_without_is_said(as_process: Starter, tmp_path: Path, kind: str) -> None:
    """It goes on, and says what it does not keep: at once, and again at the end."""
    times, ids = tmp_path / "logs" / "attempt_1" / "times_0", tmp_path / "logs" / "run_ids.json"
    make(kind, times)
    make(kind, ids)
    job = as_process.spawn(1, "echo", "a line", options=("--attempt", "1"))
    check_end(job, "succeeded", 0)
    said = {f"{times} is {kind}, not a file: times of lines are not kept"}
    said.add(f"{ids} is {kind}, not a file: the run's id is not kept, so a later attempt gets a new one")
    assert {event["text"] for event in job.events if event["event"] == "trouble"} == said
    assert all(job.err.text.count(f"ranklaunch: {text}\n") == 2 for text in said)


OTHERS = ("a link", "a folder", "a device")
# Each file, and each kind, once or twice.
WITH_OTHERS = [
    pytest.param(name, kind, marks=() if OTHERS[i % len(OTHERS)] == kind else pytest.mark.table)
    for i, name in enumerate(FILES)
    for kind in OTHERS
]


@pytest.mark.parametrize(("name", "kind"), WITH_OTHERS)
def test_what_else_may_be_there(as_process: Starter, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "logs" / "attempt_1" / name
    make(kind, path)
    job = as_process.spawn(1, child("exits.py"), 0, options=("--attempt", "1"))
    assert job.end(20) == 78
    assert f"{path}: {kind} is there" in job.err.text
    assert (path.parent / "elsewhere").read_text() == "of somebody else"


def test_the_folder_of_logs_may_be_a_link(as_process: Starter, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to("disk")
    job = as_process.spawn(1, child("exits.py"), 0)
    check_end(job, "succeeded", 0)


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_files_that_the_user_names(as_process: Starter, tmp_path: Path, kind: str) -> None:
    make(kind, tmp_path / "named")
    job = as_process.spawn(1, child("exits.py"), 0, options=("--env-file", tmp_path / "named"))
    assert job.end(20) == 78
    assert f"--env-file {tmp_path}/named: {kind} is there" in job.err.text
    hosts = {"RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_SECRET_FILE": str(tmp_path / "named")}
    job = as_process.spawn(1, child("exits.py"), 0, env=hosts)
    assert job.end(20) == 78
    assert f"RANKLAUNCH_SECRET_FILE: {tmp_path}/named: {kind} is there" in job.err.text


def test_a_file_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    make("a link", tmp_path / "key")
    assert disk.read(disk.readable(str(tmp_path / "key")), 100) == b"of somebody else"


def test_temporary_files_take_nobody_elses_place(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    make("a link", tmp_path / f"verdict.json.{os.getpid()}.tmp")
    disk.write(str(path), b"{}", 0o600)
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "elsewhere").read_text() == "of somebody else"
    assert len(list(tmp_path.iterdir())) == 3
