"""Command lines: options first, then PROGRAM and everything after it, untouched."""

from __future__ import annotations

import functools
import json
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ranklaunch import reading
from ranklaunch.adapters import platforms
from ranklaunch.entrypoints.disk import DiskFiles
from ranklaunch.errors import ConfigError, UsageError, nearest
from ranklaunch.files import NoFiles
from ranklaunch.job import Program
from ranklaunch.planning import Request, every_variable
from ranklaunch.settings import ROOT_ACCOUNT, Account, Reader, Variable
from ranklaunch.values import Value

MOST_ENV_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z_][^=\s]*")  # shells export functions as BASH_FUNC_x%%


class Parser:
    """Options of one command, each of one variable: --name VALUE, --name=VALUE, or --name alone for a switch. No abbreviations: options
    of later versions must not change a meaning. Those that only methods and platforms read come when one is asked for, since to know
    them is to import all of these."""

    def __init__(self, command: str, description: str, usage: str, own: Iterable[Variable[object]] = ()) -> None:
        self._command, self._description, self._usage = command, description, usage
        self._own = {variable.option: variable for variable in own}
        self._shared = {v.option: v for v in reading.VARIABLES if v.option}

    @functools.cached_property
    def options(self) -> dict[str, Variable[object]]:
        of_others = {v.option: v for v in every_variable() if v.option and v not in reading.PLAN_VARIABLES}
        return {**of_others, **self._shared, **self._own}

    def split(self, argv: list[str]) -> tuple[dict[str, str], list[str]]:
        """(values of options by the name of the variable, program and its arguments)."""
        values: dict[str, str] = {}
        at = 0
        while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "--", "-m"):
            option, equals, value = argv[at].partition("=")
            at += 1
            variable = self._variable(option, argv[at - 1])
            if variable.is_switch:
                value = self._switched(option, equals, value)
            elif not equals:
                value = self._next(option, argv[at : at + 1])
                at += 1
            values[variable.value] = value
        return values, argv[at + 1 :] if argv[at : at + 1] == ["--"] else argv[at:]

    def _variable(self, option: str, word: str) -> Variable[object]:
        if option in ("-h", "--help"):
            print(self.help())
            raise SystemExit(0)
        known = self._own.get(option) or self._shared.get(option) or self.options.get(option)
        return known or self._refuse(f"unknown option {word!r}{nearest(option, self.options)}")

    def _next(self, option: str, words: list[str]) -> str:
        if not words or words[0].startswith("--") or words[0] == "-m":
            found = f", and found {words[0]!r}: write {option}={words[0]} if that is one" if words else ""
            self._refuse(f"option {option}: expected a value{found}")
        return words[0]

    def _switched(self, option: str, equals: str, value: str) -> str:
        if equals:
            self._refuse(f"option {option}={value}: expected no value")
        return "true"

    def _refuse(self, text: str) -> NoReturn:
        msg = f"{text}\nusage: {self._usage}"
        raise UsageError(msg)

    def help(self) -> str:
        import argparse  # for its layout; it is slow to import, and asked for an option slower

        made = argparse.ArgumentParser(prog=f"ranklaunch {self._command}", description=self._description, usage=self._usage)
        for option, variable in sorted(self.options.items()):
            how: dict[str, Any] = {"action": "store_true"} if variable.is_switch else {"metavar": "X"}
            made.add_argument(option, help=f"{variable.meaning} [{', '.join(variable.names)}]".replace("%", "%%"), **how)
        return made.format_help().rstrip()


class Given(Value):
    """A parsed command line. own: reads this process's own environment, also where the job's comes from a file."""

    request: Request
    own: Reader


def read(parser: Parser, argv: list[str], env: Mapping[str, str], default: Program | None = None) -> Given:
    """default: the program where none is given, which is otherwise a wrong command line."""
    values, words = parser.split(argv)
    own = Reader(env, NoFiles(), values)
    env_file, root = own.get(reading.ENV_FILE), own.get(reading.ROOT)
    if root and not os.path.isdir(root):
        msg = f"--root {root}: no such folder"
        raise UsageError(msg)
    used = read_env_file(env_file) if env_file else dict(env)
    account = recorded_account(used) if env_file else own_account()
    files, cwd = DiskFiles(root), _cwd()
    program = platforms.program(Reader(used, files, values, cwd), words) or (program_of(words) if words or not default else default)
    return Given(Request(program, used, files, values, cwd, account=account), own)


def own_account() -> Account:
    """This process's own, as the system knows it: what sshd goes by."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # a container that runs as a user id without a name
        return Account("", "", os.getuid() == 0)
    return Account(entry.pw_name, entry.pw_dir, entry.pw_uid == 0)


def recorded_account(env: Mapping[str, str]) -> Account:
    """Of a container whose environment was recorded: by its HOME."""
    home = env.get("HOME", "") or ROOT_ACCOUNT.home
    root = home == ROOT_ACCOUNT.home
    return ROOT_ACCOUNT if root else Account(env.get("USER") or env.get("LOGNAME") or os.path.basename(home), home, root)


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed; absolute paths still work
        return "/"


def program_of(words: list[str]) -> Program:
    if words[:1] == ["-m"]:
        words = words[1:]
        if words:
            return Program(words[0], tuple(words[1:]), module=True)
    if not words or not words[0]:
        msg = "no PROGRAM given: a .py or .sh file, -m module, or any executable"
        raise UsageError(msg)
    if words[0].startswith("-"):
        msg = (
            f"PROGRAM {words[0]!r} begins with a dash: launchers would take it for an option of theirs; ./{words[0]} is a file of that name"
        )
        raise UsageError(msg)
    return Program(words[0], tuple(words[1:]))


def read_env_file(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_ENV_BYTES + 1)
    except (OSError, ValueError) as error:
        msg = f"--env-file {path}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from None
    if len(data) > MOST_ENV_BYTES:
        msg = f"--env-file {path}: larger than {MOST_ENV_BYTES} bytes"
        raise ConfigError(msg)
    return parse_env(data.decode(errors="surrogateescape"), f"--env-file {path}")


def parse_env(text: str, where: str) -> dict[str, str]:
    """KEY=VALUE pairs ended by NUL (as in /proc/PID/environ) or by line ends, or one JSON object of texts."""
    text = text[1:] if text.startswith("\ufeff") else text  # a byte order mark, which editors leave
    if text.lstrip().startswith("{"):
        return _json_env(text, where)
    if "\0" in text:
        pairs = [(f"entry {i}", pair) for i, pair in enumerate(text.split("\0"), 1) if pair]
    else:
        lines = enumerate((line[:-1] if line.endswith("\r") else line for line in text.split("\n")), 1)
        pairs = [(f"line {i}", line) for i, line in lines if line.strip() and not line.lstrip().startswith("#")]
    env: dict[str, str] = {}
    problems = []
    for place, pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not _NAME.fullmatch(name):
            problems.append(f"{where}, {place}: expected NAME=VALUE, found {pair[:60]!r}")
        env[name] = value
    if problems:
        hint = "; a value with line ends needs the NUL-separated or the JSON form"
        raise ConfigError([*problems[:20], *([f"... and {len(problems) - 20} more"] if len(problems) > 20 else []), f"{where}{hint}"])
    return env


def _json_env(text: str, where: str) -> dict[str, str]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not JSON: {error}"
        raise ConfigError(msg) from None
    wrong = [name for name, value in data.items() if not isinstance(value, str)]
    if wrong:
        msg = f"{where}: the values of {', '.join(wrong[:10])} are not text"
        raise ConfigError(msg)
    wrong = [name for name, value in data.items() if not _possible(name, value)]
    if wrong:
        msg = f"{where}: no environment can hold {', '.join(map(ascii, wrong[:10]))}: a NUL, or a name that is empty or has a ="
        raise ConfigError(msg)
    return dict(data)


def _possible(name: str, value: str) -> bool:
    try:
        pair = os.fsencode(f"{name}={value}")
    except UnicodeEncodeError:
        return False
    return bool(name) and "=" not in name and b"\0" not in pair
