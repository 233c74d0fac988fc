"""The ranks that a launcher has started itself: known by the files that their output goes to, and watched until they end.

A launcher may say of a failed rank no more than its pid, or look after its ranks once a second and then blame the first in its list.
The kernel tells when each one ends, and keeps its exit code until the launcher has fetched it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import NamedTuple

from ranklaunch.plan import RankOutputs
from ranklaunch.supervise import tree
from ranklaunch.supervise.loop import Loop
from ranklaunch.verdict import Failure

LOOK_AFTER_S = (0.05, 0.3, 1.0, 3.0)  # a new file: whoever writes into it may have to be started first


class End(NamedTuple):
    """code: as a shell gives it. at: monotonic seconds."""

    rank: int
    pid: int
    code: int
    signal: int
    at: float


class Below:
    """generations: how many below the launcher its ranks are. on_start, on_end: called when one of them is found, with its pid, and when
    it has ended."""

    def __init__(
        self,
        launcher: tree.Identity,
        generations: int,
        outputs: RankOutputs,
        loop: Loop,
        on_start: Callable[[int, int], None],
        on_end: Callable[[End], None],
    ) -> None:
        self.ends: list[End] = []
        self._launcher = launcher
        self._generations = generations
        self._folder = os.path.realpath(outputs.folder)
        self._pattern = re.compile(outputs.pattern)
        self._keys = {log.key: log.rank for log in outputs.logs}
        self._loop = loop
        self._on_start = on_start
        self._tell = on_end
        self._found: dict[tree.Identity, int | None] = {}
        self._watched: dict[int, tree.Identity] = {}

    def expect(self) -> None:
        """One more rank is about to write."""
        for seconds in LOOK_AFTER_S:
            self._loop.after(seconds, self.look)

    def look(self) -> None:
        for process in tree.generation(self._launcher.pid, self._generations):
            if process not in self._found and (key := self._key(process.pid)) in self._keys:
                self._found[process] = rank = self._keys[key]
                if rank is not None:
                    self._on_start(rank, process.pid)
                    self._watch(process, rank)

    def ranks(self) -> list[tree.Identity] | None:
        """Those that live; None where none was ever found."""
        self.look()
        if not any(rank is not None for rank in self._found.values()):
            return None
        living = tree.generation(self._launcher.pid, self._generations)
        return [process for process in living if self._found.get(process) is not None]

    def complete(self, failure: Failure | None) -> Failure | None:
        """What the launcher says, with what is known here: which rank it was, and whether another had failed before."""
        failed = [end for end in self.ends if end.code]
        if failure is None or failure.pid in [end.pid for end in failed]:
            return _told(failed[0], failure) if failed else failure
        ranks = [rank for process, rank in self._found.items() if process.pid == failure.pid]
        return dataclasses.replace(failure, rank=ranks[0]) if ranks and failure.rank is None else failure

    def failure(self, rank: int) -> Failure | None:
        """How a rank ended, where it was not well."""
        return next((_told(end, None) for end in self.ends if end.rank == rank and end.code), None)

    def close(self) -> None:
        for fd in self._watched:
            self._loop.forget(fd)
            os.close(fd)
        self._watched.clear()

    def _key(self, pid: int) -> str:
        try:
            path = os.readlink(f"/proc/{pid}/fd/1")
        except OSError:
            return ""
        inside = path.startswith(f"{self._folder}/")
        match = self._pattern.fullmatch(path[len(self._folder) + 1 :]) if inside else None
        return match[match.lastindex or 0] if match else ""

    def _watch(self, process: tree.Identity, rank: int) -> None:
        try:
            fd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # Python 3.8, a kernel before 5.3, or it is gone
            return
        self._watched[fd] = process
        self._loop.on_readable(fd, lambda: self._on_end(fd, process, rank))

    def _on_end(self, fd: int, process: tree.Identity, rank: int) -> None:
        at = self._loop.clock()
        status = tree.wait_status(process)
        self._loop.forget(fd)
        os.close(fd)
        del self._watched[fd]
        if status is not None:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = 128 + number if number else os.WEXITSTATUS(status)
            self.ends.append(End(rank, process.pid, code, number, at))
            self._tell(self.ends[-1])


def _told(end: End, failure: Failure | None) -> Failure:
    told = Failure(end.rank, end.code, end.signal, end.pid, at=end.at)
    return dataclasses.replace(told, message=failure.message, victims=failure.victims) if failure and failure.pid == end.pid else told
