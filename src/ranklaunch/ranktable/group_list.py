"""Version 0.1, written by ModelArts and CCE: groups of pods, without ranks.

Ranks follow from the order: groups as in the table, and within a group pods by the number at the end of their names.
"""

from __future__ import annotations

import re

from ranklaunch.ranktable import check
from ranklaunch.ranktable.document import ADDRESS, DEVICE, NUMBER, Document, Json, shown, split
from ranklaunch.ranktable.model import RankTable, Server
from ranklaunch.showing import clipped


def read(document: Document) -> RankTable:
    servers = _pods(document)
    check.every_version(document, servers)
    check.once(document, "pod", (server.pod_name for server in servers))  # not the server_id: two pods may share a server
    check.addresses(document, servers, (server.server_id for server in servers))
    return document.finish(servers)


def progress(data: Json) -> str:
    """Return the progress of a table that grows while pods are placed, for a message; "" for other versions."""
    groups = data.get("group_list")
    if not isinstance(groups, list):
        return ""
    present = wanted = 0
    for group in groups:
        if isinstance(group, dict):
            listed = group.get("instance_list")
            present += len(listed) if isinstance(listed, list) else 0
            number = str(group.get("instance_count", "0"))
            wanted += int(number) if NUMBER.match(number) else 0
    return f"; {present} of {wanted} instances are listed"


def _pods(document: Document) -> list[Server]:
    groups = document.objects(document.data, "group_list", "")
    document.count(document.data, "group_count", len(groups), "", "groups")
    pods: list[Json] = []
    devices: list[list[Json]] = []
    for g, group in enumerate(groups):
        if str(group.get("device_count")) == "0" and not group.get("instance_list"):
            continue
        where = f"group_list[{g}]"
        instances = document.objects(group, "instance_list", where)
        document.count(group, "instance_count", len(instances), where, "instances")
        ordered = sorted(instances, key=lambda i: _ordinal(str(i.get("pod_name", ""))))
        lists = document.lists(ordered, "devices", lambda n, of=ordered, where=where: f"{where} {_pod(of[n])}")  # type: ignore[misc]
        document.count(group, "device_count", sum(map(len, lists)), where, "devices")
        pods += ordered
        devices += lists

    def place(n: int) -> str:
        return f"{_pod(pods[n])} devices"

    names = document.names(pods, "pod_name", lambda n: "a pod's pod_name")
    servers = document.names(pods, "server_id", lambda n: f"{_pod(pods[n])} server_id")
    ids = document.columns(devices, place, "device_id", DEVICE)
    ips = document.columns(devices, place, "device_ip", ADDRESS, optional=True)
    ranks = split(range(sum(map(len, devices))), devices)
    return [Server(*row) for row in zip(servers, ids, ips, ranks, names)]


def _pod(pod: Json) -> str:
    """Return a pod's name for messages: cut, and safe for any JSON value."""
    name = pod.get("pod_name")
    return f"pod {clipped(name) if isinstance(name, str) else shown(name)}"


def _ordinal(name: str) -> tuple[int, str]:
    """Return the sort key of a pod: the number at the end of its name, so that worker-10 comes after worker-9."""
    number = re.search(r"([0-9]{1,18})$", name)
    return (int(number[1]) if number else -1, name)
