"""What the benchmarks ask the kernel of other processes: which there are, what they were started with, and what they use."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read(path: str) -> str:
    """ "" for a process that has ended."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def having(name: str, value: str) -> list[int]:
    """Those that have this variable."""
    return [pid for pid in _pids() if has(pid, name, value)]


def has(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with this variable. A zombie has no environment any more."""
    return f"{name}={value}" in read(f"/proc/{pid}/environ").split("\0")


def command(pid: int) -> list[str]:
    return read(f"/proc/{pid}/cmdline").split("\0")


def below(pid: int, without: Collection[int] = ()) -> list[int]:
    """The process and all that it or its children have started, but for `without` and what these have."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        fields = _stat(other)
        if fields:
            children.setdefault(int(fields[1]), []).append(other)
    found = [pid]
    for each in found:
        found += [child for child in children.get(each, ()) if child not in without]
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds that the processes themselves have used so far."""
    return sum(sum(map(int, fields[11:13])) for fields in map(_stat, pids) if fields) / TICKS_PER_S


def switches(pids: Iterable[int]) -> int:
    """How often their threads have gone to wait for something."""
    statuses = (read(f"/proc/{pid}/task/{task}/status") for pid in pids for task in _tasks(pid))
    return sum(_number(status, "voluntary_ctxt_switches") for status in statuses)


def resident_kb(pid: int) -> int:
    return _number(read(f"/proc/{pid}/status"), "VmRSS")


def peak_kb(pid: int) -> int:
    return _number(read(f"/proc/{pid}/status"), "VmHWM")


def proportional_kb(pid: int) -> int:
    """Resident memory with what several processes share divided among them."""
    return _number(read(f"/proc/{pid}/smaps_rollup"), "Pss")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """From the state on: state, parent, ..."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _number(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0
