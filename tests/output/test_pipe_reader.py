"""Reading a rank's pipe, without a rank."""

from __future__ import annotations

import os

import pytest

from ranklaunch.ends import collect
from ranklaunch.output import pipe
from ranklaunch.output.pipe import Output, PipeReader, hold_up
from ranklaunch.system.loop import Loop

MOST = 64 * 1024 * 1024


@pytest.fixture
def reader() -> PipeReader:
    readable, writable = pipe.make_pipe()
    os.close(writable)
    loop = Loop()
    return PipeReader(readable, Output((), "", lambda *lines: None, loop.clock, lambda text: None), loop)


def test_draining_ends_however_fast_somebody_writes(reader: PipeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the pipe when it begins is taken, not what a process that outlived the rank goes on to write."""
    taken = 0

    def read(fd: int, size: int) -> bytes:
        nonlocal taken
        taken += size
        assert taken < MOST, "draining does not end"
        return b"x" * size

    monkeypatch.setattr(pipe.os, "read", read)
    reader.drain()
    assert 0 < taken < MOST


def test_each_has_its_turn_when_the_console_is_slow() -> None:
    """More ranks than there is room for at once, each of which always has more to say."""
    loop, shown, room = Loop(), [], 10

    def show(*lines: bytes) -> None:
        shown.append(lines[0][:2])
        if len(shown) % room == 0:
            hold_up(readers, True)
            loop.after(0, lambda: hold_up(readers, False))

    pipes = [pipe.make_pipe() for _ in range(16)]
    outputs = [Output((), f"{rank:02}", show, loop.clock, lambda text: None) for rank in range(16)]
    readers = [PipeReader(pipe[0], made, loop) for pipe, made in zip(pipes, outputs)]
    for _, writable in pipes:
        os.set_blocking(writable, False)
        os.write(writable, b"line\n" * (pipe.PIPE // 5 - 1000))
    hold_up(readers, True)
    hold_up(readers, False)
    loop.run_until(lambda: len(shown) >= 8 * room)
    for reader, (_, writable) in zip(readers, pipes):
        reader.close()
        os.close(writable)
    counts = [shown.count(b"%02d" % rank) for rank in range(16)]
    assert max(counts) - min(counts) <= 1, counts


def test_the_end_of_a_line_that_is_not_kept_whole_is_not_shown() -> None:
    """What it ends with may be the rest of a secret, which nobody would know for one."""
    whole = b"x" * pipe.TAIL + b"n2 by --token\nError: the cause\n"
    assert collect.shown(whole[-pipe.TAIL :]) == "Error: the cause\n"
    assert collect.shown(b"hunter2 --token\nError: the cause\n") == "hunter2 --token\nError: the cause\n"
    assert collect.shown(b"x" * pipe.TAIL) == "x" * pipe.TAIL
    assert collect.shown(b"x" * (pipe.TAIL - 1) + b"\n") == "x" * (pipe.TAIL - 1)
