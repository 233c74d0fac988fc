"""Rules for the servers of a table: for every version, and for several."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable

from ranklaunch.ranktable.document import SHOWN, Document
from ranklaunch.ranktable.model import Server

MOST_RANKS = 4_000_000
MOST_DEVICES = 4096  # of one node, with a process for each


def every_version(document: Document, servers: list[Server]) -> None:
    ranks = list(itertools.chain.from_iterable(server.ranks for server in servers))
    if not ranks:
        document.problem("", "no device is in it")
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
        document.problem(where, f"{what} '{name}' is in it {counted[name]} times")


def addresses(document: Document, servers: list[Server], groups: Iterable[str], what: str = "servers") -> None:
    """Warn of devices without device_ip: HCCL needs this to reach other servers' devices, in version 1.2 other super pods'.

    groups: names of the servers, or of the super pods. One group does without."""
    if len(set(groups)) < 2:
        return
    bare = sorted({server.server_id for server in servers if "" in server.device_ips})
    if bare:
        named = ", ".join(bare[:SHOWN])
        document.warnings.append(f"no device_ip for some devices of {named}: devices of several {what} reach each other by it")


def _check_ranks(document: Document, ranks: list[int]) -> None:
    counted = collections.Counter(rank for rank in ranks if rank >= 0)
    for rank in sorted(rank for rank, number in counted.items() if number > 1):
        document.problem("", f"rank {rank} is given {counted[rank]} times")
    missing = sorted(set(range(len(ranks))) - counted.keys())
    if missing:
        named = ", ".join(map(str, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
        document.problem("", f"ranks are not 0 to {len(ranks) - 1}, each once: {named} missing")


def _check_blocks(document: Document, servers: list[Server]) -> None:
    """Report servers whose ranks are not one block of consecutive ranks: HCCL refuses them. Pods of one server count together."""
    of_server: dict[str, list[int]] = {}
    for server in servers:
        of_server.setdefault(server.server_id, []).extend(server.ranks)
    for name, ranks in of_server.items():
        if name and ranks and max(ranks) - min(ranks) >= len(ranks):
            listed = ", ".join(map(str, sorted(ranks)[:SHOWN])) + (", ..." if len(ranks) > SHOWN else "")
            document.problem("", f"server '{name}' has ranks {listed}: HCCL takes only consecutive ranks of one server")


def _check_devices(document: Document, servers: list[Server]) -> None:
    of_server: dict[str, list[str]] = {}
    for n, server in enumerate(servers):
        of_server.setdefault(server.server_id or f"node {n}", []).extend(server.device_ids)
    for name, devices in of_server.items():
        if len(set(devices)) < len(devices):
            counted = collections.Counter(devices)
            twice = ", ".join(sorted(device for device, number in counted.items() if number > 1)[:SHOWN])
            document.problem("", f"server '{name}' has devices more than once: {twice}")
