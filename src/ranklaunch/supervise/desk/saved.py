"""Whether a checkpoint was completed after a stop request, by the trainer's own markers (RANKLAUNCH_PROGRESS_FILE).

What they were at the request is compared with what they are at the end, so clocks of file servers do not matter. They may lie on a mount
that hangs, so a process of its own looks at them each time, for which nobody has to wait.
"""

from __future__ import annotations

import glob
import json
import os
import select
import signal
import stat
from collections.abc import Collection, Mapping, Sequence

from ranklaunch.system import bounded, tree
from ranklaunch.system.signals import OURS
from ranklaunch.typed import NoReturn

LOOK_S = 2.0
MOST_MARKS = 10_000
MOST_BYTES = 8 << 20

Marks = Mapping[str, Sequence[int]]  # by path: whether it is a file, when it was written, its number on the disk and its size


class Look:
    """At all markers. Raises OSError where no process or descriptor is left."""

    def __init__(self, patterns: Sequence[str]) -> None:
        pid, self._readable = bounded.forked(lambda writable: _become(patterns, writable))
        self._child = tree.identify(pid)

    def found(self, seconds: float = LOOK_S) -> Marks | None:
        """None where it has not answered within so long."""
        poll = select.poll()
        poll.register(self._readable, select.POLLIN)
        told = b""
        while len(told) < MOST_BYTES and poll.poll(1000 * seconds) and (block := os.read(self._readable, 1 << 20)):
            told += block
        self.close()
        try:
            marks: Marks = json.loads(told)
        except ValueError:
            return None
        return marks

    def close(self) -> None:
        if self._readable >= 0:
            os.close(self._readable)
            self._readable = -1
            tree.send(self._child, signal.SIGKILL)


def saved(before: Marks | None, after: Marks | None, heard: Collection[int], killed: Collection[int], *, any_rank: bool) -> str:
    """yes, no or unknown. before, after: None where there are no markers, or they could not be looked at. heard, killed: the ranks that
    had a way to hear the request, and those that were killed after it. A file is written when all is there; a folder is made first, so a
    new one is a checkpoint only where its ranks have ended by themselves."""
    looked = before is not None and after is not None
    new = [mark for path, mark in (after or {}).items() if looked and list((before or {}).get(path, ())) != list(mark)]
    if any(is_file or not killed for is_file, *_ in new):
        return "yes"
    return "no" if (any_rank and not heard) or (looked and killed and not new) else "unknown"


def _become(patterns: Sequence[str], writable: int) -> NoReturn:
    """In the child: never returns."""
    try:
        signal.set_wakeup_fd(-1)  # that pipe is the supervisor's
        for number in OURS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which all get at a stop
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.setitimer(signal.ITIMER_REAL, LOOK_S)  # whatever it waits for then
        tree.die_with_parent()
        os.dup2(writable, 3)
        os.closerange(4, 65536)  # of the supervisor's own; a peer must not wait for the end of this copy
        told = json.dumps({path: mark for path in _paths(patterns) if (mark := _mark(path))}).encode()
        while told:
            told = told[os.write(3, told) :]
    finally:
        os._exit(0)


def _paths(patterns: Sequence[str]) -> list[str]:
    return [path for pattern in patterns for path in glob.glob(pattern)[:MOST_MARKS]]


def _mark(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return int(not stat.S_ISDIR(found.st_mode)), found.st_mtime_ns, found.st_ino, found.st_size
