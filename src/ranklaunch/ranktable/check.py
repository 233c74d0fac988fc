"""Checks of the servers of a rank table: one set for every version, and further ones for some versions."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable

from ranklaunch.ranktable.document import SHOWN, Document
from ranklaunch.ranktable.model import Server

MOST_RANKS = 4_000_000
MOST_DEVICES = 4096  # of one node: each device has a process


def every_version(document: Document, servers: list[Server]) -> None:
    """Report defects that no version may have: ranks, blocks of ranks, devices and addresses."""
    ranks = list(itertools.chain.from_iterable(server.ranks for server in servers))
    if not ranks:
        document.problem("", "no device is listed")
    if len(ranks) > MOST_RANKS:
        document.problem("", f"{len(ranks)} ranks, more than {MOST_RANKS}")
    if sorted(ranks) != list(range(len(ranks))):
        _check_ranks(document, ranks)
    else:
        _check_blocks(document, servers)
    _check_devices(document, servers)
    once(document, "device_ip", itertools.chain.from_iterable(server.device_ips for server in servers))
    for server in servers if ranks else ():
        if not server.ranks:
            document.problem("", f"server '{server.server_id}' has no devices")
        elif len(server.ranks) > MOST_DEVICES:
            document.problem("", f"server '{server.server_id}' has {len(server.ranks)} devices, more than {MOST_DEVICES}")


def once(document: Document, what: str, names: Iterable[str], where: str = "") -> None:
    """Report names with several occurrences in the table, or in its part named by `where`."""
    listed = list(filter(None, names))
    if len(set(listed)) == len(listed):
        return
    counted = collections.Counter(listed)
    for name in sorted(name for name, number in counted.items() if number > 1):
        document.problem(where, f"{what} '{name}' is listed {counted[name]} times")


def addresses(document: Document, servers: list[Server], groups: Iterable[str], what: str = "servers") -> None:
    """Warn of devices without device_ip. HCCL needs these addresses between servers; in version 1.2, between super pods.

    groups: names of the servers, or of the super pods. One group alone needs no addresses.
    """
    if len(set(groups)) < 2:
        return
    bare = sorted({server.server_id for server in servers if "" in server.device_ips})
    if bare:
        named = ", ".join(bare[:SHOWN])
        document.warnings.append(f"no device_ip for some devices of {named}: HCCL needs it between {what}")


def _check_ranks(document: Document, ranks: list[int]) -> None:
    counted = collections.Counter(rank for rank in ranks if rank >= 0)
    for rank in sorted(rank for rank, number in counted.items() if number > 1):
        document.problem("", f"rank {rank} is listed {counted[rank]} times")
    missing = sorted(set(range(len(ranks))) - counted.keys())
    if missing:
        named = ", ".join(map(str, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
        document.problem("", f"ranks are not 0 to {len(ranks) - 1}, each once: {named} missing")


def _check_blocks(document: Document, servers: list[Server]) -> None:
    """Report servers whose ranks are not one block of consecutive ranks: HCCL refuses them. Pods of one server count together."""
    ranks_by_server: dict[str, list[int]] = {}
    for server in servers:
        ranks_by_server.setdefault(server.server_id, []).extend(server.ranks)
    for name, ranks in ranks_by_server.items():
        if name and ranks and max(ranks) - min(ranks) >= len(ranks):
            listed = ", ".join(map(str, sorted(ranks)[:SHOWN])) + (", ..." if len(ranks) > SHOWN else "")
            document.problem("", f"server '{name}' has ranks {listed}: HCCL takes only consecutive ranks of one server")


def _check_devices(document: Document, servers: list[Server]) -> None:
    devices_by_server: dict[str, list[str]] = {}
    for n, server in enumerate(servers):
        devices_by_server.setdefault(server.server_id or f"node {n}", []).extend(server.device_ids)
    for name, devices in devices_by_server.items():
        if len(set(devices)) < len(devices):
            counted = collections.Counter(devices)
            twice = ", ".join(sorted(device for device, number in counted.items() if number > 1)[:SHOWN])
            document.problem("", f"server '{name}' lists devices more than once: {twice}")
