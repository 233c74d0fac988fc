"""Version 0.1, which ModelArts and CCE write: pods in no order, ranks by the number that ends the pod's name, groups as they stand."""

from __future__ import annotations

import re

from ranklaunch.ranktable import check
from ranklaunch.ranktable.document import ADDRESS, DEVICE, NUMBER, Document, Json, shown, split
from ranklaunch.ranktable.model import RankTable, Server
from ranklaunch.showing import clipped


def read(document: Document) -> RankTable:
    servers = _pods(document)
    check.every_version(document, servers)
    check.once(document, "pod", (server.pod_name for server in servers))  # two of them may share a server
    check.addresses(document, servers, (server.server_id for server in servers))
    return document.finish(servers)


def progress(data: Json) -> str:
    """Return how much is filled in so far; "" for other versions. These tables grow while pods are placed."""
    groups = data.get("group_list")
    if not isinstance(groups, list):
        return ""
    seen = wanted = 0
    for group in groups:
        if isinstance(group, dict):
            listed = group.get("instance_list")
            seen += len(listed) if isinstance(listed, list) else 0
            number = str(group.get("instance_count", "0"))
            wanted += int(number) if NUMBER.match(number) else 0
    return f"; {seen} of {wanted} instances are in it"


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
        own = sorted(instances, key=lambda i: _ordinal(str(i.get("pod_name", ""))))
        lists = document.lists(own, "devices", lambda n, own=own, where=where: f"{where} {_pod(own[n])}")  # type: ignore[misc]
        document.count(group, "device_count", sum(map(len, lists)), where, "devices")
        pods += own
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
    """For messages: a name may be anything."""
    name = pod.get("pod_name")
    return f"pod {clipped(name) if isinstance(name, str) else shown(name)}"


def _ordinal(name: str) -> tuple[int, str]:
    """Sort key: the number that ends a pod's name, so that worker-10 comes after worker-9."""
    number = re.search(r"([0-9]{1,18})$", name)
    return (int(number[1]) if number else -1, name)
