"""What a supervisor writes beside raw logs, and `ranklaunch logs` of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest

from ranklaunch.output import logs
from ranklaunch.output.pipe import COARSE_S, MOST_PARTS, Output, Times
from ranklaunch.system.loop import Loop


class Job:
    """Outputs of ranks, without ranks, at times that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.trouble: list[str] = []
        self._loop = Loop(lambda: self.now)
        self._folder = folder
        self.times = Times(str(folder), 3, self._loop, lambda clock: 1_795_000_000.0 + clock, lambda text: None)

    def output(self, rank: int, show: Callable[..., None] = lambda *lines: None, aloud: Callable[..., None] | None = None) -> Output:
        path = str(self._folder / f"rank_{rank}.log")
        return Output((path,), "", show, lambda: self.now, self.trouble.append, times=self.times, aloud=aloud)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self._loop.step(0)

    @property
    def told(self) -> str:
        return (self._folder / "times_3").read_text()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "attempt_1").mkdir()
    return Job(tmp_path / "attempt_1")


def test_each_part_has_its_time_and_the_log_stays_raw(job: Job, tmp_path: Path) -> None:
    (tmp_path / "attempt_1" / "rank_1.log").write_bytes(b"of an earlier start\n")
    ranks = [job.output(rank) for rank in range(2)]
    for rank, data, seconds in ((0, b"a\nb", 0.0), (1, b"c\n", 0.5), (0, b" goes on\n", 0.0004), (0, b"at once\n", 1), (1, b"d\n", 1)):
        ranks[rank].feed(data)
        job.later(seconds)
    job.times.close()
    assert job.told.splitlines() == [
        "f 0 rank_0.log", "f 1 rank_1.log", "0 3 1795000100000000", "1 22 1795000100000000",
        "0 20 1795000100500000", "1 24 1795000101500400",
    ]  # fmt: skip
    assert (tmp_path / "attempt_1" / "rank_0.log").read_bytes() == b"a\nb goes on\nat once\n"
    (tmp_path / "attempt_1" / "verdict.json").touch()
    shown = helpers.call("logs", str(tmp_path)).out.splitlines()
    assert shown == [f"[rank {rank}] {line}" for rank, line in (
        (0, "a"), (1, "of an earlier start"), (1, "c"), (0, "b goes on"), (0, "at once"), (1, "d")
    )]  # fmt: skip


def test_many_small_parts_have_coarser_times(job: Job) -> None:
    rank = job.output(0)
    for _ in range(2 * MOST_PARTS):
        rank.feed(b"x\n")
        job.now += 0.0011
    job.later(1)
    fine = job.told.count("\n")
    for _ in range(2 * MOST_PARTS):
        rank.feed(b"x\n")
        job.now += 0.0011
    job.times.close()
    assert fine > MOST_PARTS
    assert job.told.count("\n") - fine < 2 * MOST_PARTS * 0.0011 / COARSE_S + 2


def test_times_that_cannot_be_written_change_nothing(job: Job, tmp_path: Path) -> None:
    (tmp_path / "attempt_1" / "times_3").symlink_to("/dev/full")
    rank = job.output(0)
    rank.feed(b"one\n")
    job.later(1)
    rank.feed(b"two\n")
    job.later(1)
    job.times.close()
    assert (tmp_path / "attempt_1" / "rank_0.log").read_bytes() == b"one\ntwo\n"
    assert job.trouble == []


def test_a_full_disk_ends_them_and_nothing_else(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line fits in part."""
    rank = job.output(0)
    monkeypatch.setattr(logs.os, "write", lambda fd, data: REAL_WRITE(fd, data[:20]))
    rank.feed(b"one\n")  # two bytes at a time would do as well: a log is written until it is whole
    job.later(1)
    monkeypatch.undo()
    rank.feed(b"two\n")
    job.times.close()
    assert job.told == "f 0 rank_0.log\n0 4 1"
    (tmp_path / "attempt_1" / "verdict.json").touch()
    shown = helpers.call("logs", str(tmp_path))
    assert shown.out.splitlines() == ["[rank 0] one", "[rank 0] two"]
    assert "its logs have no times" in shown.err


REAL_WRITE = os.write


def test_lines_that_no_file_takes_are_shown_whatever_is_left_out(job: Job) -> None:
    shown: list[bytes] = []
    rank = job.output(0, aloud=lambda *lines: shown.extend(lines))
    rank.feed(b"one\n")
    os.close(rank._files[0][1])
    full = os.open("/dev/full", os.O_WRONLY)
    rank._files[0] = (rank._files[0][0], full)
    rank.feed(b"two\n")
    assert b"".join(shown) == b"two\n"
    assert "the disk is full" in job.trouble[0]
