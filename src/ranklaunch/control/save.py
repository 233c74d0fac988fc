"""Ranks are asked to save, by the signal and the file that their trainer knows, and go on."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ranklaunch.plan.model import Save
from ranklaunch.supervise.record import Record
from ranklaunch.system.bounded import Apart

TOUCH_S = 0.5  # for the file, while nobody else is served; whoever asks waits for 0.8
AGAIN_S = 5.0  # within which a request is the same one: a platform may warn every node of a job
MOST_NAMED = 64

Offer = Callable[[int], tuple[bool, Sequence[str]]]


class Saving:
    """save: the newest. offer: a signal for those processes of the ranks that catch it; whether it has reached a rank, and the names of
    those in which none catches it."""

    def __init__(self, save: Callable[[], Save], offer: Offer, record: Callable[[], Record], clock: Callable[[], float]) -> None:
        self._saves = save
        self._offer = offer
        self._record = record
        self._clock = clock
        self._last: float | None = None
        self.ways: tuple[str, ...] = ()  # by which ranks were asked the last time

    def ask(self) -> Mapping[str, Any]:
        """signal and file: by which they are to be asked, "" where not so. by: what of these was done. deaf: who catches no such signal and
        was not sent it. trouble: why the file could not be touched."""
        now = self._clock()
        if self._last is not None and now - self._last < AGAIN_S:
            return {"again": True}
        save = self._saves()
        reached, unheard = self._offer(signal_of(save)) if save.signal else (False, [])
        name, deaf = f"SIG{save.signal}" if save.signal else "", list(unheard)[:MOST_NAMED]
        trouble = _touched(save.file) if save.file else ""
        self.ways = tuple(way for way, done in ((name, reached), (f"touching {save.file}", save.file and not trouble)) if done)
        if self.ways:
            self._last = now
        self._record().event("save", signal=name, file=save.file, deaf=", ".join(deaf), trouble=trouble)
        return {"signal": name, "file": save.file, "by": list(self.ways), "deaf": deaf, "trouble": trouble}


def signal_of(save: Save) -> int:
    return int(signal.Signals[f"SIG{save.signal}"])


def _touched(path: str) -> str:
    """Why not, else ""."""
    try:
        told = Apart(lambda: _touch(path).encode()).answer(TOUCH_S)
    except OSError as error:  # no process or descriptor left
        return f"{path}: {error.strerror}"
    return f"{path}: its file system did not answer within {TOUCH_S:g} s" if told is None else told.decode()


def _touch(path: str) -> str:
    """Of a regular file, or one that is not there. Why not, else ""."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    except OSError as error:
        return f"{path}: {os.strerror(error.errno or errno.EIO)}"
    try:
        os.utime(fd)
    except OSError as error:
        return f"{path}: {error.strerror}"
    finally:
        os.close(fd)
    return ""
