"""Rank tables and their differences as text and as JSON, for `ranklaunch ranktable`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranklaunch.ranktable.model import RankTable, Server

COLUMNS = ("rank", "node", "server", "pod", "device", "device ip")
SCHEMA, SCHEMA_OF_DIFFERENCES = "ranklaunch.ranktable/1", "ranklaunch.ranktable-diff/1"


def as_table(table: RankTable) -> Iterator[str]:
    """Yield lines: a headline, one row for each rank, super pods and warnings."""
    yield f"version {table.version}, {len(table.servers)} {_nodes(table)}, {table.size} ranks"
    rows = [COLUMNS, *sorted(_rows(table), key=lambda row: int(row[0]))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    used = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows[1:])]
    for row in rows:
        yield "  ".join(row[i].rjust(widths[i]) if i == 0 else row[i].ljust(widths[i]) for i in used).rstrip()
    for pod in table.super_pods:
        yield f"super pod {pod.super_pod_id}: {', '.join(pod.server_ids)}"
    for warning in table.warnings:
        yield f"warning: {warning}"


def as_json(path: str, table: RankTable | None, problems: Sequence[str] = ()) -> dict[str, Any]:
    """Return a table as JSON. table: None if problems prevent reading it."""
    return {
        "schema": SCHEMA,
        "file": path,
        "version": table.version if table else None,
        "ranks": sorted(_ranks(table), key=lambda rank: int(rank["rank"])) if table else [],
        "super_pods": [{"id": pod.super_pod_id, "servers": list(pod.server_ids)} for pod in (table.super_pods if table else ())],
        "warnings": list(table.warnings) if table else [],
        "problems": list(problems),
    }


def differences_as_json(old: RankTable, new: RankTable) -> dict[str, Any]:
    """Return the ranks that differ between two tables as JSON, each with its device before and after."""
    before, after = ({rank["rank"]: rank for rank in _ranks(table)} for table in (old, new))
    moved = _moved(old, new)
    return {
        "schema": SCHEMA_OF_DIFFERENCES,
        "versions": [old.version, new.version],
        "changes": [{"rank": rank, "before": before.get(rank), "after": after.get(rank)} for rank in moved],
    }


def differences(old: RankTable, new: RankTable) -> Iterator[str]:
    """Yield lines that start with - for a removed rank, + for a new one, ~ for a change; none if every rank has the same device."""
    if old.version != new.version:
        yield f"~ version {old.version} -> {new.version}"
    before, after = _places(old), _places(new)
    for rank in _moved(old, new):
        old_place, new_place = before.get(rank), after.get(rank)
        if old_place is None:
            yield f"+ rank {rank}: {new_place}"
        elif new_place is None:
            yield f"- rank {rank}: {old_place}"
        else:
            yield f"~ rank {rank}: {old_place} -> {new_place}"


def _rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    for node, server in enumerate(table.servers):
        for i, rank in enumerate(server.ranks):
            yield str(rank), str(node), server.server_id, server.pod_name, server.device_ids[i], server.device_ips[i]


def _ranks(table: RankTable) -> Iterator[dict[str, Any]]:
    names = ("rank", "node", "server", "pod", "device", "device_ip")
    return ({**dict(zip(names, row)), "rank": int(row[0]), "node": int(row[1])} for row in _rows(table))


def _moved(old: RankTable, new: RankTable) -> list[int]:
    """Return the ranks that have another device, or are in one table only."""
    before, after = _places(old), _places(new)
    return [rank for rank in sorted(before.keys() | after.keys()) if before.get(rank) != after.get(rank)]


def _places(table: RankTable) -> dict[int, str]:
    return {rank: _place(server, i) for server in table.servers for i, rank in enumerate(server.ranks)}


def _place(server: Server, i: int) -> str:
    ip = f" ({server.device_ips[i]})" if server.device_ips[i] else ""
    return f"{server.server_id or 'node'} device {server.device_ids[i]}{ip}"


def _nodes(table: RankTable) -> str:
    return {"0.1": "pods", "2.0": "nodes"}.get(table.version, "servers")
