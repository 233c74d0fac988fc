"""State of processes, from /proc: CPU time, memory, and waits in the kernel."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ranklaunch.evidence.all_nodes import GONE
from ranklaunch.redact import redact
from ranklaunch.system import tree

MOST_PROCESSES = 1024  # of a node
MOST_THREADS = 64  # of a process
MOST_DESCRIPTORS = 256  # of a process
MOST_BYTES = 16384  # of a file in /proc
_STATUS = ("State", "PPid", "TracerPid", "Threads", "VmRSS", "VmSwap", "SigBlk", "SigIgn", "SigCgt")
_TICKS = os.sysconf("SC_CLK_TCK")


def of_ranks(ranks: Mapping[int, tree.Identity]) -> dict[int, list[int]]:
    """Return the pids of each rank's process tree, the rank's own first; at most MOST_PROCESSES in all, but one for each rank."""
    result = {rank: [process.pid, *(each.pid for each in tree.descendants(process.pid))] for rank, process in ranks.items()}
    room = MOST_PROCESSES
    for rank, pids in result.items():
        result[rank] = pids[: max(1, room)]
        room -= len(result[rank])
    return result


def described(pid: int) -> dict[str, Any]:
    """Return command and descriptors of a process: facts that two samples share."""
    words = tree.read(f"/proc/{pid}/cmdline", MOST_BYTES).split(b"\0")[:-1]
    descriptors = {}
    for name in _numbers(f"/proc/{pid}/fd")[:MOST_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            descriptors[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    return {"pid": pid, "command": list(redact.argv([os.fsdecode(word) for word in words])), "descriptors": descriptors}


def sample(pids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the state of each process, by pid."""
    return {pid: {"pid": pid, "at": round(time.time(), 3), **_state(pid)} for pid in pids}


def environment(pid: int) -> dict[str, str]:
    """Return the environment at the start of a process. Never write it into evidence: it may have secrets."""
    words = tree.read(f"/proc/{pid}/environ", 1 << 20).split(b"\0")
    return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)


def accounts(pids: Iterable[int]) -> Iterator[int]:
    """Yield the user ids of living processes."""
    for pid in pids:
        try:
            yield os.stat(f"/proc/{pid}").st_uid
        except OSError:
            pass


def _state(pid: int) -> dict[str, Any]:
    status = _pairs(f"/proc/{pid}/status")
    if not status:
        return {"state": GONE}
    fields = tree.read(f"/proc/{pid}/stat", MOST_BYTES).rpartition(b")")[2].split()
    cpu_s = sum(map(int, fields[11:13])) / _TICKS if len(fields) > 12 else None
    return {
        "state": status.get("State", "")[:1], "cpu_s": cpu_s, **_waits(f"/proc/{pid}"), "io": _pairs(f"/proc/{pid}/io"),
        "status": {name: status[name] for name in _STATUS if name in status},
        "threads": [_thread(f"/proc/{pid}/task", name) for name in _numbers(f"/proc/{pid}/task")[:MOST_THREADS]],
    }  # fmt: skip


def _thread(folder: str, name: str) -> dict[str, str]:
    stat = tree.read(f"{folder}/{name}/stat", MOST_BYTES).decode(errors="replace")
    begin, end = stat.find("("), stat.rfind(")")
    return {"tid": name, "name": stat[begin + 1 : end], "state": stat[end + 2 : end + 3], **_waits(f"{folder}/{name}")}


def _waits(folder: str) -> dict[str, str]:
    """Return the kernel function and the system call in which a process or thread waits."""
    return {name: tree.read(f"{folder}/{name}", MOST_BYTES).decode(errors="replace").strip() for name in ("wchan", "syscall")}


def _pairs(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in tree.read(path, MOST_BYTES).decode(errors="replace").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _numbers(folder: str) -> list[str]:
    """Return the names in a folder of /proc, sorted as numbers."""
    try:
        return sorted(os.listdir(folder), key=int)
    except (OSError, ValueError):
        return []
