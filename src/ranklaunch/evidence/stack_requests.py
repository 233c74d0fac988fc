"""Asking processes for their Python stacks without ending them: by the signal for which ranklaunch.rankside has a handler in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from ranklaunch.system import tree
from ranklaunch.system.hearing import catches

NAME = "/memfd:ranklaunch-stacks"
SIGNAL = 59
QUIET_S = 0.2  # without another byte, after the first: it has written all
ANSWERS_S = 2.0  # of all that were asked: a process that is stopped, or stuck in the kernel, does not answer
LOOK_S = 0.02
MOST_BYTES = 1 << 20  # of one process


class Asked:
    """A process that was asked, and the file in its memory to which it writes."""

    def __init__(self, pid: int, path: str) -> None:
        self.pid = pid
        self._path = path
        self._begin = self._size()
        self._grown = 0.0
        self._last = self._begin

    def done(self, now: float) -> bool:
        size = self._size()
        if size != self._last:
            self._last, self._grown = size, now
        return bool(self._grown and now - self._grown > QUIET_S)

    def text(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._begin)
                return file.read(MOST_BYTES)
        except OSError:
            return b""

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0


def stacks(pids: Iterable[int]) -> dict[int, bytes]:
    """What each of them answers; those that cannot be asked, or do not answer, are not there."""
    asked = [each for each in map(_ask, pids) if each]
    deadline = time.monotonic() + ANSWERS_S
    while time.monotonic() < deadline and not _all_done(asked):
        time.sleep(LOOK_S)
    return {each.pid: text for each in asked if (text := each.text())}


def _all_done(asked: Iterable[Asked]) -> bool:
    done = [each.done(time.monotonic()) for each in asked]  # each has to be looked at
    return all(done)


def _ask(pid: int) -> Asked | None:
    """Only a process that still has both the file and the handler: any other would die of the signal, or write elsewhere."""
    path = _file(pid)
    if not path or not catches(pid, SIGNAL):
        return None
    asked = Asked(pid, path)
    return asked if tree.send(tree.identify(pid), SIGNAL) else None


def _file(pid: int) -> str:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}").startswith(NAME):
                return f"{folder}/{name}"
    except OSError:
        pass
    return ""
