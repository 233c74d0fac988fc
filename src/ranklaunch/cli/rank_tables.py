"""Rank tables for commands: read from disk, compared with expectations, made from hosts and devices, written."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ranklaunch import ranktable, showing
from ranklaunch.env import parse
from ranklaunch.errors import ConfigError, UsageError, unreadable
from ranklaunch.ranktable import RankTable, make
from ranklaunch.ranktable.check import MOST_RANKS
from ranklaunch.supervise.record import write_file
from ranklaunch.system.disk import DiskFiles

MOST_BYTES = 1 << 20  # size of a file of --hccn
_BLOCK = r"[0-9A-Fa-f.:]+/[0-9]+"
Parsed = TypeVar("Parsed")
Devices = list[list[tuple[str, str]]]  # for each server, (id, address) of each device


def read(path: str) -> RankTable:
    """Return a rank table. Raises ConfigError if it is incomplete or has defects."""
    try:
        return ranktable.load(path, DiskFiles())
    except ranktable.NotReadyError as error:
        msg = f"rank table {showing.one_line(path)}: {error}"
        raise ConfigError(msg) from None


def unexpected(table: RankTable, nodes: int | None, devices: int | None) -> list[str]:
    """Return the differences from an expected size. nodes: number of servers or pods; devices: of each; None: any number."""
    problems = []
    if nodes is not None and len(table.servers) != nodes:
        problems.append(f"the table has {len(table.servers)} nodes, expected {nodes}")
    if devices is not None:
        wrong = [f"node {i} has {server.size}" for i, server in enumerate(table.servers) if server.size != devices]
        if wrong:
            problems.append(f"expected {devices} devices on each node, but {', '.join(wrong[:20])}")
    return problems


def hosts_in(text: str) -> tuple[str, ...]:
    """Return the hosts of --hosts: names or addresses, or one block of addresses. Raises UsageError."""
    return tuple(_parsed("--hosts", make.addresses if re.fullmatch(_BLOCK, text) else parse.hosts, text))


def devices_of(hosts: Sequence[str], counts: str | None, block: str | None, hccn: Sequence[str]) -> Devices:
    """Return the devices of each host. counts: text of --devices. block: text of --device-ips. hccn: files of --hccn. Raises UsageError."""
    if not hccn:
        return _counted(hosts, counts, block)
    if counts or block:
        msg = "--hccn names devices and addresses already: leave --devices and --device-ips out"
        raise UsageError(msg)
    if len(hccn) != len(hosts):
        msg = f"--hccn names {len(hccn)} files for {len(hosts)} hosts: expected one for each"
        raise UsageError(msg)
    return [make.read_hccn(_read(path), showing.one_line(path)) for path in hccn]


def _read(path: str) -> str:
    try:
        text = DiskFiles().text(path, MOST_BYTES)
    except ValueError as error:
        msg = f"--hccn {showing.one_line(path)}: {unreadable(error)}"
        raise UsageError(msg) from None
    if text is None:
        msg = f"--hccn {showing.one_line(path)}: no such file, or it cannot be read"
        raise UsageError(msg)
    return text


def _counted(hosts: Sequence[str], text: str | None, block: str | None) -> Devices:
    if not text:
        msg = "no devices given: expected --devices or --hccn"
        raise UsageError(msg)
    counts = _parsed("--devices", parse.counts, text)
    counts = counts * len(hosts) if len(counts) == 1 else counts
    if len(counts) != len(hosts):
        msg = f"--devices has {len(counts)} numbers for {len(hosts)} hosts: expected one, or one for each"
        raise UsageError(msg)
    if sum(counts) > MOST_RANKS:
        msg = f"--devices: {sum(counts)} devices of all hosts, more than the {MOST_RANKS} that a rank table may have"
        raise UsageError(msg)
    ips: Iterator[str] = _parsed("--device-ips", make.addresses, block) if block else itertools.repeat("")
    devices = [[(str(d), ip) for d, ip in zip(range(n), ips)] for n in counts]
    if [len(each) for each in devices] != list(counts):
        msg = f"--device-ips {block} has too few addresses for {sum(counts)} devices"
        raise UsageError(msg)
    return devices


def _parsed(option: str, kind: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return kind(text)
    except ValueError as error:
        msg = f"{option} {text!r}: {error}"
        raise UsageError(msg) from None


def checked(text: str) -> str:
    """Return the text of a made table, after a check. Raises UsageError for options that make no correct table."""
    try:
        ranktable.parse(text, "of these options")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return text


def write(text: str, path: str | None) -> None:
    """Write a text to a file; to standard output without a path. Raises UsageError."""
    if not path:
        sys.stdout.write(text)
        return
    try:
        write_file(path, text, 0o644)
    except OSError as error:
        msg = f"--output {showing.one_line(path)}: {error}"
        raise UsageError(msg) from None
