"""How the ranks of this node stand, as the kernel and their output have it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ranklaunch.supervise.output.pipe import Output
from ranklaunch.system.tree import Identity

TICK = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "ended", "I": "idle"}
GONE = "gone"


class _Seen(NamedTuple):
    parent: int
    state: str
    ticks: int
    start: int
    pages: int


def ranks(
    node: int, numbers: tuple[int, ...], processes: Mapping[int, Identity], outputs: Mapping[int, Output], now: float
) -> list[dict[str, Any]]:
    """Of each rank of this node: rank, node, pid (null where it is not known or gone), state, cpu_s and rss_kb (of its whole process tree),
    output_bytes, and last_output_s: seconds since it wrote, null where it has not. now: by the loop's clock."""
    seen = _processes()
    below: dict[int, list[int]] = {}
    for pid, found in seen.items():
        below.setdefault(found.parent, []).append(pid)
    return [_rank(node, rank, processes.get(rank), outputs.get(rank), seen, below, now) for rank in numbers]


def _rank(
    node: int,
    rank: int,
    process: Identity | None,
    output: Output | None,
    seen: Mapping[int, _Seen],
    below: Mapping[int, list[int]],
    now: float,
) -> dict[str, Any]:
    found = seen.get(process.pid) if process else None
    alive = bool(process and found and found.start == process.start)
    pids = _tree(process.pid, below) if process and alive else []
    wrote = output.written_at if output else None
    return {
        "rank": rank,
        "node": node,
        "pid": process.pid if process and alive else None,
        "state": STATES.get(found.state, found.state) if found and alive else GONE if process else "unknown",
        "cpu_s": round(sum(seen[pid].ticks for pid in pids) / TICK, 2),
        "rss_kb": sum(seen[pid].pages for pid in pids) * PAGE_KB,
        "output_bytes": output.taken if output else 0,
        "last_output_s": None if wrote is None else round(now - wrote, 1),
    }


def _tree(root: int, below: Mapping[int, list[int]]) -> list[int]:
    found = [root]
    for pid in found:
        found += below.get(pid, ())
    return found


def _processes() -> dict[int, _Seen]:
    found = {}
    for name in os.listdir("/proc"):
        seen = _process(name) if name.isdigit() else None
        if seen:
            found[int(name)] = seen
    return found


def _process(pid: str) -> _Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:  # it has ended
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return _Seen(int(fields[1]), chr(fields[0][0]), sum(map(int, fields[11:15])), int(fields[19]), int(fields[21]))
