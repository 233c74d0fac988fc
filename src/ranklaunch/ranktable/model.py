"""Rank table, the same for every version of the file. Devices are columns, not objects: jobs have 100,000 devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

VERSIONS = ("0.1", "1.0", "1.2", "2.0")


class Server(NamedTuple):
    """Devices of one container: a pod of group_list, a server of 1.x, or a node of 2.0 (without server_id).

    device_ids: physical ids on the host (may start at 4). device_ips: "" for a device without one. All columns have equal length.
    """

    server_id: str
    device_ids: tuple[str, ...]
    device_ips: tuple[str, ...]
    ranks: tuple[int, ...]
    pod_name: str = ""
    container_ip: str = ""
    host_ip: str = ""
    super_device_ids: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.ranks)


@dataclass(frozen=True)
class SuperPod:
    """Servers that one super node joins (version 1.2)."""

    super_pod_id: str
    server_ids: tuple[str, ...]


@dataclass(frozen=True)
class RankTable:
    """A completed table. servers: in rank order of their first devices; two pods may share a server_id.

    source: the original JSON; its unknown keys are kept when the table is written. warnings: odd but not wrong content.
    """

    version: str
    servers: tuple[Server, ...]
    super_pods: tuple[SuperPod, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(server.size for server in self.servers)


class NotReadyError(Exception):
    """A table that is absent, half-written or not completed, and may be complete later. The text says what the file has now."""
