"""ranklaunch ranktable: show, validate, convert, make and compare rank tables."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping

from ranklaunch import ranktable
from ranklaunch.errors import ConfigError, UsageError, counted, nearest
from ranklaunch.ranktable import RankTable, make, show
from ranklaunch.ranktable.model import VERSIONS
from ranklaunch.read import parse
from ranklaunch.supervise.record import write_file
from ranklaunch.system.disk import DiskFiles

USAGE = "ranklaunch ranktable show|validate|convert|make|diff [OPTIONS] [FILE...]"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n" + "\n".join(f"  {name:10}{action.__doc__}" for name, action in ACTIONS.items()))
        return 0
    if argv[0] not in ACTIONS:
        msg = f"unknown action {argv[0]!r}: expected one of {', '.join(ACTIONS)}{nearest(argv[0], ACTIONS)}\nusage: {USAGE}"
        raise UsageError(msg)
    parser = _Parser(prog=f"ranklaunch ranktable {argv[0]}", description=ACTIONS[argv[0]].__doc__, allow_abbrev=False)
    return ACTIONS[argv[0]](parser, argv[1:])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        msg = f"{message}\n{self.format_usage().strip()}"
        raise UsageError(msg)


def _show(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """show FILE: which rank is which device of which server"""
    parser.add_argument("file")
    _print(show.as_table(_read(parser.parse_args(argv).file)))
    return 0


def _validate(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """validate FILE [--nodes N --devices M]: every defect at once; exit code 0 or 78"""
    parser.add_argument("file")
    parser.add_argument("--nodes", type=_number, help="expected number of servers or pods")
    parser.add_argument("--devices", type=_number, help="expected devices of each")
    given = parser.parse_args(argv)
    table = _read(given.file)
    problems = _unexpected(table, given.nodes, given.devices)
    if problems:
        raise ConfigError(problems)
    size = f"{counted(len(table.servers), 'node')}, {counted(table.size, 'rank')}"
    _print([f"{given.file}: version {table.version}, {size}: valid", *_warned(table)])
    return 0


def _convert(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """convert FILE [--to VERSION] [--output FILE]: refused where something would be lost or invented"""
    parser.add_argument("file")
    parser.add_argument("--to", default="1.0", choices=VERSIONS)
    parser.add_argument("--output")
    given = parser.parse_args(argv)
    _write(ranktable.to_text(_read(given.file), given.to), given.output)
    return 0


def _make(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """make --hosts HOSTS (--devices N[,N...] | --hccn FILE...): a table for a cluster that has no platform to make one"""
    parser.add_argument("--hosts", required=True, help="names or addresses with commas, or one address block such as 10.0.0.0/24")
    parser.add_argument("--devices", help="devices of each server: one number, or one for each")
    parser.add_argument("--device-ips", metavar="BLOCK", help="addresses for the devices, taken in order from a block")
    parser.add_argument("--hccn", nargs="+", metavar="FILE", help="the /etc/hccn.conf of each server, in the order of --hosts")
    parser.add_argument("--to", default="1.0", choices=("0.1", "1.0"))
    parser.add_argument("--output")
    given = parser.parse_args(argv)
    hosts = tuple(make.addresses(given.hosts)) if "/" in given.hosts else _parsed("--hosts", parse.hosts, given.hosts)
    devices = _hccn(given, hosts) if given.hccn else _counted(given, hosts)
    _write(make.text_of(make.make(hosts, devices), given.to), given.output)
    return 0


def _diff(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """diff OLD NEW: which ranks moved to other devices; exit code 0 when none did, 1 otherwise"""
    parser.add_argument("old")
    parser.add_argument("new")
    given = parser.parse_args(argv)
    lines = list(show.differences(_read(given.old), _read(given.new)))
    _print(lines)
    return 1 if lines else 0


ACTIONS: dict[str, Callable[[argparse.ArgumentParser, list[str]], int]] = {
    "show": _show,
    "validate": _validate,
    "convert": _convert,
    "make": _make,
    "diff": _diff,
}


def _read(path: str) -> RankTable:
    try:
        return ranktable.load(path, DiskFiles())
    except ranktable.NotReadyError as error:
        msg = f"rank table {path}: {error}"
        raise ConfigError(msg) from None


def _unexpected(table: RankTable, nodes: int | None, devices: int | None) -> list[str]:
    problems = []
    if nodes is not None and len(table.servers) != nodes:
        problems.append(f"{len(table.servers)} nodes are in the table, expected {nodes}")
    if devices is not None:
        wrong = [f"node {i} has {server.size}" for i, server in enumerate(table.servers) if server.size != devices]
        if wrong:
            problems.append(f"expected {devices} devices on each node, but {', '.join(wrong[:20])}")
    return problems


def _hccn(given: argparse.Namespace, hosts: tuple[str, ...]) -> list[list[tuple[str, str]]]:
    if given.devices or given.device_ips:
        msg = "--hccn says which devices and addresses there are: leave --devices and --device-ips out"
        raise UsageError(msg)
    if len(given.hccn) != len(hosts):
        msg = f"--hccn names {len(given.hccn)} files for {len(hosts)} hosts: expected one for each"
        raise UsageError(msg)
    files = DiskFiles()
    texts = [(path, files.text(path, 1 << 20)) for path in given.hccn]
    missing = [path for path, text in texts if text is None]
    if missing:
        msg = f"cannot read {', '.join(missing)}"
        raise UsageError(msg)
    return [make.read_hccn(text or "", path) for path, text in texts]


def _counted(given: argparse.Namespace, hosts: tuple[str, ...]) -> list[list[tuple[str, str]]]:
    if not given.devices:
        msg = "either --devices or --hccn must say which devices the servers have"
        raise UsageError(msg)
    counts = _parsed("--devices", parse.counts, given.devices)
    counts = counts * len(hosts) if len(counts) == 1 else counts
    if len(counts) != len(hosts):
        msg = f"--devices has {len(counts)} numbers for {len(hosts)} hosts: expected one, or one for each"
        raise UsageError(msg)
    ips: Iterator[str] = make.addresses(given.device_ips) if given.device_ips else itertools.repeat("")
    devices = [[(str(d), ip) for d, ip in zip(range(n), ips)] for n in counts]
    if [len(own) for own in devices] != list(counts):
        msg = f"--device-ips {given.device_ips} has too few addresses for {sum(counts)} devices"
        raise UsageError(msg)
    return devices


def _parsed(option: str, kind: Callable[[str], tuple[object, ...]], text: str):  # type: ignore[no-untyped-def]
    try:
        return kind(text)
    except ValueError as error:
        msg = f"{option} {text!r}: {error}"
        raise UsageError(msg) from None


def _number(text: str) -> int:
    try:
        return parse.positive(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _warned(table: RankTable) -> list[str]:
    return [f"warning: {warning}" for warning in table.warnings]


def _write(text: str, path: str | None) -> None:
    if not path:
        sys.stdout.write(text)
        return
    try:
        write_file(path, text, 0o644)
    except OSError as error:
        msg = f"--output {path}: {error}"
        raise UsageError(msg) from None


def _print(lines: Iterator[str] | list[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
