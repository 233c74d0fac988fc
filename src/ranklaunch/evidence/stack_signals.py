"""Python stacks of processes, requested by signals.

`stacks` asks processes without ending them, by a real-time signal whose handler ranklaunch.rankside installs. `Aborts` sends
SIGABRT to processes that must end anyway. In both cases Python's faulthandler writes the stacks of all threads, also while
C code holds the GIL.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable

from ranklaunch.system import tree
from ranklaunch.system.tree import Hearing, catches

NAME = "/memfd:ranklaunch-stacks"  # unnamed file for the answer, as in /proc/PID/fd
SIGNAL = 59
QUIET_S = 0.2  # an answer is complete after this time without a new byte
ANSWERS_S = 2.0  # wait for all answers: a process that is stopped, or stuck in the kernel, does not answer
LOOK_S = 0.02
MOST_BYTES = 1 << 20  # of one process


def stacks(pids: Iterable[int]) -> dict[int, bytes]:
    """Return the stacks of each process, by pid. Processes that cannot be asked, or do not answer, are left out."""
    asked = [each for each in map(_ask, pids) if each]
    deadline = time.monotonic() + ANSWERS_S
    while time.monotonic() < deadline and sum(each.done(time.monotonic()) for each in asked) < len(asked):
        time.sleep(LOOK_S)
    return {each.pid: text for each in asked if (text := each.text())}


class Asked:
    """Process with a request for its stacks. path: of the file for the answer, in /proc."""

    def __init__(self, pid: int, path: str) -> None:
        self.pid = pid
        self._path = path
        self._begin = self._last = self._size()
        self._grown = 0.0

    def done(self, now: float) -> bool:
        size = self._size()
        if size != self._last:
            self._last, self._grown = size, now
        return bool(self._grown and now - self._grown > QUIET_S)

    def text(self) -> bytes:
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._begin)
            return file.read(MOST_BYTES)
        return b""

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0


def _ask(pid: int) -> Asked | None:
    """Ask a process that still has both the file and the handler. Without the handler the signal would kill the process."""
    path = _file(pid)
    if not path or not catches(pid, SIGNAL):
        return None
    asked = Asked(pid, path)
    return asked if tree.send(tree.identify(pid), SIGNAL) else None


def _file(pid: int) -> str:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}").startswith(NAME):
                return f"{folder}/{name}"
    return ""


class Aborts:
    """Sender of SIGABRT, without core dumps. told: processes that were sent SIGABRT."""

    def __init__(self) -> None:
        self.told: set[tree.Identity] = set()

    def end(self, rank: tree.Identity) -> bool:
        """End a rank, or the programs that it runs if it is a shell. Return True if a process catches the signal."""
        return sum(map(self._end, Hearing(signal.SIGABRT).of(rank))) > 0

    def end_all(self, processes: Iterable[tree.Identity]) -> bool:
        """End the processes that were not sent the signal yet. Return True if one of them catches the signal."""
        return sum(self._end(process) for process in processes if process not in self.told) > 0

    def _end(self, process: tree.Identity) -> bool:
        if not catches(process.pid, signal.SIGABRT):
            return False
        self.told.add(process)
        _dump_no_core(process.pid)
        sent = tree.send(process, signal.SIGABRT)
        if tree.state(process) == "T":
            tree.send(process, signal.SIGCONT)
        return sent


def _dump_no_core(pid: int) -> None:
    """Prevent a core dump: to a file by the limit, to a program of the host (which ignores the limit) by the filter."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open(f"/proc/{pid}/coredump_filter", "w", encoding="ascii") as file:
        file.write("0")
