"""Making of rank tables without a platform: for on-premise clusters, and for tests."""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.ranktable.model import RankTable, Server
from ranklaunch.ranktable.write import to_text

MOST_ADDRESSES = 1_000_000
_HCCN = re.compile(r"address_([0-9]{1,4})\s*=\s*(\S+)")


def make(hosts: Sequence[str], devices: Sequence[Sequence[tuple[str, str]]]) -> RankTable:
    """Return a table of version 1.0, with ranks in the order of servers and devices. devices: (device id, device ip) of each server's
    devices; ip "" if unknown."""
    firsts = itertools.accumulate([0, *map(len, devices)])
    servers = tuple(
        Server(
            server_id=host,
            device_ids=tuple(device for device, _ in of_host),
            device_ips=tuple(ip for _, ip in of_host),
            ranks=tuple(range(first, first + len(of_host))),
        )
        for host, of_host, first in zip(hosts, devices, firsts)
    )
    return RankTable("1.0", servers)


def text_of(table: RankTable, version: str, job: str = "job") -> str:
    """Return a made table as text: version 1.0, or version 0.1 as a platform writes it for pods named JOB-worker-N."""
    if version != "0.1":
        return to_text(table, version)
    pods: list[dict[str, Any]] = [
        {
            "pod_name": f"{job}-worker-{i}",
            "server_id": server.server_id,
            "devices": [{"device_id": d, **({"device_ip": ip} if ip else {})} for d, ip in zip(server.device_ids, server.device_ips)],
        }
        for i, server in enumerate(table.servers)
    ]
    group = {"group_name": "worker", "device_count": str(table.size), "instance_count": str(len(pods)), "instance_list": pods}
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group]}) + "\n"


def read_hccn(text: str, where: str) -> list[tuple[str, str]]:
    """Return (device id, device ip) for each line address_N=IP of a server's /etc/hccn.conf, ordered by N. Raises ConfigError for a wrong
    address, and without such a line. where: name of the file, for messages."""
    devices = {}
    for line in text.splitlines():
        match = _HCCN.fullmatch(line.strip())
        if match:
            try:
                devices[int(match[1])] = str(ipaddress.ip_address(match[2]))
            except ValueError as error:
                msg = f"{where}: {line.strip()!r}: {error}"
                raise ConfigError(msg) from None
    if not devices:
        msg = f"{where}: no line address_N=IP; expected a server's /etc/hccn.conf"
        raise ConfigError(msg)
    return [(str(device), ip) for device, ip in sorted(devices.items())]


def addresses(block: str, most: int | None = None) -> Iterator[str]:
    """Return the host addresses of a block such as 10.0.0.0/24, in order: all, or the first `most`. Raises ValueError for a wrong block."""
    try:
        network = ipaddress.ip_network(block)
    except ValueError as error:
        msg = f"expected a block of addresses such as 10.0.0.0/24: {error}"
        raise ValueError(msg) from None
    if most is None and network.num_addresses > MOST_ADDRESSES:
        msg = f"expected at most {MOST_ADDRESSES} addresses"
        raise ValueError(msg)
    return map(str, itertools.islice(network.hosts(), most))
