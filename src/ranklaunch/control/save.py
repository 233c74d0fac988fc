"""Requests to save: ranks get the signal and the file that their trainer knows, and go on."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ranklaunch.plan.model import Save
from ranklaunch.supervise.record import Record
from ranklaunch.system.bounded import Apart
from ranklaunch.system.loop import Loop

TOUCH_S = 0.5  # for the file, while nobody else is served; a client waits for 0.8
AGAIN_S = 5.0  # a second request within this time counts as the same: a platform may warn every node of a job
MOST_NAMED = 64

Offer = Callable[[int], tuple[bool, Sequence[str]]]


class Saving:
    """Requests to save. offer: signals rank processes with a handler; returns True if one has a handler, and the names of
    ranks without one. ways: used for the last request."""

    def __init__(self, offer: Offer, loop: Loop) -> None:
        self._offer = offer
        self._loop = loop
        self._last: float | None = None
        self.ways: tuple[str, ...] = ()

    def ask(self, save: Save, record: Record) -> dict[str, Any]:
        """Ask the ranks to save. Return signal and file: the ways of the plan, "" for none. by: the ways with success. deaf: ranks
        without a handler, not signalled. trouble: why the file could not be touched."""
        now = self._loop.clock()
        if self._last is not None and now - self._last < AGAIN_S:
            return {"again": True}
        name = f"SIG{save.signal}" if save.signal else ""
        reached, unheard = self._offer(int(signal.Signals[name])) if name else (False, [])
        deaf = list(unheard)[:MOST_NAMED]
        trouble = _touched(save.file) if save.file else ""
        self.ways = tuple(way for way, done in ((name, reached), (f"touching {save.file}", save.file and not trouble)) if done)
        if self.ways:
            self._last = now
        record.event("save", signal=name, file=save.file, deaf=", ".join(deaf), trouble=trouble)
        return {"signal": name, "file": save.file, "by": list(self.ways), "deaf": deaf, "trouble": trouble}


def _touched(path: str) -> str:
    """Touch a file, in a process apart. Return why that failed, "" for success."""
    try:
        answer = Apart(partial(_touch, path)).answer(TOUCH_S)
    except OSError as error:  # no process or descriptor left
        return f"{path}: {error.strerror}"
    return f"{path}: its file system did not answer within {TOUCH_S:g} s" if answer is None else answer.decode()


def _touch(path: str) -> bytes:
    """Touch a regular file, or one that is not there. Return why that failed, b"" for success."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
        try:
            os.utime(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return f"{path}: {os.strerror(error.errno or errno.EIO)}".encode()
    return b""
