"""ranklaunch ranktable: show, validate, convert, make and compare rank tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ranklaunch import ranktable, showing
from ranklaunch.cli import rank_tables
from ranklaunch.cli.options import Option
from ranklaunch.env import parse
from ranklaunch.errors import ConfigError, UsageError, counted, nearest
from ranklaunch.ranktable import RankTable, make, show
from ranklaunch.ranktable.model import VERSIONS

USAGE = "ranklaunch ranktable show|validate|convert|make|diff [OPTIONS] [FILE...]"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n" + "\n".join(f"  {name:10}{action.does.__doc__}" for name, action in ACTIONS.items()))
        return 0
    if argv[0] not in ACTIONS:
        msg = f"unknown action {argv[0]!r}: expected one of {', '.join(ACTIONS)}{nearest(argv[0], ACTIONS)}\nusage: {USAGE}"
        raise UsageError(msg)
    action = ACTIONS[argv[0]]
    parser = _Parser(prog=f"ranklaunch ranktable {argv[0]}", description=action.does.__doc__, allow_abbrev=False)
    for argument in action.arguments:
        parser.add_argument(argument.name, **argument.how)
    return action.does(parser.parse_args(argv[1:]))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        msg = f"{message}\n{self.format_usage().strip()}"
        raise UsageError(msg)


def _show(given: argparse.Namespace) -> int:
    """show FILE [--format text|json]: which rank is which device of which server"""
    table = rank_tables.read(given.file)
    if given.format == "json":
        _print_json(show.as_json(given.file, table))
    else:
        _print(show.as_table(table))
    return 0


def _validate(given: argparse.Namespace) -> int:
    """validate FILE [--nodes N --devices M] [--format text|json]: every defect at once; exit code 0 or 78"""
    try:
        table = rank_tables.read(given.file)
        problems = rank_tables.unexpected(table, given.nodes, given.devices)
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        if given.format == "text":
            raise
        _print_json(show.as_json(given.file, None, error.problems))
        return error.exit_code
    if given.format == "json":
        _print_json(show.as_json(given.file, table))
        return 0
    size = f"{counted(len(table.servers), 'node')}, {counted(table.size, 'rank')}"
    _print([f"{given.file}: version {table.version}, {size}: valid", *_warned(table)])
    return 0


def _convert(given: argparse.Namespace) -> int:
    """convert FILE [--to VERSION] [--output FILE]: refused where something would be lost or invented"""
    rank_tables.write(ranktable.to_text(rank_tables.read(given.file), given.to), given.output)
    return 0


def _make(given: argparse.Namespace) -> int:
    """make --hosts HOSTS (--devices N[,N...] | --hccn FILE...): a table for a cluster that has no platform to make one"""
    hosts = rank_tables.hosts_in(given.hosts)
    devices = rank_tables.devices_of(hosts, given.devices, given.device_ips, given.hccn or ())
    rank_tables.write(rank_tables.checked(make.text_of(make.make(hosts, devices), given.to)), given.output)
    return 0


def _diff(given: argparse.Namespace) -> int:
    """diff OLD NEW [--format text|json]: which ranks moved to other devices; exit code 0 when none did, 1 otherwise"""
    old, new = rank_tables.read(given.old), rank_tables.read(given.new)
    lines = list(show.differences(old, new))
    if given.format == "json":
        _print_json(show.differences_as_json(old, new))
    else:
        _print(lines)
    return 1 if lines else 0


def _number(text: str) -> int:
    try:
        return parse.positive(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True)
class Argument:
    """how: as argparse takes it."""

    name: str
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def option(self) -> Option | None:
        how = self.how
        return Option(self.name, self.name, how.get("help", ""), legal=tuple(how.get("choices", ()))) if self.name[0] == "-" else None


@dataclass(frozen=True)
class Action:
    does: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...]


_FILE, _OUTPUT = Argument("file"), Argument("--output", {"help": "where the table is written (default: standard output)"})
_FORMAT = Argument("--format", {"choices": ("text", "json"), "default": "text", "help": "text for people, json for tools"})
ACTIONS: dict[str, Action] = {
    "show": Action(_show, (_FILE, _FORMAT)),
    "validate": Action(
        _validate,
        (
            _FILE,
            Argument("--nodes", {"type": _number, "help": "expected number of servers or pods"}),
            Argument("--devices", {"type": _number, "help": "expected devices of each"}),
            _FORMAT,
        ),
    ),
    "convert": Action(_convert, (_FILE, Argument("--to", {"default": "1.0", "choices": VERSIONS, "help": "version"}), _OUTPUT)),
    "make": Action(
        _make,
        (
            Argument("--hosts", {"required": True, "help": "names or addresses with commas, or one address block such as 10.0.0.0/24"}),
            Argument("--devices", {"help": "devices of each server: one number, or one for each"}),
            Argument("--device-ips", {"metavar": "BLOCK", "help": "addresses for the devices, taken in order from a block"}),
            Argument("--hccn", {"nargs": "+", "metavar": "FILE", "help": "the /etc/hccn.conf of each server, in the order of --hosts"}),
            Argument("--to", {"default": "1.0", "choices": ("0.1", "1.0"), "help": "version"}),
            _OUTPUT,
        ),
    ),
    "diff": Action(_diff, (Argument("old"), Argument("new"), _FORMAT)),
}
OPTIONS = tuple(
    {argument.name: argument.option for action in ACTIONS.values() for argument in action.arguments if argument.option}.values()
)


def _warned(table: RankTable) -> list[str]:
    return [f"warning: {warning}" for warning in table.warnings]


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{showing.one_line(line)}\n" for line in lines)


def _print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
