"""Ranks without identification by their launcher: the first process on each way down with a rank's number in its
environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity

# In a process's environment: which rank it is. Launchers set them, and what a rank starts inherits them.
RANK_NAMES = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK_ID", b"SLURM_PROCID")
MOST_ENVIRONMENT = 512 * 1024  # bytes
MOST_PROCESSES = 4096  # whose environments are remembered

Children = Mapping[int, list[tuple[int, Entry]]]  # of each process


class Unnamed:
    """Ranks that were found. A rank stays one, whatever it writes over its environment."""

    def __init__(self) -> None:
        self._numbers: dict[Identity, int] = {}

    def find(self, known: Mapping[int, Identity], most: int, children: Children | None = None) -> dict[int, Identity]:
        """Return ranks by number, the known ones among them, at most so many. Some launchers' daemons leave their parents, and so become
        children of this process. children: as they were read a moment ago."""
        result = dict(known)
        if len(known) >= max(1, most):
            return result
        children = tree.by_parent() if children is None else children
        pids = [os.getpid()]
        while pids:
            for pid, entry in children.get(pids.pop(), ()):
                process = Identity(pid, entry.start)
                if entry.state in "ZX" or process in known.values():
                    continue
                rank = self._numbers[process] if process in self._numbers else _rank_of(process, entry.name)
                if rank is None:
                    pids.append(pid)
                else:
                    self._numbers[process] = rank
                    result.setdefault(rank, process)
        return result


@functools.lru_cache(maxsize=MOST_PROCESSES)
def _rank_of(process: Identity, name: str) -> int | None:
    """Return the number of a rank, None for another process. name: with another name, a process has become another program."""
    for pair in tree.read(f"/proc/{process.pid}/environ", MOST_ENVIRONMENT).split(b"\0"):
        variable, _, value = pair.partition(b"=")
        if variable in RANK_NAMES and value.isdigit():
            return int(value[:9])
    return None
