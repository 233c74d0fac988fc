"""Ranks whose launcher does not say which process is which: the first process on each way down whose environment has a rank's number."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity

# In a process's environment: which rank it is. Launchers set them, and what a rank starts inherits them.
RANK_NAMES = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK_ID", b"SLURM_PROCID")
MOST_ENVIRONMENT = 512 * 1024  # bytes

Below = Mapping[int, list[tuple[int, Entry]]]  # the children of each process


class Unnamed:
    def __init__(self) -> None:
        self._numbers: dict[Identity, int] = {}
        self._none: dict[Identity, str] = {}  # what each was called: with another name, it has become another program

    def find(
        self, known: Mapping[int, Identity], most: int, below: Below | None = None, entries: Mapping[int, Entry] | None = None
    ) -> dict[int, Identity]:
        """By number, those that are known among them. Some launchers' daemons leave their parents, and so become this process's own
        children. below, entries: as they were read a moment ago."""
        if len(known) >= max(1, most):
            return dict(known)
        below = tree.by_parent() if below is None else below
        entries = {pid: found for children in below.values() for pid, found in children} if entries is None else entries
        found = {**self._below(os.getpid(), below, set(known.values())), **known}
        there = {Identity(pid, entry.start) for pid, entry in entries.items()}
        self._numbers = {process: rank for process, rank in self._numbers.items() if process in there}
        self._none = {process: name for process, name in self._none.items() if process in there}
        return found

    def _below(self, root: int, below: Below, known: Collection[Identity]) -> dict[int, Identity]:
        found: dict[int, Identity] = {}
        left = _living(root, below)
        while left:
            process, name = left.pop()
            if process in known:
                continue
            rank = self._number(process, name)
            if rank is not None:
                found.setdefault(rank, process)
            else:
                left += _living(process.pid, below)
        return found

    def _number(self, process: Identity, name: str) -> int | None:
        if process not in self._numbers and self._none.get(process) != name:
            rank = _rank_of(process.pid)
            if rank is None:
                self._none[process] = name
            else:
                self._numbers[process] = rank
        return self._numbers.get(process)


def _living(pid: int, below: Below) -> list[tuple[Identity, str]]:
    """Its children, and what they are called."""
    return [(Identity(child, entry.start), entry.name) for child, entry in below.get(pid, ()) if entry.state not in "ZX"]


def _rank_of(pid: int) -> int | None:
    for pair in tree.read(f"/proc/{pid}/environ", MOST_ENVIRONMENT).split(b"\0"):
        name, _, value = pair.partition(b"=")
        if name in RANK_NAMES and value.isdigit():
            return int(value[:9])
    return None
