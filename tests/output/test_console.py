"""Consoles that are slow, gone, full or not a pipe: the job goes on, and whoever stops it is heard."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import signal
import socket
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ranklaunch.output import console
from ranklaunch.output.console import HIGH, LOW, Console
from ranklaunch.system.loop import Loop
from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter
from testbench.jobs.processes import memory_of
from testbench.jobs.streams import Stream, tagged
from testbench.places import child
from testbench.waiting import sleep_until

PRINTS = child("prints.py")
MOST_KB = 80 * 1024


class Pipe:
    """A console that is read as the test wants it. Its writing end is for ranklaunch."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.data = bytearray()

    def give_away(self) -> None:
        """Once ranklaunch has it, so that the end of it can be seen."""
        os.close(self.writing)
        self.writing = -1

    def close(self) -> None:
        for fd in (self.reading, self.writing):
            if fd >= 0:
                os.close(fd)
        self.reading = self.writing = -1

    def read(self, size: int) -> bool:
        data = os.read(self.reading, size)
        self.data += data
        return bool(data)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def started_on(pipe: Pipe, starter: Starter, ranks: int, *words: object, **how: object) -> Job:
    job = starter.spawn(ranks, *words, stdout=pipe.writing, **how)  # type: ignore[arg-type]
    pipe.give_away()
    return job


def written(job: Job, rank: int) -> int:
    try:
        return (job.attempt / f"rank_{rank}.log").stat().st_size
    except (OSError, AssertionError):
        return 0


def wait_until_blocked(job: Job, ranks: int, least: int = 1 << 20) -> None:
    """The console's queue is full and every rank waits to be read: no file grows any more. least: bytes that they have by then."""
    sizes: list[int] = []
    since = time.monotonic()

    def still() -> bool:
        nonlocal sizes, since
        now = [written(job, rank) for rank in range(ranks)]
        if now != sizes:
            sizes, since = now, time.monotonic()
        return sum(now) > least and time.monotonic() - since > 0.5

    sleep_until(still, "the ranks are never blocked")


def most_memory(pids: set[int]) -> int:
    """Of those that still live."""
    return max(memory_of(pid, "VmHWM") for pid in pids)


def test_a_slow_reader(as_process: Starter, pipe: Pipe) -> None:
    """It gets every line, as late as it wants them."""
    job = started_on(pipe, as_process, 2, PRINTS, "--lines", 20_000, "--size", 99)
    while pipe.read(65536):
        time.sleep(0.002)  # its slowness, not a wait
    check_end(job, "succeeded", 0)
    for rank in range(2):
        start = b"[rank %d] " % rank
        shown = b"".join(line[len(start) :] for line in pipe.data.splitlines(keepends=True) if line.startswith(start))
        assert shown == job.log(rank)
        assert shown.count(b"\n") == 20_000


def test_memory_is_bounded(as_process: Starter, pipe: Pipe) -> None:
    """2 ranks write 50 MB each, first at a console that nobody reads, then at one that is read."""
    job = started_on(pipe, as_process, 2, PRINTS, "--lines", 50_000, "--size", 999)
    wait_until_blocked(job, 2)
    pids = {job.pid, job.supervisor}
    assert most_memory(pids) < MOST_KB
    left, size = 2 * 50_000, 0
    while pipe.read(1 << 20):
        left -= pipe.data.count(b"\n")
        size = max(size, most_memory(pids))
        pipe.data.clear()
    check_end(job, "succeeded", 0)
    assert left == 0
    assert 0 < size < MOST_KB
    assert [written(job, rank) for rank in range(2)] == [50_000_000] * 2


def test_memory_is_bounded_with_short_lines(as_process: Starter, pipe: Pipe) -> None:
    """Many small writes cost no more than few large ones."""
    job = started_on(pipe, as_process, 2, child("whispers.py"), grace_s=2)
    wait_until_blocked(job, 2, 100_000)
    assert most_memory({job.pid, job.supervisor}) < MOST_KB
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, timeout=30)


@pytest.mark.parametrize("why", ["stopped", "failed"])
def test_a_console_that_nobody_reads(as_process: Starter, pipe: Pipe, why: str) -> None:
    """A stop request and a failure are acted on within seconds, although ranks and ranklaunch have lines that they cannot get rid of."""
    job = started_on(pipe, as_process, 3, child("floods.py"), "--rank", 1, "--code", 42, grace_s=2)
    wait_until_blocked(job, 3)
    job.send(signal.SIGTERM if why == "stopped" else signal.SIGUSR1)
    began = time.monotonic()
    if why == "stopped":
        check_end(job, "stopped", 143)
    else:
        check_end(job, "failed", 42, culprit={"rank": 1})
    assert time.monotonic() - began < 20
    assert "the console was too slow for" in job.err.text


def test_last_words_after_a_request_to_stop(as_process: Starter, pipe: Pipe) -> None:
    """A reader that is only slow gets what ranks say while they stop: where a checkpoint was saved, a traceback."""
    job = started_on(pipe, as_process, 2, child("saves_on_term.py"), "--says", 300_000)
    while pipe.data.count(b"ready") < 2:
        pipe.read(100)
    job.send(signal.SIGTERM)
    while pipe.read(65536):
        time.sleep(0.01)  # its slowness, not a wait
    check_end(job, "stopped", 143)
    for rank in range(2):
        assert job.log(rank).endswith(b"saved\n")
        assert b"[rank %d] saved\n" % rank in pipe.data
        assert pipe.data.count(b"[rank %d] tells" % rank) == job.log(rank).count(b"tells")


def test_neither_stream_is_read(as_pid_1: Starter, pipe: Pipe) -> None:
    """Both on one pipe, as in a container."""
    job = started_on(pipe, as_pid_1, 2, child("floods.py"), stderr=pipe.writing, grace_s=2)
    wait_until_blocked(job, 2)
    job.send(signal.SIGTERM)
    began = time.monotonic()
    assert job.end() == 143
    assert time.monotonic() - began < 25
    assert job.verdict["outcome"] == "stopped"


def test_nobody_changes_how_others_see_the_pipe(as_process: Starter, pipe: Pipe) -> None:
    """Non-blocking is a property that everybody who shares a pipe would get: a shell's next command would lose lines."""
    keep = os.dup(pipe.writing)
    try:
        job = started_on(pipe, as_process, 1, child("sleeper.py"))
        while b"ready" not in pipe.data:
            pipe.read(100)
        assert not fcntl.fcntl(keep, fcntl.F_GETFL) & os.O_NONBLOCK
        job.send(signal.SIGTERM)
        check_end(job, "stopped", 143)
        assert not fcntl.fcntl(keep, fcntl.F_GETFL) & os.O_NONBLOCK
    finally:
        os.close(keep)


def test_a_reader_that_goes_away(as_process: Starter, pipe: Pipe) -> None:
    """The job ends as it would have; the files have everything."""
    job = started_on(pipe, as_process, 2, PRINTS, "--lines", 20_000, "--size", 99)
    pipe.read(10)
    pipe.close()
    check_end(job, "succeeded", 0)
    assert [written(job, rank) for rank in range(2)] == [20_000 * 100] * 2


def test_a_reader_that_was_never_there(as_process: Starter, pipe: Pipe) -> None:
    os.close(pipe.reading)
    pipe.reading = -1
    job = started_on(pipe, as_process, 2, child("exits.py"), 42, "--rank", 0)
    check_end(job, "failed", 42, culprit={"rank": 0})


def test_a_file(as_process: Starter, tmp_path: Path) -> None:
    """Both streams into one file, behind what it holds."""
    path = tmp_path / "console"
    with open(path, "wb") as file:
        file.write(b"before\n")
        file.flush()
        job = as_process.spawn(2, PRINTS, "--lines", 1000, "--size", 50, stdout=file.fileno(), stderr=file.fileno())
        check_end(job, "succeeded", 0)
    text = path.read_bytes()
    assert text.startswith(b"before\n")
    for rank in range(2):
        start = b"[rank %d] " % rank
        assert b"".join(line[len(start) :] for line in text.splitlines(keepends=True) if line.startswith(start)) == job.log(rank)
    assert text.splitlines()[-1].startswith(b"ranklaunch: succeeded with exit code 0")


def test_a_terminal(as_process: Starter) -> None:
    ours, theirs = pty.openpty()
    job = as_process.spawn(2, PRINTS, "--lines", 1000, "--size", 50, stdout=theirs, stderr=theirs)
    os.close(theirs)
    screen = Stream(ours)
    check_end(job, "succeeded", 0)
    screen.wait_for_end()
    for rank in range(2):
        assert tagged(screen, f"[rank {rank}] ").replace(b"\r\n", b"\n") == job.log(rank)


def test_a_terminal_of_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be opened anew, and others have it as it is: nothing waits for its reader, and nobody sees it changed."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    monkeypatch.setattr(console.os, "open", refuse)
    made = Console(theirs, Loop())
    data = bytes(range(256)) * 4096
    writer = threading.Thread(target=made.write, args=(data,), daemon=True)
    writer.start()
    writer.join(10)
    assert not writer.is_alive(), "it waits for the reader"
    assert 0 < made.pending < len(data)
    assert os.get_blocking(theirs)
    shown = b""
    while len(shown) < len(data):
        shown += os.read(ours, 65536)
        made._loop.step(0)
    assert (shown, made.pending) == (data, 0)
    os.close(ours)
    os.close(theirs)


def refuse(*_: object) -> NoReturn:
    raise PermissionError


@pytest.mark.parametrize("room", range(50, 61))
def test_a_disk_that_is_full_for_a_while(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not take is counted, and no line is torn by what is written when there is room again. A function stands for the disk,
    which takes so many bytes."""
    path = tmp_path / "console"
    path.touch()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def writev(fd: int, pieces: list[memoryview]) -> int:
        data = b"".join(pieces)[: room - path.stat().st_size]
        if not data:
            raise OSError(errno.ENOSPC, "full")
        return os.write(fd, data)

    made = Console(fd, Loop())
    monkeypatch.setattr(console.os, "writev", writev)
    for number in range(20):
        made.write(b"line %03d\n" % number)
    assert (made.pending, made.closed) == (0, False)
    monkeypatch.undo()
    made.write(b"after\n")
    whole, torn = divmod(room, 9)
    expected = [b"line %03d\n" % number for number in range(whole)] + [b"line %03d" % whole][: bool(torn)]
    found = path.read_bytes().splitlines(keepends=True)
    assert found == [*expected[:whole], *([expected[-1][:torn] + b"\n"] if torn else []), b"after\n"]
    assert made.lost == 20 - whole
    os.close(fd)


def test_a_console_on_a_full_disk_says_so(as_process: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = ("unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=64k none '{folder}' && exec \"$@\" >'{folder}/console'", "sh")
    job = as_process.spawn(1, PRINTS, "--lines", 5000, "--size", 99, outside=mounted)
    check_end(job, "succeeded", 0)
    said = re.search(r"ranklaunch: the disk of the console was full: ([0-9]+) lines not shown", job.err.text)
    assert said, job.err.text
    assert 0 < int(said[1]) < 5000
    assert job.log(0).count(b"\n") == 5000


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_a_device(as_process: Starter, device: str) -> None:
    with open(device, "wb") as file:
        job = as_process.spawn(2, PRINTS, "--lines", 10, stdout=file.fileno(), stderr=file.fileno())
        check_end(job, "succeeded", 0)
    assert job.log(1).count(b"\n") == 10


def test_a_socket(as_process: Starter) -> None:
    """As some container runtimes give."""
    ours, theirs = socket.socketpair()
    with theirs:
        job = as_process.spawn(2, PRINTS, "--lines", 5000, "--size", 99, stdout=theirs.fileno())
    console = Stream(ours.detach())
    check_end(job, "succeeded", 0)
    console.wait_for_end()
    for rank in range(2):
        assert tagged(console, f"[rank {rank}] ") == job.log(rank)


def test_room_is_told_whatever_was_written_meanwhile() -> None:
    """A rank that ends while the others are held up has its last words shown; the others are to go on afterwards all the same."""
    readable, writable = os.pipe()
    loop, told = Loop(), []
    console = Console(writable, loop, on_room=lambda: told.append(True))
    console.write(b"x" * (HIGH + (1 << 20)))
    assert console.full
    while console.pending > (LOW + HIGH) // 2:
        os.read(readable, 4096)
        loop.step()
    console.write(b"last words")
    assert console.full
    assert not told
    while not told:
        os.read(readable, 4096)
        loop.step()
    assert console.pending < LOW
    console.give_up()
    os.close(readable)
    os.close(writable)
    os.close(console._fd)
