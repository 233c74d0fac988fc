"""Ends processes by SIGABRT where Python's faulthandler has a handler for it, which writes the stacks of all threads first, also while C
code holds the GIL. Only those that are to end anyway. No core is dumped."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterable

from ranklaunch.system import tree
from ranklaunch.system.hearing import Hearing, catches


class Aborts:
    """told: who was sent the signal."""

    def __init__(self) -> None:
        self.told: set[tree.Identity] = set()

    def end(self, rank: tree.Identity) -> bool:
        """The rank, or what runs in it where it is a shell; whether there was one to hear it."""
        return self._end_each(Hearing(signal.SIGABRT).of(rank))

    def end_all(self, left: Iterable[tree.Identity]) -> bool:
        """All of these that have not been told yet; whether there was one."""
        return self._end_each(process for process in left if process not in self.told)

    def _end_each(self, processes: Iterable[tree.Identity]) -> bool:
        told = [self._end(process) for process in processes]
        return any(told)

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
    """Neither to a file, for which there may be no room, nor to a program of the host's, which asks for no limit."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open(f"/proc/{pid}/coredump_filter", "w", encoding="ascii") as file:
        file.write("0")
