"""Version 2.0, without servers: the node of each rank follows from local_id, starting at 0 on every node."""

from __future__ import annotations

from ranklaunch.ranktable import check
from ranklaunch.ranktable.document import DEVICE, NUMBER, Document, Json
from ranklaunch.ranktable.model import RankTable, Server


def read(document: Document) -> RankTable:
    servers = _nodes(document)
    check.every_version(document, servers)
    return document.finish(servers)


def _nodes(document: Document) -> list[Server]:
    listed = document.objects(document.data, "rank_list", "")
    document.count(document.data, "rank_count", len(listed), "", "ranks")
    rows = [_row(document, entry, f"rank_list[{i}]") for i, entry in enumerate(listed)]
    nodes: list[list[tuple[int, int, str]]] = []
    for row in sorted(rows):
        if row[1] == 0 or not nodes:
            nodes.append([])
        nodes[-1].append(row)
        if row[1] != len(nodes[-1]) - 1:
            document.problem(
                "", f"rank {row[0]} has local_id {row[1]}, expected {len(nodes[-1]) - 1}: local ids count up from 0 on each node"
            )
    return [_node_of(node) for node in nodes]


def _row(document: Document, entry: Json, where: str) -> tuple[int, int, str]:
    rank = document.scalar(entry.get("rank_id"), f"{where}.rank_id", NUMBER)
    local = document.scalar(entry.get("local_id"), f"{where}.local_id", NUMBER)
    device = document.scalar(entry.get("device_id"), f"{where}.device_id", DEVICE)
    return (int(rank or -1), int(local or -1), device)


def _node_of(rows: list[tuple[int, int, str]]) -> Server:
    return Server(
        server_id="",
        device_ids=tuple(device for _, _, device in rows),
        device_ips=("",) * len(rows),
        ranks=tuple(rank for rank, _, _ in rows),
    )
