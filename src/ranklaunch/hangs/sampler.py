"""Looks at the ranks of a node and at its network interfaces, by /proc and /sys alone.

A process tree may be large, and is read every few seconds for the whole job, so nothing unneeded is read: only silent ranks are checked
for a debugger.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ranklaunch.hangs.sample import Look, Traffic
from ranklaunch.processes.unnamed import Unnamed
from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity

TICKS = os.sysconf("SC_CLK_TCK")
# Inode numbers of the host's network namespace: a fixed one in newer kernels; in older ones, one of the first that are assigned at boot.
FIRST_NETWORKS = (0xEFFFFFF9, range(0xF0000000, 0xF0000000 + 180))
INFINIBAND = "/sys/class/infiniband"


class _Spent(NamedTuple):
    """CPU ticks and I/O bytes of a process so far. io: None if it may not be read."""

    ticks: int
    io: int | None


class Sampler:
    """Looks at ranks. Sums over their process trees never decrease: a process that has ended still counts."""

    def __init__(self) -> None:
        self._before: dict[Identity, _Spent] = {}
        self._sums: dict[int | None, _Spent] = {}
        self._written: dict[int | None, int] = {}
        self._ranks = Unnamed()
        self._looked = False

    def look(
        self, known: Mapping[int, Identity], most: int, launchers: list[Identity], written: Mapping[int, int]
    ) -> dict[int | None, Look]:
        """Return a look at each rank. known: ranks with known processes; if they are fewer than `most`, the others are searched for.
        launchers: the first one is looked at, as rank None, if no rank is found. written: bytes of output by rank."""
        processes = _Processes(tree.by_parent())
        ranks: dict[int | None, Identity] = dict(self._ranks.find(known, most, processes.children_of).items())
        if not ranks and launchers:
            ranks = {None: launchers[0]}
        spent: dict[Identity, _Spent] = {}
        looks = {}
        for rank, process in ranks.items():
            of_rank = {each: _Spent(entry.ticks, _io(each.pid)) for each, entry in processes.tree(process)}
            spent.update(of_rank)
            self._sums[rank] = self._summed(rank, of_rank)
            looks[rank] = self._look(rank, process, processes, of_rank, written.get(rank, 0) if rank is not None else 0)
        self._before, self._looked = spent, True
        return looks

    def _summed(self, rank: int | None, spent: Mapping[Identity, _Spent]) -> _Spent:
        """Return the sums of a rank, with the growth since the last look."""
        ticks, io = self._sums.get(rank, (0, 0))
        for process, now in spent.items():
            # At the first look, only the growth from now on counts.
            before = self._before.get(process, _Spent(0, 0) if self._looked else now)
            ticks += max(0, now.ticks - before.ticks)
            io = (io or 0) + (max(0, (now.io or 0) - before.io) if before.io is not None else 0)
        return _Spent(ticks, io)

    def _look(self, rank: int | None, process: Identity, processes: _Processes, spent: Mapping[Identity, _Spent], output: int) -> Look:
        sums = self._sums[rank]
        is_readable = process in spent and spent[process].io is not None  # only this process: others of the tree may have ended
        silent = self._written.get(rank) == output
        self._written[rank] = output
        leader = processes.leader(process)
        state = processes.state(leader)
        traced = state == "t" or (bool(state) and silent and _is_traced(leader.pid))
        wanted_s = _wanted_s(leader.pid) if state else None
        return Look(process, state, output, sums.io if is_readable else None, sums.ticks / TICKS, wanted_s, traced)


class _Processes:
    """Processes of this machine at one moment. children_of: by parent."""

    def __init__(self, children_of: Mapping[int, list[tuple[int, Entry]]]) -> None:
        self.children_of = children_of
        self._entries = {pid: entry for children in children_of.values() for pid, entry in children}

    def _entry(self, process: Identity) -> Entry | None:
        entry = self._entries.get(process.pid)
        return entry if entry and entry.start == process.start else None

    def state(self, process: Identity) -> str:
        entry = self._entry(process)
        return entry.state if entry else ""

    def tree(self, process: Identity) -> list[tuple[Identity, Entry]]:
        """Return the living processes of a process tree."""
        root = self._entry(process)
        result, pending = [], [(process.pid, root)] if root else []
        while pending:
            pid, entry = pending.pop()
            if entry.state not in "ZX":
                result.append((Identity(pid, entry.start), entry))
            pending += self.children_of.get(pid, ())
        return result

    def leader(self, process: Identity) -> Identity:
        """Return the process that does the work: for a shell with one child, the child."""
        entry = self._entries.get(process.pid)
        while entry and entry.name in tree.SHELLS:
            living = [(pid, child) for pid, child in self.children_of.get(process.pid, ()) if child.state not in "ZX"]
            if len(living) != 1:
                break
            ((pid, entry),) = living
            process = Identity(pid, entry.start)
        return process


def _io(pid: int) -> int | None:
    """Return the bytes that a process has read and written (files, pipes, sockets); None if /proc/PID/io may not be read."""
    words = tree.read(f"/proc/{pid}/io").split()
    return int(words[1]) + int(words[3]) if len(words) > 3 else None


def _wanted_s(pid: int) -> float | None:
    """Return the seconds that a process's first thread has run, or waited for a core to run on."""
    words = tree.read(f"/proc/{pid}/schedstat").split()
    return (int(words[0]) + int(words[1])) / 1e9 if len(words) > 1 else None


def _is_traced(pid: int) -> bool:
    match = re.search(rb"^TracerPid:\s*(\d+)", tree.read(f"/proc/{pid}/status"), re.MULTILINE)
    return bool(match and match[1] != b"0")


# Interfaces


def traffic() -> Traffic | None:
    """Return the packets and bytes so far of the container's own interfaces, and of InfiniBand; None without any."""
    counts = [*([_of_interfaces()] if _is_own_network() else []), *_of_infiniband()]
    return Traffic(sum(each.packets for each in counts), sum(each.bytes for each in counts)) if counts else None


def _is_own_network() -> bool:
    """Return False for a container with its host's network, where counters include the traffic of other processes."""
    try:
        number = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False
    return number != FIRST_NETWORKS[0] and number not in FIRST_NETWORKS[1]


def _of_interfaces() -> Traffic:
    packets = octets = 0
    for line in tree.read("/proc/self/net/dev", 1 << 16).splitlines()[2:]:
        words = line.rpartition(b":")[2].split()
        if len(words) > 9:
            octets += int(words[0]) + int(words[8])
            packets += int(words[1]) + int(words[9])
    return Traffic(packets, octets)


def _of_infiniband() -> list[Traffic]:
    """Return the traffic of each InfiniBand port with counters. The counters of data count words of four bytes."""
    try:
        places = [f"{INFINIBAND}/{name}/ports" for name in os.listdir(INFINIBAND)]
        ports = [f"{place}/{port}/counters" for place in places for port in os.listdir(place)]
    except OSError:
        return []
    counters = ("port_rcv_packets", "port_xmit_packets", "port_rcv_data", "port_xmit_data")
    counts = [[tree.read(f"{port}/{name}").strip() for name in counters] for port in ports]
    read = [[int(count) for count in each] for each in counts if all(count.isdigit() for count in each)]
    return [Traffic(each[0] + each[1], 4 * (each[2] + each[3])) for each in read]
