"""Command lines: options first, then PROGRAM and everything after it, untouched."""

from __future__ import annotations

import errno
import functools
import json
import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms.shared.base import OF_ALL
from ranklaunch.env import parse, settings
from ranklaunch.env.job import Program
from ranklaunch.env.reader import ROOT_ACCOUNT, Account, Reader, Variable
from ranklaunch.errors import MANY_DIGITS, ConfigError, UsageError, has_many_digits, nearest
from ranklaunch.files import BYTE_ORDER_MARK, NoFiles
from ranklaunch.plan.planning import Request, every_variable
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles

MOST_ENV_BYTES = 64 * 1024 * 1024
ENV_PIPE_S = 30.0  # longest wait for a pipe's writer to end
_EXPORT = r"export[ \t]+"  # before a name, as in a file for a shell
_NAME = r"[A-Za-z_][^=\s]*"  # shells export functions as BASH_FUNC_x%%


@dataclass(frozen=True)
class Option:
    """Option of a command line.

    value: name of the value. takes: placeholder of the text in help; "" for a switch, whose text is "true". may_take: placeholder of a
    number that may follow a switch. legal: the legal texts, if they are few.
    """

    name: str
    value: str
    meaning: str
    takes: str = "X"
    may_take: str = ""
    legal: tuple[str, ...] = ()


def of_variable(variable: Variable[object], default: str = "") -> Option:
    """Return the option of a variable. default: text of the default for help."""
    meaning = f"{variable.meaning}{f' (default: {default})' if default else ''} [{', '.join(variable.names)}]"
    legal = variable.parse.legal if isinstance(variable.parse, parse.OneOf) else ()
    return Option(variable.option, variable.value, meaning, "" if variable.is_switch else "X", variable.may_take, legal)


class Parser:
    """Parser of one command's options: --name VALUE, --name=VALUE, or --name alone for a switch.

    There are no abbreviations: a new option in a later version must not change the meaning of a command line. argparse is not used
    (adr/0028-plain-python.md), since it takes options after the program for its own.
    """

    _own: tuple[str, ...] = ()  # names of options that only this command has
    _of_job = False

    def __init__(self, command: str, description: str, usage: str, known: Iterable[Option] = ()) -> None:
        self._command, self._description, self._usage = command, description, usage
        self._known = known

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        """Options by name, in the order of the help."""
        return {option.name: option for option in self._known}

    def find(self, name: str) -> Option | None:
        return self.options.get(name)

    def split(self, argv: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
        """Return pairs of value name and text in the given order, and the words of the program. A repeated option has several pairs."""
        pairs, rest = [], list(argv)
        while rest and rest[0].startswith("-") and rest[0] not in ("-", "--", "-m"):
            word = rest.pop(0)
            name, equals, text = word.partition("=")
            option = self._option(name, word)
            if not equals:
                text = self._text(option, rest)
            elif not option.takes and not option.may_take:
                self.refuse(f"option {word}: expected no value")
            pairs.append((option.value, text))
        return pairs, rest[1:] if rest[:1] == ["--"] else rest

    def apart(self, argv: list[str]) -> tuple[dict[str, str], list[str]]:
        """Return options and words of a command without a program, where they may stand in any order. The last of equal options counts."""
        values: dict[str, str] = {}
        words: list[str] = []
        while True:
            pairs, rest = self.split(argv)
            values.update(pairs)
            ended = len(rest) < len(argv) and argv[len(argv) - len(rest) - 1] == "--"
            words += rest if ended else rest[:1]
            if ended or not rest:
                return values, words
            argv = rest[1:]

    def folder(self, argv: list[str]) -> tuple[dict[str, str], str]:
        """Return the options, and the folder that may stand beside them; "" without a folder."""
        values, words = self.apart(argv)
        if len(words) > 1:
            self.refuse(f"{len(words)} folders: expected at most one")
        return values, words[0] if words else ""

    def _option(self, name: str, word: str) -> Option:
        if name in ("-h", "--help"):
            self._show_help()
        return self.find(name) or self.refuse(f"unknown option {word!r}{self._hint(name)}")

    def _hint(self, name: str) -> str:
        """Return the end of the message about an unknown option: the most similar option."""
        return nearest(name, (*self.options, "--help"))

    def _text(self, option: Option, rest: list[str]) -> str:
        """Take the text of an option from the words after it."""
        if not option.takes:
            return rest.pop(0) if option.may_take and rest and re.fullmatch("[0-9]+", rest[0]) else "true"
        if not rest or rest[0] == "-m" or (rest[0].startswith("--") and not re.search(r"\s", rest[0])):
            instead = f", found {rest[0]!r}: write {option.name}={rest[0]} if that is the value" if rest else ""
            self.refuse(f"option {option.name}: expected a value{instead}")
        return rest.pop(0)

    def refuse(self, text: str) -> NoReturn:
        """Raise UsageError, with the usage below the text."""
        msg = f"{text}\nusage: {self._usage}"
        raise UsageError(msg)

    def _show_help(self) -> NoReturn:
        print(self.help())
        raise SystemExit(0)

    def help(self) -> str:
        from ranklaunch.cli import usage

        return usage.text(self._command, self._description, self._usage, self.options.values(), self._own, self._of_job)


def chosen(values: Mapping[str, str], option: Option, usage: str = "") -> str:
    """Return the text of an option with a few legal texts, the first of them by default. Raises UsageError."""
    text = values.get(option.value, option.legal[0])
    if text not in option.legal:
        msg = f"{option.name} {text}: expected {', '.join(option.legal)}{nearest(text, option.legal)}{usage}"
        raise UsageError(msg)
    return text


def of_formats(*formats: str) -> Option:
    """Return the option --format of a command with these formats; the first is the default."""
    return Option("--format", "format", f"{', '.join(formats)} (default: {formats[0]})", legal=formats)


class JobParser(Parser):
    """Parser of commands for a job, with an option for each variable that has an option name.

    Options that only some methods or platforms have are added on demand, since this imports all methods and platforms. own: variables that
    only this command has.
    """

    _of_job = True

    def __init__(self, command: str, description: str, usage: str, own: Iterable[Variable[object]] = ()) -> None:
        super().__init__(command, description, usage)
        self._own = tuple(variable.option for variable in own)
        self._near = {variable.option: variable for variable in (*settings.VARIABLES, *OF_ALL, *own) if variable.option}

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        from ranklaunch.env import features, tuning

        of_one = (*settings.PLAN_VARIABLES, *features.CHECK_VARIABLES, *tuning.VARIABLES)
        of_others = {v.option: v for v in every_variable() if v.option and v not in of_one}
        variables = sorted({**of_others, **self._near}.items())
        return {name: of_variable(variable, self._default(variable)) for name, variable in variables}

    def _hint(self, name: str) -> str:
        from ranklaunch.plan.hints import unknown  # needed for mistakes only

        if name in {variable.option for variable in settings.PLAN_VARIABLES}:
            return "; ranklaunch plan has it"
        meant = "" if name.replace("_", "-") in self.options else unknown.elsewhere(name)
        return f", did you mean '{meant}'?" if meant in self.options else super()._hint(name)

    def _default(self, variable: Variable[object]) -> str:
        """Return the default for help. Methods may have different defaults for one option."""
        if variable.is_switch:
            return ""
        same = {v.shown_default for v in every_variable() if v.option == variable.option and v.value == variable.value}
        return variable.shown_default if variable.option in self._near or len(same) == 1 else "the method's own"

    def find(self, name: str) -> Option | None:
        return of_variable(self._near[name]) if name in self._near else super().find(name)


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line. own: reader of this process's own environment, even if the job's environment comes from a file."""

    request: Request
    own: Reader


def read(parser: JobParser, argv: list[str], env: Mapping[str, str], default: Program | None = None, recorded: bool = False) -> CommandLine:
    """Return the request from a command line and an environment. Raises UsageError and ConfigError.

    default: program to use if the command line has none; None if a program is required. recorded: True if the environment is another
    container's, where only HOME tells the account.
    """
    options, words = parser.split(argv)
    values = dict(options)
    own = Reader(env, NoFiles(), values)
    env_file, root = own.get(settings.ENV_FILE), own.get(settings.ROOT)
    if root and not os.path.isdir(root):
        raise _wrong(own, settings.ROOT, f"{named(own, settings.ROOT)}: no such folder")
    used = read_env_file(own) if env_file else dict(env)
    return CommandLine(requested(values, words, used, root, default, recorded=bool(env_file) or recorded), own)


def requested(
    values: Mapping[str, str], words: list[str], used: dict[str, str], root: str, default: Program | None = None, *, recorded: bool
) -> Request:
    """Return the request from options and words in an environment. root: folder of the files; default, recorded: as for read."""
    account = recorded_account(used) if recorded else own_account()
    files, cwd = DiskFiles(root), disk.working_folder()
    _refuse_lost_logs(Reader(used, NoFiles(), values))
    program = platforms.program(Reader(used, files, values, cwd), words) or (program_of(words) if words or not default else default)
    return Request(program, used, files, values, cwd, account=account, bounded=bounded)


def allocated(command_line: CommandLine) -> Mapping[str, str]:
    """Return the job's environment; with --slurm, including the variables of such an allocation."""
    if not command_line.own.is_set(settings.SLURM):
        return command_line.request.env
    from ranklaunch.adapters.platforms import slurm

    return slurm.allocated(command_line.request.env, *command_line.own.get(settings.SLURM))


def _refuse_lost_logs(reader: Reader) -> None:
    """Refuse a relative log folder (the default too) if the working folder was removed: logs would land where nobody looks for them."""
    disk.absolute(reader.get(settings.LOG_DIR), "" if reader.is_set(settings.LOG_DIR) else f"{settings.LOG_DIR.option} ")


def bounded(work: Callable[[], Any], what: str) -> Any:
    """Call ranklaunch.system.bounded.call, imported on demand: most starts do not need it."""
    from ranklaunch.system.bounded import call

    return call(work, what)


def own_account() -> Account:
    """Return the account of this process from the system's user database, as sshd sees it."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:  # a container that runs as a user id without a name
        return Account("", "", os.getuid() == 0)
    return Account(entry.pw_name, entry.pw_dir, entry.pw_uid == 0, entry.pw_shell)


def recorded_account(env: Mapping[str, str]) -> Account:
    """Return the account of a container with a recorded environment, from its HOME."""
    home = env.get("HOME", "") or ROOT_ACCOUNT.home
    is_root = home == ROOT_ACCOUNT.home
    return ROOT_ACCOUNT if is_root else Account(env.get("USER") or env.get("LOGNAME") or os.path.basename(home), home, is_root)


def program_of(words: list[str]) -> Program:
    """Return the program of a command line's words. Raises UsageError."""
    if words[:1] == ["-m"]:
        words = words[1:]
        if words:
            return Program(words[0], tuple(words[1:]), module=True)
    if not words or not words[0]:
        msg = "no PROGRAM given: a .py or .sh file, -m module, or any executable"
        raise UsageError(msg)
    if words[0].startswith("-"):
        msg = f"PROGRAM {words[0]!r} begins with a dash: launchers would take it for an option; for a file of this name write ./{words[0]}"
        raise UsageError(msg)
    return Program(words[0], tuple(words[1:]))


def named(own: Reader, variable: Variable[str]) -> str:
    """Return a path with its option or variable: "--root /x", "RANKLAUNCH_ROOT=/x"."""
    return f"{variable.option} {own.get(variable)}" if variable.value in own.options else f"{own.source(variable)}={own.get(variable)}"


def _wrong(own: Reader, variable: Variable[str], text: str) -> ConfigError | UsageError:
    return UsageError(text) if variable.value in own.options else ConfigError(text)


def read_env_file(own: Reader) -> dict[str, str]:
    """Return the environment in the file of --env-file. Raises UsageError and ConfigError."""
    return parse_env(text_of(own, settings.ENV_FILE), named(own, settings.ENV_FILE))


def text_of(own: Reader, variable: Variable[str]) -> str:
    """Return the text of a file that a setting names. Raises UsageError and ConfigError."""
    path, where = own.get(variable), named(own, variable)
    try:
        data = _env_bytes(path)
    except disk.NotRegularError as error:
        if os.path.isdir(path):
            raise _wrong(own, variable, f"{where}: {os.strerror(errno.EISDIR)}") from None
        msg = f"{where.removesuffix(path)}{error}"
        raise ConfigError(msg) from None
    except (OSError, ValueError) as error:
        raise _wrong(own, variable, f"{where}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MOST_ENV_BYTES:
        msg = f"{where}: larger than {MOST_ENV_BYTES} bytes"
        raise ConfigError(msg)
    return data.decode(errors="surrogateescape")


def _env_bytes(path: str) -> bytes:
    """Return the bytes of a regular file, or of an unnamed pipe. path: "-" is standard input."""
    path = "/dev/stdin" if path == "-" else path
    try:
        return disk.read(disk.readable(path), MOST_ENV_BYTES + 1)
    except disk.NotRegularError as error:
        data = disk.of_pipe(path, MOST_ENV_BYTES + 1, ENV_PIPE_S) if error.kind == disk.FIFO else None
        if data is None:
            raise
        return data


def parse_env(text: str, where: str) -> dict[str, str]:
    """Return the environment in a text. Raises ConfigError.

    The text has NAME=VALUE pairs ended by NUL (as in /proc/PID/environ) or by line ends, or is one JSON object of texts.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    if text.lstrip().startswith("{"):
        return _json_env(text, where)
    env: dict[str, str] = {}
    problems = []
    for place, pair in _pairs(text):
        name, equals, value = pair.partition("=")
        name = re.sub(_EXPORT, "", name.strip())
        if not equals or not re.fullmatch(_NAME, name):
            from ranklaunch import showing  # needed for mistakes only

            problems.append(f"{where}, {place}: expected NAME=VALUE, found {showing.begun(pair)}")
        env[name] = value
    if problems:
        hint = "; a value with line ends needs the NUL-separated or the JSON form"
        raise ConfigError([*problems[:20], *([f"... and {len(problems) - 20} more"] if len(problems) > 20 else []), f"{where}{hint}"])
    return env


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return each pair with its place: "line 3", or "entry 3" of pairs ended by NUL."""
    if "\0" in text:
        return [(f"entry {i}", pair) for i, pair in enumerate(text.split("\0"), 1) if pair]
    lines = enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)
    return [(f"line {i}", line) for i, line in lines if line.strip() and not line.lstrip().startswith("#")]


def _json_env(text: str, where: str) -> dict[str, str]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: {MANY_DIGITS if has_many_digits(error) else f'not JSON: {error}'}"
        raise ConfigError(msg) from None
    wrong = [name for name, value in data.items() if not isinstance(value, str)]
    if wrong:
        msg = f"{where}: the values of {', '.join(wrong[:10])} are not text"
        raise ConfigError(msg)
    wrong = [name for name, value in data.items() if not _possible(name, value)]
    if wrong:
        no = "a NUL, half of a surrogate pair, or a name that is empty or has a ="
        msg = f"{where}: no environment can hold {', '.join(map(ascii, wrong[:10]))}: {no}"
        raise ConfigError(msg)
    return dict(data)


def _possible(name: str, value: str) -> bool:
    try:
        pair = os.fsencode(f"{name}={value}")
    except UnicodeEncodeError:
        return False
    return bool(name) and "=" not in name and b"\0" not in pair
