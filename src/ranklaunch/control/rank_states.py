"""How the ranks of this node stand, as the kernel and their output have it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ranklaunch.output.pipe import Output
from ranklaunch.plan.model import Plan
from ranklaunch.system import tree
from ranklaunch.system.tree import Entry, Identity

TICK = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "ended", "I": "idle"}
GONE = "gone"
_ELSEWHERE = {"output_bytes": None, "last_output_s": None}


def ranks(
    plan: Plan, processes: Mapping[int, Identity], outputs: Mapping[int, Output], more: Mapping[int, Mapping[str, Any]], now: float
) -> list[dict[str, Any]]:
    """Of each rank of this node: rank, node, pid (null where it is not known or gone), state, cpu_s and rss_kb (of its whole process tree),
    output_bytes (null where it writes through another node), last_output_s: seconds since it wrote, null where it has not, and what else
    is known of it. Of those of other nodes that write through this one: rank, and what is known of their output. now: by the loop's
    clock."""
    below = tree.by_parent()
    entries = {pid: found for children in below.values() for pid, found in children}
    own = () if plan.job.is_idle else plan.job.node.ranks
    found = [{**_rank(plan.job.node_index, rank, processes.get(rank), below, entries), **_ELSEWHERE} for rank in own]
    here = {rank: _written(outputs.get(rank), now) for rank in (*(own if plan.processes else ()), *outputs)}
    carried = [{"rank": rank} for rank in here if rank not in own]
    return [{**each, **here.get(each["rank"], {}), **more.get(each["rank"], {})} for each in (*found, *carried)]


def _rank(
    node: int,
    rank: int,
    process: Identity | None,
    below: Mapping[int, list[tuple[int, Entry]]],
    entries: Mapping[int, Entry],
) -> dict[str, Any]:
    found = entries.get(process.pid) if process else None
    alive = bool(process and found and found.start == process.start)
    all_of_it = _tree(found, process.pid, below) if process and found and alive else []
    return {
        "rank": rank,
        "node": node,
        "pid": process.pid if process and alive else None,
        "state": STATES.get(found.state, found.state) if found and alive else GONE if process else "unknown",
        "cpu_s": round(sum(each.ticks + each.inherited for each in all_of_it) / TICK, 2),
        "rss_kb": sum(each.pages for each in all_of_it) * PAGE_KB,
    }


def _written(output: Output | None, now: float) -> dict[str, Any]:
    wrote = output.written_at if output else None
    return {"output_bytes": output.taken if output else 0, "last_output_s": None if wrote is None else round(now - wrote, 1)}


def _tree(root: Entry, pid: int, below: Mapping[int, list[tuple[int, Entry]]]) -> list[Entry]:
    found, parents = [root], [pid]
    for parent in parents:
        found += [entry for _, entry in below.get(parent, ())]
        parents += [child for child, _ in below.get(parent, ())]
    return found
