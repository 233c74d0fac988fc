"""Writing of rank tables for HCCL. Keys that ranklaunch does not know are kept."""

from __future__ import annotations

import json
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.ranktable.model import RankTable, Server


def for_hccl(table: RankTable) -> str:
    """Return the text for RANK_TABLE_FILE: a group_list table as version 1.0, any other table unchanged."""
    return to_text(table, "1.0") if table.version == "0.1" else table.text


def to_text(table: RankTable, version: str) -> str:
    """Return a table as text of a version. Raises ConfigError if the other version needs unknown values, or has no place for known ones."""
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
        return "it has no super_device_id for its devices"
    if old == "1.2":
        return "its super pods would be lost"
    return "only group_list tables can be written as 1.0; other tables need no conversion"


def _version_1(table: RankTable) -> dict[str, Any]:
    listed: dict[str, list[dict[str, Any]]] = {}  # two pods on one host are one server to HCCL
    for server, devices in zip(table.servers, _source_devices(table)):
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


def _source_devices(table: RankTable) -> list[list[dict[str, Any]]]:
    """Return the devices of a group_list as the source has them, with unknown keys, in the order of table.servers."""
    groups = table.source.get("group_list")
    if not groups:
        return [[{} for _ in server.ranks] for server in table.servers]
    by_pod = {str(pod.get("pod_name")): pod["devices"] for group in groups for pod in group.get("instance_list") or ()}
    return [by_pod[server.pod_name] for server in table.servers]


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"
