"""From a table to the text that HCCL reads. Keys that ranklaunch does not know are kept."""

from __future__ import annotations

import json
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.ranktable.model import RankTable, Server


def for_hccl(table: RankTable) -> str:
    """The text for RANK_TABLE_FILE: group_list becomes 1.0, everything else passes through as it is."""
    return to_text(table, "1.0") if table.version == "0.1" else table.text


def to_text(table: RankTable, version: str) -> str:
    """The table in a version. Raises ConfigError where that would lose or invent something."""
    if version == table.version and table.text:
        return table.text
    if version == "1.0" and table.version == "0.1":
        return _dump(_version_1(table))
    if version in ("1.0", "1.2") and table.version == version:
        return _dump(_version_1(table))
    msg = f"a rank table of version {table.version} cannot be written as {version}: {_why(table.version, version)}"
    raise ConfigError(msg)


def _why(old: str, new: str) -> str:
    if new == "1.2":
        return "it does not say which super device each device is"
    if old == "1.2":
        return "its super pods would be lost"
    return "only group_list tables become 1.0; the others are read as they are"


def _version_1(table: RankTable) -> dict[str, Any]:
    listed: dict[str, list[dict[str, Any]]] = {}  # two pods on one host are one server to HCCL
    for server, devices in zip(table.servers, _own_devices(table)):
        listed.setdefault(server.server_id, []).extend(_device(server, i, device) for i, device in enumerate(devices))
    data: dict[str, Any] = {
        "status": "completed",
        "version": "1.2" if table.super_pods else "1.0",
        "server_count": str(len(listed)),
        "server_list": [{"server_id": server_id, "device": devices} for server_id, devices in listed.items()],
    }
    if table.super_pods:
        data["super_pod_list"] = [
            {"super_pod_id": pod.super_pod_id, "server_list": [{"server_id": server_id} for server_id in pod.server_ids]}
            for pod in table.super_pods
        ]
    return data


def _device(server: Server, i: int, known: dict[str, Any]) -> dict[str, Any]:
    device = {**known, "device_id": server.device_ids[i], "rank_id": str(server.ranks[i])}
    if server.device_ips[i]:
        device["device_ip"] = server.device_ips[i]
    if server.super_device_ids:
        device["super_device_id"] = server.super_device_ids[i]
    return device


def _own_devices(table: RankTable) -> list[list[dict[str, Any]]]:
    """The devices as the source has them, in the order of table.servers, for the keys that only they carry."""
    groups = table.source.get("group_list")
    if not groups:
        return [[{} for _ in server.ranks] for server in table.servers]
    by_pod = {str(pod.get("pod_name")): pod["devices"] for group in groups for pod in group.get("instance_list") or ()}
    return [by_pod[server.pod_name] for server in table.servers]


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"
