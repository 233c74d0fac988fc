"""Every line of every rank once, whole and in order: in its file as it was written, on the console with its tag."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest

from ranklaunch.output.pipe import BAR_S, LONGEST_LINE, Output
from testbench.jobs.ends import check_end
from testbench.jobs.job import WITHOUT_ANY, WITHOUT_STDERR, WITHOUT_STDIN, WITHOUT_STDOUT, Starter
from testbench.jobs.streams import tagged
from testbench.places import child

PRINTS = child("prints.py")


def lines(number: int, size: int) -> bytes:
    """What prints.py --lines NUMBER --size SIZE prints."""
    return b"".join(f"line {index} ".ljust(size, "x").encode() + b"\n" for index in range(number))


def test_many_lines_of_many_ranks(as_process: Starter) -> None:
    job = as_process.spawn(8, PRINTS, "--lines", 5000, "--size", 113)
    check_end(job, "succeeded", 0)
    expected = lines(5000, 113)
    for rank in range(8):
        assert job.log(rank) == expected
        assert tagged(job.out, f"[rank {rank}] ") == expected
    assert len(job.out.data) == 8 * (len(expected) + 5000 * len("[rank 0] "))
    merged = helpers.call("logs", str(job.log_dir)).out
    assert sorted(merged.splitlines(), key=lambda line: line[:8]) == [
        f"[rank {rank}] {line}" for rank in range(8) for line in expected.decode().splitlines()
    ]  # in the order of each rank


def test_lines_that_end_late(as_process: Starter) -> None:
    """A progress bar, a character in two writes, 3 MB without a line end, no line end at all: nothing lost, no line torn."""
    job = as_process.spawn(2, PRINTS, "--lines", 2, "--cr", "--split-utf8", "--long", 3_000_000, "--no-newline")
    check_end(job, "succeeded", 0)
    states = [b"%3d%% |%-10s|" % (percent, b"#" * (percent // 10)) for percent in range(0, 101, 10)]
    head, bar, middle, end = lines(2, 0), b"".join(b"\r" + state for state in states) + b"\n", "é\n".encode(), b"no newline"
    for rank in range(2):
        assert job.log(rank) == head + bar + middle + b"y" * 3_000_000 + b"\n" + end
        shown = tagged(job.out, f"[rank {rank}] ").split(b"\n")
        assert shown[:2] == head.split(b"\n")[:2]
        at = shown.index("é".encode())
        assert set(shown[2:at]) <= set(states)
        assert shown[2:at].count(states[-1]) == 1
        assert shown[at - 1] == states[-1]
        assert shown[at + 1 :] == [b"y" * 3_000_000, end, b""]


@pytest.mark.parametrize("end", ["", "\\n"], ids=["no line end", "line end"])
def test_a_long_last_line_is_whole(as_process: Starter, end: str) -> None:
    """However the pipe cuts it."""
    size = (1 << 20) + 11
    job = as_process.spawn(2, "sh", "-c", f"echo first; head -c {size} /dev/zero | tr '\\0' y; printf '{end}'")
    check_end(job, "succeeded", 0)
    for rank in range(2):
        assert tagged(job.out, f"[rank {rank}] ") == b"first\n" + b"y" * size + b"\n"


@pytest.mark.parametrize("block", [4096, 100_003, LONGEST_LINE])
@pytest.mark.parametrize("end", [b"", b"\n"], ids=["no line end", "line end"])
def test_where_lines_are_cut_does_not_depend_on_how_they_come(block: int, end: bytes) -> None:
    """Those that are longer than anything that may be kept in memory, between characters."""
    shown: list[bytes] = []
    output = Output((), "> ", lambda *lines: shown.extend(lines), lambda: 0.0, lambda text: None)
    whole, long = b"w" * LONGEST_LINE, "€".encode() * (LONGEST_LINE // 2)
    data = b"first\n" + whole + b"\n" + long + end
    for at in range(0, len(data), block):
        output.feed(data[at : at + block])
    output.finish()
    first, second, *rest = b"".join(shown).splitlines()
    assert first == b"> first"
    assert second == b"> " + whole
    assert [len(line) - 2 for line in rest] == [LONGEST_LINE - LONGEST_LINE % 3, len(long) - (LONGEST_LINE - LONGEST_LINE % 3)]
    assert b"".join(line[2:] for line in rest) == long


class Drawn:
    """An output, and a clock and timers that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.shown: list[bytes] = []
        self.output = Output(
            (), "> ", lambda *lines: self.shown.append(b"".join(lines)), lambda: self.now, lambda text: None,
            after=lambda seconds, call: self.timers.append((self.now + seconds, call)),
        )  # fmt: skip

    def feed(self, data: bytes, later: float = 0.0) -> list[bytes]:
        """What is shown of it, up to so many seconds later."""
        self.shown.clear()
        self.output.feed(data)
        self.now += later
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, call in due:
            call()
        return list(self.shown)


def test_a_progress_bar_that_stops_is_shown_a_while_later_and_once() -> None:
    bar = Drawn()
    assert bar.feed(b"\r10%\r20%", BAR_S / 2) == [b"> 10%\n"]
    assert bar.feed(b"\r30%", BAR_S / 2) == []  # it moved when its timer was half over
    assert bar.feed(b"", BAR_S) == [b"> 30%\n"]
    assert bar.feed(b"", BAR_S) == []
    assert bar.feed(b"\n") == []
    assert bar.feed(b"done\n") == [b"> done\n"]


@pytest.mark.parametrize(
    ("then", "shown"),
    [(b"\n", []), (b" done\n", [b"> 20% done\n"]), (b"\r30%\n", [b"> 30%\n"]), (b"\r20%\nx\n", [b"> x\n"]), (b"\r30%\r40%", [])],
)
def test_what_follows_a_bar_that_had_stopped(then: bytes, shown: list[bytes]) -> None:
    bar = Drawn()
    assert bar.feed(b"\r20%", BAR_S) == [b"> 20%\n"]
    assert bar.feed(then) == shown


def test_lines_that_do_not_redraw_wait_for_their_end() -> None:
    line = Drawn()
    assert line.feed(b"no end", BAR_S) == []
    assert not line.timers


def test_what_is_hushed_is_counted(tmp_path: Path) -> None:
    shown: list[bytes] = []
    output = Output((str(tmp_path / "log"),), "> ", lambda *lines: shown.extend(lines), lambda: 0.0, lambda text: None)
    output.feed(b"one\n")
    output.hush()
    output.feed(b"two\nthree\n")
    output.finish()
    assert (b"".join(shown), output.unshown) == (b"> one\n", 2)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nthree\n"


def test_what_is_hushed_and_has_no_file_is_shown() -> None:
    """/dev/full stands for a log on a full disk."""
    shown: list[bytes] = []
    full = os.open("/dev/full", os.O_WRONLY)
    output = Output((), "> ", lambda *lines: shown.extend(lines), lambda: 0.0, shown.append)  # type: ignore[arg-type]
    output._files = [("log", full)]
    output.hush()
    output.feed(b"one\n")
    output.feed(b"two\n")
    output.finish()
    assert (b"".join(shown[1:]), output.unshown) == (b"> one\n> two\n", 0)


def test_what_both_streams_say(as_process: Starter) -> None:
    """Standard output and standard error in the order in which they were written."""
    job = as_process.spawn(1, "sh", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    check_end(job, "succeeded", 0)
    assert job.log(0) == b"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert tagged(job.out, "[rank 0] ") == job.log(0)


def test_bytes_that_are_no_text(as_process: Starter) -> None:
    job = as_process.spawn(1, "sh", "-c", r"printf '\377\000\376\n\n\033[1m\n'; exit 3")
    check_end(job, "failed", 3, culprit={"last_lines": ["\ufffd\0\ufffd", "\x1b[1m"]})
    assert job.log(0) == b"\xff\0\xfe\n\n\x1b[1m\n"
    assert tagged(job.out, "[rank 0] ") == job.log(0)


def test_a_rank_that_closes_its_output_lives_on(as_process: Starter) -> None:
    job = as_process.spawn(2, PRINTS, "--lines", 1, "--close-stdout", "--then", 600)
    job.out.wait_for("line 0", 2)
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={0: "SIGTERM", 1: "SIGTERM"})


def test_a_tag_of_ones_own(as_process: Starter) -> None:
    options = ("--log-tag", "<{{ node }}/{{ local_rank }} of {{ host }}> ")
    job = as_process.spawn(1, PRINTS, "--lines", 2, options=options)
    check_end(job, "succeeded", 0)
    assert job.out.text == "<0/0 of localhost> line 0 \n<0/0 of localhost> line 1 \n"


def test_a_tag_that_is_computed(as_process: Starter) -> None:
    """By a process of its own, which is gone and was no rank."""
    job = as_process.spawn(3, child("prints.py"), "--lines", 2, "--size", 10, options=("--log-tag", "{{ '%03d' | format(rank) }}| "))
    check_end(job, "succeeded", 0)
    assert sorted(line[:5] for line in job.out.text.splitlines()) == sorted(f"{rank:03}| " for rank in range(3) for _ in range(2))


def test_a_tag_without_end(as_process: Starter) -> None:
    job = as_process.spawn(2, child("prints.py"), options=("--log-tag", "{{ 'x' * 10**9 }}"))
    assert job.end() == 78
    assert "template RANKLAUNCH_LOG_TAG: it takes more than 2 s of CPU time, 256 MiB of memory" in job.err.text
    assert "template RANKLAUNCH_LOG_TAG" in job.verdict["reason"]


CLOSED = {"stdin": WITHOUT_STDIN, "stdout": WITHOUT_STDOUT, "stderr": WITHOUT_STDERR, "all": WITHOUT_ANY}


@pytest.mark.parametrize("closed", CLOSED)
def test_standard_descriptors_that_are_closed(as_process: Starter, closed: str) -> None:
    """Nothing that ranklaunch opens may take their numbers, or the ranks' lines would go there."""
    job = as_process.spawn(2, PRINTS, "--lines", 3, prefix=CLOSED[closed])
    assert job.end() == 0
    assert job.verdict["outcome"] == "succeeded"
    for rank in range(2):
        assert job.log(rank) == lines(3, 0)
        assert tagged(job.out, f"[rank {rank}] ") == (b"" if closed in ("stdout", "all") else lines(3, 0))
    assert ("succeeded with exit code 0" in job.err.text) == (closed not in ("stderr", "all"))


@pytest.mark.parametrize("closed", ["stderr", "all"])
def test_a_failure_with_closed_descriptors(as_process: Starter, closed: str) -> None:
    job = as_process.spawn(2, child("exits.py"), 42, "--rank", 1, prefix=CLOSED[closed])
    assert job.end() == 42
    assert job.verdict["culprit"]["rank"] == 1
