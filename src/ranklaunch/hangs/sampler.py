"""Looks at the ranks of a node and at its interfaces: /proc and /sys alone, read at once.

A process tree may be large and is looked at every few seconds for as long as a job lasts, so nothing is read that is not needed: whether a
debugger holds a rank is asked of silent ones only.
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
# Of the kernel's own network, and of the first that it may have made: numbers in between are given to other things at boot.
FIRST_NETWORKS = (0xEFFFFFF9, range(0xF0000000, 0xF0000000 + 180))
INFINIBAND = "/sys/class/infiniband"


class _Spent(NamedTuple):
    """By a process, so far."""

    ticks: int
    io: int | None


class Sampler:
    """Of ranks. Their sums only grow, so what a process that has ended had spent stays."""

    def __init__(self) -> None:
        self._before: dict[Identity, _Spent] = {}
        self._sums: dict[int | None, tuple[int, int]] = {}
        self._written: dict[int | None, int] = {}
        self._ranks = Unnamed()
        self._looked = False

    def look(
        self, known: Mapping[int, Identity], most: int, launchers: list[Identity], written: Mapping[int, int]
    ) -> dict[int | None, Look]:
        """known: ranks whose process is known; where these are not as many as there may be, the others are looked for. launchers: what is
        looked at where no rank is found. written: bytes, by rank."""
        below = tree.by_parent()
        entries = {pid: found for children in below.values() for pid, found in children}
        ranks: dict[int | None, Identity] = {rank: each for rank, each in self._ranks.find(known, most, below).items()}  # noqa: C416
        if not ranks and launchers:
            ranks = {None: launchers[0]}
        spent: dict[Identity, _Spent] = {}
        looks = {rank: self._one(rank, process, below, entries, written, spent) for rank, process in ranks.items()}
        self._before, self._looked = spent, True
        return looks

    def _one(
        self, rank: int | None, process: Identity, below: Mapping[int, list[tuple[int, Entry]]], entries: Mapping[int, Entry],
        written: Mapping[int, int], spent: dict[Identity, _Spent],
    ) -> Look:  # fmt: skip
        ticks, io = self._sums.get(rank, (0, 0))
        for each, found in _tree(process, below, entries):
            now = spent[each] = _Spent(found.ticks, _io(each.pid))
            # What was there before the first look has spent nothing that anybody saw.
            before = self._before.get(each, _Spent(0, 0) if self._looked else now)
            ticks += max(0, now.ticks - before.ticks)
            io += max(0, (now.io or 0) - (before.io or 0)) if before.io is not None else 0
        self._sums[rank] = ticks, io
        is_readable = process in spent and spent[process].io is not None  # its children may be gone since
        output = written.get(rank, 0) if rank is not None else 0
        silent = self._written.get(rank) == output
        self._written[rank] = output
        leader = _leader(process, below, entries)
        found_leader = entries.get(leader.pid)
        state = found_leader.state if found_leader and found_leader.start == leader.start else ""
        traced = bool(state) and (state == "t" or (silent and _is_traced(leader.pid)))
        return Look(process, state, output, io if is_readable else None, ticks / TICKS, _wanted_s(leader.pid) if state else None, traced)


def _tree(process: Identity, below: Mapping[int, list[tuple[int, Entry]]], entries: Mapping[int, Entry]) -> list[tuple[Identity, Entry]]:
    """A process and all that live below it."""
    root = entries.get(process.pid)
    if not root or root.start != process.start:
        return []
    found, left = [], [(process.pid, root)]
    while left:
        pid, entry = left.pop()
        if entry.state not in "ZX":
            found.append((Identity(pid, entry.start), entry))
        left += below.get(pid, ())
    return found


def _leader(process: Identity, below: Mapping[int, list[tuple[int, Entry]]], entries: Mapping[int, Entry]) -> Identity:
    """Whoever does the work: below a shell that waits for it, the one that it waits for."""
    found = entries.get(process.pid)
    while found and found.name in tree.SHELLS:
        living = [(pid, child) for pid, child in below.get(process.pid, ()) if child.state not in "ZX"]
        if len(living) != 1:
            break
        process, found = Identity(living[0][0], living[0][1].start), living[0][1]
    return process


def _io(pid: int) -> int | None:
    """Bytes that it has read and written, from files, pipes and the like; None where that may not be read."""
    words = tree.read(f"/proc/{pid}/io").split()
    return int(words[1]) + int(words[3]) if len(words) > 3 else None


def _wanted_s(pid: int) -> float | None:
    """For how long its first thread has run, or waited for a core to run on."""
    words = tree.read(f"/proc/{pid}/schedstat").split()
    return (int(words[0]) + int(words[1])) / 1e9 if len(words) > 1 else None


def _is_traced(pid: int) -> bool:
    found = re.search(rb"^TracerPid:\s*(\d+)", tree.read(f"/proc/{pid}/status"), re.MULTILINE)
    return bool(found and found[1] != b"0")


# Interfaces


def traffic() -> Traffic | None:
    """What has come and gone so far by the interfaces that are the container's own, and by InfiniBand; None where there are none."""
    found = [*([_of_interfaces()] if _is_own_network() else []), *_of_infiniband()]
    return Traffic(sum(each.packets for each in found), sum(each.bytes for each in found)) if found else None


def _is_own_network() -> bool:
    """A container that has its host's sees what others do there, too."""
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
    """Of each port that says it. Its data are counted in words of four bytes."""
    try:
        places = [f"{INFINIBAND}/{name}/ports" for name in os.listdir(INFINIBAND)]
        ports = [f"{place}/{port}/counters" for place in places for port in os.listdir(place)]
    except OSError:
        return []
    counters = ("port_rcv_packets", "port_xmit_packets", "port_rcv_data", "port_xmit_data")
    counts = [[tree.read(f"{port}/{name}").strip() for name in counters] for port in ports]
    read = [[int(count) for count in each] for each in counts if all(count.isdigit() for count in each)]
    return [Traffic(each[0] + each[1], 4 * (each[2] + each[3])) for each in read]
