"""ranklaunch ranktable: show, validate, convert, make and compare rank tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ranklaunch import ranktable, showing
from ranklaunch.cli import rank_tables
from ranklaunch.cli.options import Option
from ranklaunch.env import parse
from ranklaunch.errors import ConfigError, UsageError, counted, nearest
from ranklaunch.ranktable import make, show
from ranklaunch.ranktable.model import VERSIONS

USAGE = "ranklaunch ranktable show|validate|convert|make|diff [OPTIONS] [FILE...]"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n" + "\n".join(f"  {name:10}{do.__doc__}" for name, (do, _) in ACTIONS.items()))
        return 0
    if argv[0] not in ACTIONS:
        msg = f"unknown action {argv[0]!r}: expected one of {', '.join(ACTIONS)}{nearest(argv[0], ACTIONS)}\nusage: {USAGE}"
        raise UsageError(msg)
    do, arguments = ACTIONS[argv[0]]
    parser = _Parser(prog=f"ranklaunch ranktable {argv[0]}", description=do.__doc__, allow_abbrev=False)
    for name, how in arguments.items():
        parser.add_argument(name, **how)
    return do(parser.parse_args(argv[1:]))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        msg = f"{message}\n{self.format_usage().strip()}"
        raise UsageError(msg)


def _show(arguments: argparse.Namespace) -> int:
    """show FILE [--format text|json]: show the rank of each device of each server"""
    table = rank_tables.read(arguments.file)
    if arguments.format == "json":
        _print_json(show.as_json(arguments.file, table))
    else:
        _print(show.as_table(table))
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    """validate FILE [--nodes N --devices M] [--format text|json]: show every defect at once; exit code 0 or 78"""
    try:
        table = rank_tables.read(arguments.file)
        problems = rank_tables.unexpected(table, arguments.nodes, arguments.devices)
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        if arguments.format == "text":
            raise
        _print_json(show.as_json(arguments.file, None, error.problems))
        return error.exit_code
    if arguments.format == "json":
        _print_json(show.as_json(arguments.file, table))
        return 0
    size = f"{counted(len(table.servers), 'node')}, {counted(table.size, 'rank')}"
    _print([f"{arguments.file}: version {table.version}, {size}: valid", *(f"warning: {warning}" for warning in table.warnings)])
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    """convert FILE [--to VERSION] [--output FILE]: write another version; refused if data would be lost or invented"""
    rank_tables.write(ranktable.to_text(rank_tables.read(arguments.file), arguments.to), arguments.output)
    return 0


def _make(arguments: argparse.Namespace) -> int:
    """make --hosts HOSTS (--devices N[,N...] | --hccn FILE...): make a table, for a cluster without a platform that does"""
    hosts = rank_tables.hosts_in(arguments.hosts)
    devices = rank_tables.devices_of(hosts, arguments.devices, arguments.device_ips, arguments.hccn or ())
    rank_tables.write(rank_tables.checked(make.text_of(make.make(hosts, devices), arguments.to)), arguments.output)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    """diff OLD NEW [--format text|json]: show ranks that moved to other devices; exit code 0 if there are none, 1 otherwise"""
    old, new = rank_tables.read(arguments.old), rank_tables.read(arguments.new)
    lines = list(show.differences(old, new))
    if arguments.format == "json":
        _print_json(show.differences_as_json(old, new))
    else:
        _print(lines)
    return 1 if lines else 0


def _number(text: str) -> int:
    try:
        return parse.positive(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


Arguments = dict[str, dict[str, Any]]  # keywords of argparse's add_argument, by name of the argument

_FILE: Arguments = {"file": {}}
_OUTPUT: Arguments = {"--output": {"help": "file to write the table to (default: standard output)"}}
_FORMAT: Arguments = {"--format": {"choices": ("text", "json"), "default": "text", "help": "text for people, json for tools"}}
ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], Arguments]] = {
    "show": (_show, {**_FILE, **_FORMAT}),
    "validate": (_validate, {
        **_FILE,
        "--nodes": {"type": _number, "help": "expected number of servers or pods"},
        "--devices": {"type": _number, "help": "expected devices of each"},
        **_FORMAT,
    }),
    "convert": (_convert, {**_FILE, "--to": {"default": "1.0", "choices": VERSIONS, "help": "version"}, **_OUTPUT}),
    "make": (_make, {
        "--hosts": {"required": True, "help": "names or addresses with commas, or one address block such as 10.0.0.0/24"},
        "--devices": {"help": "devices of each server: one number, or one for each"},
        "--device-ips": {"metavar": "BLOCK", "help": "addresses for the devices, taken in order from a block"},
        "--hccn": {"nargs": "+", "metavar": "FILE", "help": "the /etc/hccn.conf of each server, in the order of --hosts"},
        "--to": {"default": "1.0", "choices": ("0.1", "1.0"), "help": "version"},
        **_OUTPUT,
    }),
    "diff": (_diff, {"old": {}, "new": {}, **_FORMAT}),
}  # fmt: skip
_ALL = {name: how for _, arguments in ACTIONS.values() for name, how in arguments.items() if name.startswith("--")}
OPTIONS = tuple(Option(name, name, how["help"], legal=tuple(how.get("choices", ()))) for name, how in _ALL.items())


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{showing.one_line(line)}\n" for line in lines)


def _print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
