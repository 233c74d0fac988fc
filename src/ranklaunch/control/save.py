"""Requests to save a checkpoint: ranks get the signal or the file that their trainer knows, and continue."""

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

TOUCH_S = 0.5  # to touch the file; the supervisor does nothing else meanwhile, and all nodes must answer within 0.8 s
AGAIN_S = 5.0  # a second request within this time counts as the same one: a platform may warn every node of a job
MOST_NAMED = 64

Offer = Callable[[int], tuple[bool, Sequence[str]]]


class Saving:
    """Requests to save. offer: sends a signal to the rank processes that catch it; returns True if there is one, and the names of ranks
    that do not catch the signal. ways: ways of the last request that reached a rank: the signal's name, "touching PATH"."""

    def __init__(self, offer: Offer, loop: Loop) -> None:
        self._offer = offer
        self._loop = loop
        self._last: float | None = None
        self.ways: tuple[str, ...] = ()

    def ask(self, save: Save, record: Record) -> dict[str, Any]:
        """Ask the ranks to save. Return a dict:

        | key | meaning |
        | --- | --- |
        | signal, file | the ways of the plan, "" for none |
        | by | the ways that worked |
        | deaf | ranks that do not catch the signal, and did not get it |
        | trouble | why the file could not be touched, "" for no trouble |

        Only `again`: True for a second request within AGAIN_S.
        """
        now = self._loop.clock()
        if self._last is not None and now - self._last < AGAIN_S:
            return {"again": True}
        name = f"SIG{save.signal}" if save.signal else ""
        reached, not_catching = self._offer(int(signal.Signals[name])) if name else (False, [])
        deaf = list(not_catching)[:MOST_NAMED]
        trouble = _touched(save.file) if save.file else ""
        self.ways = tuple(way for way, done in ((name, reached), (f"touching {save.file}", save.file and not trouble)) if done)
        if self.ways:
            self._last = now
        record.event("save", signal=name, file=save.file, deaf=", ".join(deaf), trouble=trouble)
        return {"signal": name, "file": save.file, "by": list(self.ways), "deaf": deaf, "trouble": trouble}


def _touched(path: str) -> str:
    """Touch a file in a child process, since its mount may hang. Return the reason of a failure, "" for success."""
    try:
        answer = Apart(partial(_touch, path)).answer(TOUCH_S)
    except OSError as error:  # no process or descriptor left
        return f"{path}: {error.strerror}"
    return f"{path}: its file system did not answer within {TOUCH_S:g} s" if answer is None else answer.decode()


def _touch(path: str) -> bytes:
    """Touch a file, and create it if needed. Return the reason of a failure, b"" for success."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
        try:
            os.utime(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return f"{path}: {os.strerror(error.errno or errno.EIO)}".encode()
    return b""
