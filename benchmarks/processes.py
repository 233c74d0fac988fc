"""Facts of the kernel about other processes: pids, environment, command lines, CPU time and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read(path: str) -> str:
    """Return the text of a file in /proc, "" for an ended process."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def having(name: str, value: str) -> list[int]:
    """Return the pids of all processes with this variable."""
    return [pid for pid in _pids() if has(pid, name, value)]


def has(pid: int, name: str, value: str) -> bool:
    """Return True if the process was started with this variable. A zombie has no environment."""
    return f"{name}={value}" in read(f"/proc/{pid}/environ").split("\0")


def command(pid: int) -> list[str]:
    return read(f"/proc/{pid}/cmdline").split("\0")


def below(pid: int, without: Collection[int] = ()) -> list[int]:
    """Return the pids of a process and its descendants, except for the processes `without` and their descendants."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        fields = _stat(other)
        if fields:
            children.setdefault(int(fields[1]), []).append(other)
    tree = [pid]
    for each in tree:
        tree += [child for child in children.get(each, ()) if child not in without]
    return tree


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of the processes so far, without those of their children."""
    return sum(sum(map(int, fields[11:13])) for fields in map(_stat, pids) if fields) / TICKS_PER_S


def switches(pids: Iterable[int]) -> int:
    """Return the number of voluntary context switches of all threads: each one is the start of a wait."""
    statuses = (read(f"/proc/{pid}/task/{task}/status") for pid in pids for task in _tasks(pid))
    return sum(_number(status, "voluntary_ctxt_switches") for status in statuses)


def resident_kb(pid: int) -> int:
    return _number(read(f"/proc/{pid}/status"), "VmRSS")


def peak_kb(pid: int) -> int:
    return _number(read(f"/proc/{pid}/status"), "VmHWM")


def proportional_kb(pid: int) -> int:
    """Return the proportional set size: memory that several processes share is divided among them."""
    return _number(read(f"/proc/{pid}/smaps_rollup"), "Pss")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: state, parent, ..."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _number(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0
