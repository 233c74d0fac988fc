"""How the ranks of this node stand, as the kernel and their output have it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ranklaunch.supervise.output.pipe import Output
from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity
from ranklaunch.typed import Any

TICK = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "ended", "I": "idle"}
GONE = "gone"


def ranks(
    node: int, numbers: tuple[int, ...], processes: Mapping[int, Identity], outputs: Mapping[int, Output], now: float
) -> list[dict[str, Any]]:
    """Of each rank of this node: rank, node, pid (null where it is not known or gone), state, cpu_s and rss_kb (of its whole process tree),
    output_bytes, and last_output_s: seconds since it wrote, null where it has not. now: by the loop's clock."""
    below = tree.by_parent()
    entries = {pid: found for children in below.values() for pid, found in children}
    return [_rank(node, rank, processes.get(rank), outputs.get(rank), below, entries, now) for rank in numbers]


def _rank(
    node: int,
    rank: int,
    process: Identity | None,
    output: Output | None,
    below: Mapping[int, list[tuple[int, Entry]]],
    entries: Mapping[int, Entry],
    now: float,
) -> dict[str, Any]:
    found = entries.get(process.pid) if process else None
    alive = bool(process and found and found.start == process.start)
    all_of_it = _tree(found, process.pid, below) if process and found and alive else []
    wrote = output.written_at if output else None
    return {
        "rank": rank,
        "node": node,
        "pid": process.pid if process and alive else None,
        "state": STATES.get(found.state, found.state) if found and alive else GONE if process else "unknown",
        "cpu_s": round(sum(each.ticks + each.inherited for each in all_of_it) / TICK, 2),
        "rss_kb": sum(each.pages for each in all_of_it) * PAGE_KB,
        "output_bytes": output.taken if output else 0,
        "last_output_s": None if wrote is None else round(now - wrote, 1),
    }


def _tree(root: Entry, pid: int, below: Mapping[int, list[tuple[int, Entry]]]) -> list[Entry]:
    found, parents = [root], [pid]
    for parent in parents:
        found += [entry for _, entry in below.get(parent, ())]
        parents += [child for child, _ in below.get(parent, ())]
    return found
