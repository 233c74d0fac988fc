"""Ranks are asked to save, by the signal and the file that their trainer knows, and go on."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from ranklaunch.plan.model import Save
from ranklaunch.supervise.record import Record
from ranklaunch.system.bounded import Apart
from ranklaunch.typed import Any

TOUCH_S = 0.5  # for the file, while nobody else is served; whoever asks waits for 0.8
AGAIN_S = 5.0  # within which a request is the same one: a platform may warn every node of a job
MOST_NAMED = 64


class Saving:
    """save: the newest. offer: a signal for those processes of the ranks that catch it; the names of those in which none does."""

    def __init__(
        self, save: Callable[[], Save], offer: Callable[[int], Sequence[str]], record: Callable[[], Record], clock: Callable[[], float]
    ) -> None:
        self._saves = save
        self._offer = offer
        self._record = record
        self._clock = clock
        self._last: float | None = None

    def ask(self) -> Mapping[str, Any]:
        """signal and file: by which they were asked, "" where not so. deaf: who catches no such signal and was not sent it. trouble: why
        the file could not be touched."""
        now = self._clock()
        if self._last is not None and now - self._last < AGAIN_S:
            return {"again": True}
        self._last = now
        save = self._saves()
        deaf = list(self._offer(signal_of(save)))[:MOST_NAMED] if save.signal else []
        trouble = _touched(save.file) if save.file else ""
        asked = {"signal": f"SIG{save.signal}" if save.signal else "", "file": save.file, "deaf": deaf, "trouble": trouble}
        self._record().event("save", signal=asked["signal"], file=save.file, deaf=", ".join(deaf), trouble=trouble)
        return asked


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
