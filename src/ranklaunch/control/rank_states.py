"""States of the ranks of this node, from /proc and from their output."""

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
_NO_OUTPUT_HERE = {"output_bytes": None, "last_output_s": None}  # of a rank whose output another node reads
_Children = Mapping[int, list[tuple[int, Entry]]]  # by parent


def ranks(
    plan: Plan, processes: Mapping[int, Identity], outputs: Mapping[int, Output], more: Mapping[int, Mapping[str, Any]], now: float
) -> list[dict[str, Any]]:
    """Return the state of each rank of this node.

    Fields: rank, node, pid (None if unknown or gone), state, cpu_s and rss_kb of its process tree, output_bytes (None if another node
    reads its output), last_output_s (seconds since its last output; None before the first), and the fields in `more`.

    Ranks of other nodes whose output is read here have only rank and the fields of output. now: by the loop's clock.
    """
    children_of = tree.by_parent()
    entries = {Identity(pid, entry.start): entry for children in children_of.values() for pid, entry in children}
    local = () if plan.job.is_idle else plan.job.node.ranks
    states = [
        {"rank": rank, "node": plan.job.node_index, **_process(processes.get(rank), children_of, entries), **_NO_OUTPUT_HERE}
        for rank in local
    ]
    here = {rank: _written(outputs.get(rank), now) for rank in (*(local if plan.processes else ()), *outputs)}
    carried = [{"rank": rank} for rank in here if rank not in local]
    return [{**each, **here.get(each["rank"], {}), **more.get(each["rank"], {})} for each in (*states, *carried)]


def _process(process: Identity | None, children_of: _Children, entries: Mapping[Identity, Entry]) -> dict[str, Any]:
    root = entries.get(process) if process else None
    whole = _tree(root, process.pid, children_of) if process and root else []
    return {
        "pid": process.pid if process and root else None,
        "state": STATES.get(root.state, root.state) if root else GONE if process else "unknown",
        "cpu_s": round(sum(each.ticks + each.inherited for each in whole) / TICK, 2),
        "rss_kb": sum(each.pages for each in whole) * PAGE_KB,
    }


def _written(output: Output | None, now: float) -> dict[str, Any]:
    wrote = output.written_at if output else None
    return {"output_bytes": output.taken if output else 0, "last_output_s": None if wrote is None else round(now - wrote, 1)}


def _tree(root: Entry, pid: int, children_of: _Children) -> list[Entry]:
    entries, parents = [root], [pid]
    for parent in parents:
        entries += [entry for _, entry in children_of.get(parent, ())]
        parents += [child for child, _ in children_of.get(parent, ())]
    return entries
