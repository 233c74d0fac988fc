"""One rank table, whatever version it was read from. Columns instead of an object per device: jobs have 100,000 of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERSIONS = ("0.1", "1.0", "1.2", "2.0")


@dataclass(frozen=True)
class Server:
    """The devices of one container: a pod of group_list, a server of 1.x; in 2.0, which knows no servers, all ranks in one.

    device_ids: physical ids on the host (may start at 4). device_ips: "" where the table has none. All columns are of equal length.
    """

    server_id: str
    device_ids: tuple[str, ...]
    device_ips: tuple[str, ...]
    ranks: tuple[int, ...]
    pod_name: str = ""
    container_ip: str = ""
    host_ip: str = ""
    super_device_ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True)
class SuperPod:
    """Servers that one super node joins (version 1.2)."""

    super_pod_id: str
    server_ids: tuple[str, ...]


@dataclass(frozen=True)
class RankTable:
    """A completed table. servers: in rank order of their first devices; two pods may share a server_id.

    source: the JSON that it was read from, whose unknown keys are kept when it is written. warnings: what is odd but not wrong.
    """

    version: str
    servers: tuple[Server, ...]
    super_pods: tuple[SuperPod, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(map(len, self.servers))


class NotReadyError(Exception):
    """The table is absent, half-written or not completed: look again later. Its text says what was seen."""
