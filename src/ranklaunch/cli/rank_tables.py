"""Rank tables on the disk and from a command line: read, compared with what is expected, made of hosts and devices, written."""

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

MOST_BYTES = 1 << 20  # of a file of --hccn
_BLOCK = r"[0-9A-Fa-f.:]+/[0-9]+"
Parsed = TypeVar("Parsed")
Devices = list[list[tuple[str, str]]]  # of each server: (id, address) of each


def read(path: str) -> RankTable:
    """Raises ConfigError where it is not whole yet, or has defects."""
    try:
        return ranktable.load(path, DiskFiles())
    except ranktable.NotReadyError as error:
        msg = f"rank table {showing.one_line(path)}: {error}"
        raise ConfigError(msg) from None


def unexpected(table: RankTable, nodes: int | None, devices: int | None) -> list[str]:
    """What of a table is not as expected. nodes: how many servers or pods; devices: of each; None: any number."""
    problems = []
    if nodes is not None and len(table.servers) != nodes:
        problems.append(f"{len(table.servers)} nodes are in the table, expected {nodes}")
    if devices is not None:
        wrong = [f"node {i} has {server.size}" for i, server in enumerate(table.servers) if server.size != devices]
        if wrong:
            problems.append(f"expected {devices} devices on each node, but {', '.join(wrong[:20])}")
    return problems


def hosts_in(text: str) -> tuple[str, ...]:
    """Of --hosts: names or addresses, or one block of addresses."""
    return tuple(_parsed("--hosts", make.addresses if re.fullmatch(_BLOCK, text) else parse.hosts, text))


def devices_of(hosts: Sequence[str], counts: str | None, block: str | None, hccn: Sequence[str]) -> Devices:
    """Of each host. counts: the text of --devices; block: that of --device-ips; hccn: the files of --hccn. Raises UsageError."""
    if not hccn:
        return _counted(hosts, counts, block)
    if counts or block:
        msg = "--hccn says which devices and addresses there are: leave --devices and --device-ips out"
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
        msg = "either --devices or --hccn must say which devices the servers have"
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
    if [len(own) for own in devices] != list(counts):
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
    """A table that was made, in which nothing is wrong. Raises UsageError."""
    try:
        ranktable.parse(text, "of these options")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return text


def write(text: str, path: str | None) -> None:
    """To stdout where no path is given."""
    if not path:
        sys.stdout.write(text)
        return
    try:
        write_file(path, text, 0o644)
    except OSError as error:
        msg = f"--output {showing.one_line(path)}: {error}"
        raise UsageError(msg) from None
