"""ranklaunch ranktable: show, validate, convert, make and compare rank tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping

from ranklaunch import ranktable
from ranklaunch.command import tables
from ranklaunch.errors import ConfigError, UsageError, counted, nearest
from ranklaunch.ranktable import RankTable, make, show
from ranklaunch.ranktable.model import VERSIONS
from ranklaunch.read import parse

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
    _print(show.as_table(tables.read(parser.parse_args(argv).file)))
    return 0


def _validate(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """validate FILE [--nodes N --devices M]: every defect at once; exit code 0 or 78"""
    parser.add_argument("file")
    parser.add_argument("--nodes", type=_number, help="expected number of servers or pods")
    parser.add_argument("--devices", type=_number, help="expected devices of each")
    given = parser.parse_args(argv)
    table = tables.read(given.file)
    problems = tables.unexpected(table, given.nodes, given.devices)
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
    tables.write(ranktable.to_text(tables.read(given.file), given.to), given.output)
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
    hosts = tables.hosts_in(given.hosts)
    devices = tables.devices_of(hosts, given.devices, given.device_ips, given.hccn or ())
    tables.write(make.text_of(make.make(hosts, devices), given.to), given.output)
    return 0


def _diff(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """diff OLD NEW: which ranks moved to other devices; exit code 0 when none did, 1 otherwise"""
    parser.add_argument("old")
    parser.add_argument("new")
    given = parser.parse_args(argv)
    lines = list(show.differences(tables.read(given.old), tables.read(given.new)))
    _print(lines)
    return 1 if lines else 0


ACTIONS: dict[str, Callable[[argparse.ArgumentParser, list[str]], int]] = {
    "show": _show,
    "validate": _validate,
    "convert": _convert,
    "make": _make,
    "diff": _diff,
}


def _number(text: str) -> int:
    try:
        return parse.positive(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _warned(table: RankTable) -> list[str]:
    return [f"warning: {warning}" for warning in table.warnings]


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
