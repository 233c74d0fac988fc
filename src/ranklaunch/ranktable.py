"""Rank tables: the file that tells Ascend's HCCL which device of which server has which rank.

Read: group_list ("version 0.1", what ModelArts and CCE write: pods in no order, all scalars text) and 1.0 (what HCCL reads).
Written: 1.0. Field by field: CANN's HCCL documentation of the rank table configuration file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.files import Files, join

MOST_BYTES = 256 * 1024 * 1024
FILE_NAME = "jobstart_hccl.json"  # in the folder that RANK_TABLE_FILE names on ModelArts
DEFAULT_PATH = f"/user/config/{FILE_NAME}"


@dataclass(frozen=True)
class Device:
    """device_id: physical id on its server (may start at 4). device_ip: "" where the table has none."""

    device_id: str
    device_ip: str
    rank: int


@dataclass(frozen=True)
class Pod:
    """One container's part of the table. name: "" in version 1.0, which knows servers only."""

    name: str
    server_id: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class RankTable:
    """A completed table. pods are in rank order; two pods may share a server. source: the text it was read from."""

    version: str
    pods: tuple[Pod, ...]
    source: str

    @property
    def size(self) -> int:
        return sum(len(pod.devices) for pod in self.pods)


class NotReadyError(Exception):
    """The table is absent, half-written or not completed: look again later. Its text says what was seen."""


def path_of(value: str, files: Files) -> str:
    """The file that RANK_TABLE_FILE means: on ModelArts and CCE it names the folder."""
    return join(value, FILE_NAME) if files.is_dir(value) or not value.endswith(".json") else value


def load(path: str, files: Files) -> RankTable:
    """Raises NotReadyError while waiting may help, ConfigError (every defect at once) when it cannot."""
    try:
        text = files.text(path, MOST_BYTES)
    except ValueError as error:
        msg = f"rank table {path}: {error}"
        raise ConfigError(msg) from None
    if text is None:
        msg = "no such file"
        raise NotReadyError(msg)
    return parse(text, path)


def parse(text: str, path: str) -> RankTable:
    if not text.strip():
        msg = "the file is empty"
        raise NotReadyError(msg)
    try:
        data = json.loads(text)
    except RecursionError:
        msg = f"rank table {path}: nested too deeply to be a rank table"
        raise ConfigError(msg) from None
    except ValueError as error:  # half-written files look like this; only the deadline tells them from damaged ones
        msg = f"not JSON (half-written?): {error}"
        raise NotReadyError(msg) from None
    if not isinstance(data, dict):
        msg = f"rank table {path}: expected a JSON object, found {type(data).__name__}"
        raise ConfigError(msg)
    status = data.get("status")
    if status != "completed":
        msg = f"status is {status!r}, not 'completed'"
        raise NotReadyError(msg)
    return _Tables(path, text).read(data)


class _Tables:
    """One reading of one table; collects every defect."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.problems: list[str] = []

    def read(self, data: dict[str, Any]) -> RankTable:
        if "group_list" in data:
            table = RankTable("0.1", tuple(self._ranked(self._groups(data))), self.text)
        elif str(data.get("version")) == "1.0":
            table = RankTable("1.0", tuple(self._servers(data)), self.text)
        else:
            msg = f"rank table {self.path}: version {data.get('version')!r} is none of 0.1 (group_list) and 1.0"
            raise ConfigError(msg)
        self._check(table)
        if self.problems:
            raise ConfigError([f"rank table {self.path}: {problem}" for problem in self.problems])
        return table

    def _groups(self, data: dict[str, Any]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
        """(pod name, server id, [(device id, device ip)]) in rank order: groups as they stand, pods by the number that ends their name."""
        for g, group in enumerate(self._list(data, "group_list", "")):
            where = f"group_list[{g}]"
            instances = self._list(group, "instance_list", where)
            self._count(group, "instance_count", len(instances), where)
            for instance in sorted(instances, key=lambda i: _ordinal(str(i.get("pod_name", "")))):
                pod = self._text(instance, "pod_name", where)
                devices = self._list(instance, "devices", f"{where} pod {pod}")
                yield (
                    pod,
                    self._text(instance, "server_id", f"{where} pod {pod}"),
                    [self._device(d, pod) for d in devices],
                )

    def _ranked(self, pods: Iterator[tuple[str, str, list[tuple[str, str]]]]) -> Iterator[Pod]:
        rank = 0
        for name, server, devices in pods:
            yield Pod(name, server, tuple(Device(device, ip, rank + i) for i, (device, ip) in enumerate(devices)))
            rank += len(devices)

    def _servers(self, data: dict[str, Any]) -> Iterator[Pod]:
        servers = self._list(data, "server_list", "")
        self._count(data, "server_count", len(servers), "")
        for s, server in enumerate(servers):
            where = f"server_list[{s}]"
            name = self._text(server, "server_id", where)
            devices = []
            for entry in self._list(server, "device", where):
                device, ip = self._device(entry, where)
                devices.append(Device(device, ip, self._rank(entry, where)))
            yield Pod("", name, tuple(devices))

    def _check(self, table: RankTable) -> None:
        ranks = [device.rank for pod in table.pods for device in pod.devices]
        if not ranks:
            self.problems.append("no device in it")
        if sorted(ranks) != list(range(len(ranks))):
            self.problems.append(f"rank_id values are not 0 to {len(ranks) - 1}, each once")
        seen: set[tuple[str, str]] = set()
        for pod in table.pods:
            for device in pod.devices:
                key = (pod.server_id, device.device_id)
                if key in seen:
                    self.problems.append(f"device {device.device_id} of server {pod.server_id} stands in it twice")
                seen.add(key)
        names = [pod.name for pod in table.pods if pod.name]
        for name in sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else ():
            self.problems.append(f"pod {name} stands in it twice")

    def _list(self, holder: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
        value = holder.get(key)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
        self.problems.append(f"{_at(where)}{key}: expected a list of objects, found {_kind(value)}")
        return []

    def _text(self, holder: dict[str, Any], key: str, where: str) -> str:
        value = holder.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and re.fullmatch(r"[A-Za-z0-9_.:%-]{1,253}", str(value)):
            return str(value)
        self.problems.append(f"{_at(where)}{key}: expected a name, found {_kind(value)}")
        return ""

    def _device(self, entry: dict[str, Any], where: str) -> tuple[str, str]:
        ip = entry.get("device_ip", "")
        if not isinstance(ip, str) or not re.fullmatch(r"[0-9A-Fa-f.:]{0,45}", ip):
            self.problems.append(f"{where} device_ip: expected an IP address, found {_kind(ip)}")
            ip = ""
        return self._text(entry, "device_id", where), ip

    def _rank(self, entry: dict[str, Any], where: str) -> int:
        value = str(entry.get("rank_id"))
        if re.fullmatch("[0-9]{1,9}", value):
            return int(value)
        self.problems.append(f"{where} rank_id: expected a whole number, found {_kind(entry.get('rank_id'))}")
        return -1

    def _count(self, holder: dict[str, Any], key: str, found: int, where: str) -> None:
        stated = holder.get(key)
        if stated is not None and str(stated) != str(found):
            self.problems.append(f"{_at(where)}{key} is {_kind(stated)}, but {found} are listed")


def to_version_1(table: RankTable) -> str:
    """The text of the table that HCCL reads. A version 1.0 table passes through untouched, unknown keys and all."""
    if table.version == "1.0":
        return table.source
    servers: dict[str, list[dict[str, str]]] = {}  # two pods on one host are one server to HCCL
    for pod in table.pods:
        for device in pod.devices:
            address = {"device_ip": device.device_ip} if device.device_ip else {}
            entry = {"device_id": device.device_id, **address, "rank_id": str(device.rank)}
            servers.setdefault(pod.server_id, []).append(entry)
    listed = [{"server_id": server, "device": devices} for server, devices in servers.items()]
    return json.dumps({"status": "completed", "version": "1.0", "server_count": str(len(listed)), "server_list": listed}) + "\n"


def _ordinal(name: str) -> tuple[int, str]:
    """Sort key: the number that ends a pod name, so that worker-10 comes after worker-9."""
    number = re.search(r"([0-9]{1,18})$", name)
    return (int(number[1]) if number else -1, name)


def _at(where: str) -> str:
    return f"{where}." if where else ""


def _kind(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."
