"""Reading a rank's pipe, without a rank."""

from __future__ import annotations

import os

import pytest

from ranklaunch.supervise import output
from ranklaunch.supervise.loop import Loop
from ranklaunch.supervise.output import Output, PipeReader

MOST = 64 * 1024 * 1024


@pytest.fixture
def reader() -> PipeReader:
    readable, writable = output.make_pipe()
    os.close(writable)
    loop = Loop()
    return PipeReader(readable, Output((), "", lambda lines: None, loop.clock, lambda text: None), loop)


def test_draining_ends_however_fast_somebody_writes(reader: PipeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the pipe when it begins is taken, not what a process that outlived the rank goes on to write."""
    taken = 0

    def read(fd: int, size: int) -> bytes:
        nonlocal taken
        taken += size
        assert taken < MOST, "draining does not end"
        return b"x" * size

    monkeypatch.setattr(output.os, "read", read)
    reader.drain()
    assert 0 < taken < MOST
