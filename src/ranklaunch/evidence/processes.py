"""What the kernel says of processes: whether they run, wait, and for what."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ranklaunch.evidence.all_nodes import GONE
from ranklaunch.redact import redact
from ranklaunch.system import tree

MOST_PROCESSES = 1024  # of a node
MOST_THREADS = 64  # of a process
MOST_DESCRIPTORS = 256
MOST_BYTES = 16384  # of a file of /proc
_STATUS = ("State", "PPid", "TracerPid", "Threads", "VmRSS", "VmSwap", "SigBlk", "SigIgn", "SigCgt")
_TICKS = os.sysconf("SC_CLK_TCK")


def of_ranks(ranks: Mapping[int, tree.Identity]) -> dict[int, list[int]]:
    """The pids of each rank's tree, its own first."""
    found = {rank: [process.pid, *(each.pid for each in tree.descendants(process.pid))] for rank, process in ranks.items()}
    left = MOST_PROCESSES
    for rank, pids in found.items():
        found[rank] = pids[: max(1, left)]
        left -= len(found[rank])
    return found


def described(pids: Iterable[int]) -> list[dict[str, Any]]:
    """What stays the same of each: command and descriptors."""
    return [{"pid": pid, "command": _command(pid), "descriptors": _descriptors(pid)} for pid in pids]


def sample(pids: Iterable[int], clock: Callable[[], float]) -> list[dict[str, Any]]:
    return [{"pid": pid, "at": round(clock(), 3), **_state(pid)} for pid in pids]


def environment(pid: int) -> dict[str, str]:
    """With which a process was started. It is not written down."""
    words = tree.read(f"/proc/{pid}/environ", 1 << 20).split(b"\0")
    return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)


def accounts(pids: Iterable[int]) -> Iterator[int]:
    """Of those that live."""
    for pid in pids:
        try:
            yield os.stat(f"/proc/{pid}").st_uid
        except OSError:
            pass


def _state(pid: int) -> dict[str, Any]:
    status = _status(pid)
    if not status:
        return {"state": GONE}
    fields = tree.read(f"/proc/{pid}/stat", MOST_BYTES).rpartition(b")")[2].split()
    cpu_s = sum(map(int, fields[11:13])) / _TICKS if len(fields) > 12 else None
    wchan, syscall = _word(f"/proc/{pid}/wchan"), _word(f"/proc/{pid}/syscall")
    told = {"state": status.get("State", "")[:1], "cpu_s": cpu_s, "wchan": wchan, "syscall": syscall}
    return {**told, "io": _pairs(f"/proc/{pid}/io"), "status": status, "threads": _threads(pid)}


def _threads(pid: int) -> list[dict[str, str]]:
    found = []
    for name in _names(f"/proc/{pid}/task")[:MOST_THREADS]:
        stat = tree.read(f"/proc/{pid}/task/{name}/stat", MOST_BYTES)
        begin, end = stat.find(b"("), stat.rfind(b")")
        state = stat[end + 2 : end + 3].decode(errors="replace")
        wchan, syscall = _word(f"/proc/{pid}/task/{name}/wchan"), _word(f"/proc/{pid}/task/{name}/syscall")
        found.append(
            {"tid": name, "name": stat[begin + 1 : end].decode(errors="replace"), "state": state, "wchan": wchan, "syscall": syscall}
        )
    return found


def _status(pid: int) -> dict[str, str]:
    told = _pairs(f"/proc/{pid}/status")
    return {name: told[name] for name in _STATUS if name in told}


def _pairs(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in tree.read(path, MOST_BYTES).decode(errors="replace").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _command(pid: int) -> list[str]:
    words = tree.read(f"/proc/{pid}/cmdline", MOST_BYTES).split(b"\0")[:-1]
    return list(redact.argv([os.fsdecode(word) for word in words]))


def _descriptors(pid: int) -> dict[str, str]:
    found = {}
    for name in _names(f"/proc/{pid}/fd")[:MOST_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def _word(path: str) -> str:
    return tree.read(path, MOST_BYTES).decode(errors="replace").strip()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder), key=lambda name: int(name) if name.isdigit() else 0)
    except OSError:
        return []
