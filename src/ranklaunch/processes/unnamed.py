"""Ranks that their launcher does not identify: on each path down the process tree, the first process with a rank number in
its environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity

# Variables with the rank number of a process. Launchers set them, and processes of a rank inherit them.
RANK_NAMES = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK_ID", b"SLURM_PROCID")
MOST_ENVIRONMENT = 512 * 1024  # bytes
MOST_PROCESSES = 4096  # processes whose rank numbers are cached

Children = Mapping[int, list[tuple[int, Entry]]]  # children of each process, by its pid


class Unnamed:
    """Search for ranks by their environment. A process found once stays a rank, even if it overwrites its environment."""

    def __init__(self) -> None:
        self._numbers: dict[Identity, int] = {}

    def find(self, known: Mapping[int, Identity], most: int, children: Children | None = None) -> dict[int, Identity]:
        """Return the processes of ranks by rank number, including the known ones.

        most: number of ranks on this node; the search is skipped if that many are known. children: a fresh tree.by_parent(), None to
        read it. Daemons of some launchers leave their parents, and become children of this process.
        """
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
    """Return the rank number of a process, None for another process. name: part of the cache key, for a process that has executed another
    program."""
    for pair in tree.read(f"/proc/{process.pid}/environ", MOST_ENVIRONMENT).split(b"\0"):
        variable, _, value = pair.partition(b"=")
        if variable in RANK_NAMES and value.isdigit():
            return int(value[:9])
    return None
