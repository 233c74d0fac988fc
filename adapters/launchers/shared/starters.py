"""Table of commands that start ranks. Started once for each rank, such a program would start all ranks several times.

The rows are data: starters.toml, and a file of the user. The command may stand behind an interpreter, behind a wrapper such as env or
srun, in the text of a shell's -c, or in a script.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ranklaunch import fields
from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.adapters.launchers.shared.user_options import PARSERS, PIECE, UNKNOWN
from ranklaunch.env.job import SHELLS, WRAPPERS, Program
from ranklaunch.files import Files, absolute, text_of
from ranklaunch.redact import redact

MOST_BYTES = 1024 * 1024  # read of a script
MOST_DEPTH = 3  # levels of scripts that call each other
_PROGRAM = r"python[0-9.]*|.*\.(?:py|sh)"  # programs besides the names of the table
_INFO_OPTIONS = {"--version", "-V", "--help", "-h", "--check-build", "-cb"}  # with one of these first, a launcher starts no ranks
_OF_ANOTHER_JOB = ("--job-name|RANKLAUNCH_JOB_NAME|--env-file", "--log-dir|RANKLAUNCH_LOG_DIR|--env-file")
_OTHER_SCRIPT = r"\.sh\b"
_SET = r"(?<![\w$-])([A-Za-z_]\w*)="  # variables that a script sets


@dataclass(frozen=True)
class Starter:
    """Row of starters.toml; that file describes the fields."""

    names: tuple[str, ...]
    if_any: tuple[str, ...] = ()
    if_none: tuple[str, ...] = ()
    method: str = ""
    everywhere: bool = False
    options: str = ""
    nodes: str = ""
    node: str = ""
    address: str = ""
    endpoint: str = ""
    variables: str = ""
    same_job: bool = False
    cluster: str = ""
    served_by: str = ""
    own_cluster: str = ""

    def starts(self, rest: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return True if the command starts ranks with these arguments and these variables."""
        if rest and rest[0] in _INFO_OPTIONS:
            return False
        names = {*user_options.AS_WRITTEN.options(rest), *(name for name, value in env.items() if value)}
        return (not self.if_any or bool(names.intersection(self.if_any))) and not names.intersection(self.if_none)


@dataclass(frozen=True)
class Found:
    """Command that starts ranks. name: its name in messages. words: its arguments."""

    name: str
    starter: Starter
    words: tuple[str, ...]

    def is_run_within(self, program: Program) -> bool:
        """Return True for `ranklaunch run`, unless its options set both a job name and a log directory: then it is another job."""
        line = " ".join(program.words)
        return self.starter.same_job and not all(re.search(sign, line) for sign in _OF_ANOTHER_JOB)

    @property
    def instead(self) -> str:
        """Command line that starts the same program by a method of ranklaunch; PROGRAM stands for an unrecognised program."""
        at = next((i for i, word in enumerate(self.words) if word in ("-m", "--module") or word.endswith((".py", ".sh"))), None)
        shown = [user_options.shown(word) for word in self.words[at or 0 :]]
        program = ["PROGRAM", "[ARGS...]"] if at is None else [shlex.quote(word) for word in redact.argv(shown)]
        if at is None and self.starter.served_by:
            program = [*self.name.split()[1:], "[ARGS...]"]
        method = f"--method {self.starter.method} " if self.starter.method else ""
        return f"ranklaunch run {method}-- {' '.join(program)}"


class Start(NamedTuple):
    """Command of a script that starts ranks. reached, judged, piped, background: as in scripts.shell.Command."""

    found: Found
    reached: bool = True
    judged: bool = False
    piped: bool = False
    background: bool = False

    def within(self, outer: Start) -> Start:
        """Return this command of an inner script, with the conditions of the command `outer` that calls the script."""
        return Start(
            self.found, self.reached and outer.reached, self.judged or outer.judged, self.piped or outer.piped,
            self.background or outer.background,
        )  # fmt: skip


class Starters:
    """Rows by command name. user_rows: rows of the user, which come first."""

    def __init__(self, user_rows: Sequence[Starter] = ()) -> None:
        self._by_name: dict[str, Starter] = {}
        for row in (*user_rows, *shipped()):
            for name in row.names:
                self._by_name.setdefault(name, row)
        first = {name.partition(" ")[0] for name in self._by_name}
        self._names = {*WRAPPERS, *SHELLS, *first}
        modules = (name[len("python -m ") :] for name in self._by_name if name.startswith("python -m "))
        mentioned = sorted({re.escape(word) for name in (*first, *modules) for word in name.split() if word != "python"})
        self._mentions = re.compile(rf"(?<![\w.-])(?:{'|'.join(mentioned)})(?![\w-])")

    def may_start(self, text: str) -> bool:
        """Return False for a script that names no command of the table and no other script."""
        return bool(self._mentions.search(text) or re.search(_OTHER_SCRIPT, text))

    def find(self, program: Program, env: Mapping[str, str]) -> Found | None:
        return self.of_words(("python", *program.words) if program.module else program.words, env)

    def of_words(self, command: Sequence[str], env: Mapping[str, str]) -> Found | None:
        """Return the command that starts ranks, also behind a shell, an interpreter or a wrapper; None if no ranks are started.

        env: variables for if_any and if_none.
        """
        if not command:
            return None
        name, rest = _base(command[0]), command[1:]
        if name in SHELLS:
            return self._in_text(rest, env)
        if name.startswith("python") and re.fullmatch(_PROGRAM, name):
            return self._by_python(rest, env)
        if name in WRAPPERS:
            return self.of_words(tuple(itertools.dropwhile(self._is_option, rest)), env)
        return self._known(name, rest, env)

    def in_script(
        self, text: str, env: Mapping[str, str] | None, args: Sequence[str] | None, variables: Mapping[str, str],
        files: Files | None = None,
        cwd: str = "/", depth: int = 0,
    ) -> Iterator[Start]:  # fmt: skip
        """Yield the commands of a shell script that start ranks, including commands of scripts called by it.

        env, args: environment and arguments when the script starts; None if unknown. variables: variables for if_any and if_none,
        besides those that the script sets. files: reader of called scripts, None to read none. cwd: absolute working directory.
        """
        from ranklaunch.adapters.launchers.shared.scripts import shell  # imported late: most programs are no scripts

        if not self.may_start(text):
            return
        names = set(re.findall(_SET, text))
        variables = {**variables, **dict.fromkeys(names, "1")}
        inherited = None if env is None else {**env, **dict.fromkeys(names, UNKNOWN)}
        for command in shell.commands(text, env, args):
            line = command.words[1:] if command.words[0] in ("exec", "command") else command.words
            starter = self.of_words(line, variables)
            if starter:
                yield Start(starter, *command[1:])
                continue
            path, *rest = self._script(line) or [""]
            inner = _text(files, absolute(path, cwd)) if files and path and depth < MOST_DEPTH else ""
            for start in self.in_script(inner, inherited, rest, variables, files, cwd, depth + 1):
                yield start.within(Start(start.found, *command[1:]))

    def _script(self, command: Sequence[str]) -> Sequence[str]:
        """Return a shell script and its arguments, also behind a wrapper; () for another command."""
        if command and _base(command[0]) in WRAPPERS:
            command = tuple(itertools.dropwhile(self._is_option, command[1:]))
        if command and command[0].endswith(".sh"):
            return command
        return file_of(command[1:]) if command and _base(command[0]) in SHELLS else ()

    def _is_option(self, word: str) -> bool:
        """Return True for an option of a wrapper or its value, False for the program behind the options."""
        name = _base(word)
        return name not in self._names and not re.fullmatch(_PROGRAM, name)

    def _known(self, name: str, rest: Sequence[str], env: Mapping[str, str]) -> Found | None:
        for subcommands in (0, 1):
            full = " ".join((name, *rest[:subcommands]))
            row = self._by_name.get(full)
            if row:
                return Found(full, row, tuple(rest[subcommands:])) if row.starts(rest[subcommands:], env) else None
        return None

    def _by_python(self, command: Sequence[str], env: Mapping[str, str]) -> Found | None:
        """Return the launcher after an interpreter's options: -m MODULE, or a launcher's script file."""
        rest = iter(command)
        for word in rest:
            if word == "-m":
                return self._known(f"python -m {next(rest, '')}", tuple(rest), env)
            if word in ("-W", "-X"):
                next(rest, "")
            elif not word.startswith("-"):
                return self._known(_base(word), tuple(rest), env)
        return None

    def _in_text(self, command: Sequence[str], env: Mapping[str, str]) -> Found | None:
        """Return the first launcher in the text of a shell's -c. The shell's environment and arguments are taken as unknown."""
        for start in self.in_script(text_of_option(command), None, None, env):
            return start.found
        return None


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def file_of(arguments: Sequence[str]) -> Sequence[str]:
    """Return the script and its arguments from the arguments of a shell; () if the shell reads its commands from -c or stdin."""
    for at, word in enumerate(arguments):
        if re.fullmatch("-[a-z]*[cs]", word):
            break
        if not word.startswith(("-", "+")):
            return arguments[at:]
    return ()


def text_of_option(arguments: Sequence[str]) -> str:
    """Return the text of a shell's -c, "" without -c."""
    at = next((at for at, word in enumerate(arguments) if re.fullmatch(r"-[a-z]*c", word)), len(arguments))
    return "".join(arguments[at + 1 : at + 2])


def _text(files: Files, path: str) -> str:
    return "" if UNKNOWN in path or PIECE in path else text_of(files, path, MOST_BYTES)


# Rows


@functools.cache
def shipped() -> tuple[Starter, ...]:
    loader: Any = __spec__.loader
    return tuple(map(_row, json.loads(loader.get_data(f"{__file__.rpartition('/')[0]}/starters.json"))))


def _row(fields: Mapping[str, Any]) -> Starter:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Starter(**values)


def read(files: Files, path: str) -> tuple[Starter, ...]:
    """Return the rows of a user's file. Raises ValueError, with the wrong row and field in the message."""
    from ranklaunch import rows  # imported late: few users have own rows

    table = rows.read(files, path, "starter")
    for at, row in enumerate(table, 1):
        if not isinstance(row, dict) or not row.get("names"):
            msg = f'row {at}: expected names = ["COMMAND"]'
            raise ValueError(msg)
        rows.check(row, {"names": (), **fields.defaults(Starter)}, f"row {at}")
        if row.get("options", "") not in ("", *PARSERS):
            msg = f"row {at}: options: expected {', '.join(PARSERS)}"
            raise ValueError(msg)
    return tuple(map(_row, table))
