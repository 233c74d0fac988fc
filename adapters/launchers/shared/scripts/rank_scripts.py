"""Shell scripts that start ranks themselves, by a launcher among their commands.

Such a script runs once on each node. It gets variables for the values that a person would otherwise write into the script: the number of
nodes, the index of this node, and the address of node 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.adapters.launchers.shared import place_conflicts, starters
from ranklaunch.adapters.launchers.shared.place_conflicts import Place
from ranklaunch.adapters.launchers.shared.starters import Found, Start, Starters
from ranklaunch.adapters.launchers.shared.variables import misleading, only_secrets
from ranklaunch.env.job import SHELLS, Job, Program
from ranklaunch.env.reader import Reader
from ranklaunch.files import Files, absolute, text_of


@dataclass(frozen=True)
class Script:
    """Shell script that starts ranks.

    path: as the user wrote it. commands: commands that start ranks, without duplicates. env: variables to add for the script. unset: names
    of variables to remove.
    """

    path: str
    commands: tuple[Start, ...]
    env: dict[str, str]
    unset: tuple[str, ...]

    @property
    def starts(self) -> Sequence[Found]:
        return [command.found for command in self.commands]

    @property
    def name(self) -> str:
        return self.starts[0].name

    def wrong(self, place: Place) -> str:
        """Return why no launcher of the script starts this node's ranks, as the end of a sentence; "" if one does, or if unknown."""
        reasons = [place_conflicts.reason(start, place) for start in self.starts]
        return reasons[0] if all(command.reached for command in self.commands) and all(reasons) else ""

    def shows_when_it_runs(self, place: Place) -> bool:
        """Return True for a job of several nodes if only the run shows that the script's launchers start this node's ranks."""
        if place.nodes < 2 or self.wrong(place):
            return False
        return any(
            not command.reached or place_conflicts.is_open(command.found) or not command.found.starter.nodes for command in self.commands
        )


def starts(program: Program, env: Mapping[str, str], cwd: str, files: Files) -> Sequence[Start]:
    """Return the commands that start ranks in a shell script or in a shell's -c; [] for another program. env: environment of the script."""
    path, *args = _file(program) or [""]
    text = text_of(files, absolute(path, cwd), starters.MOST_BYTES) if path else ""
    if not path and program.name in SHELLS:
        text = starters.text_of_option(program.args)
    trapped = re.search(r"\btrap\b[^\n]*(?:\bexit\b|\$\?)", text)
    commands = Starters().in_script(text, env, args, env, files, cwd)
    return [start._replace(judged=True) if trapped else start for start in commands]


def source(job: Job, reader: Reader) -> str:
    """Return the text of the program if it is a shell script, "" for another program or an unreadable script."""
    path, *_ = _file(job.program) or [""]
    return text_of(reader.files, absolute(path, job.folder or reader.cwd), starters.MOST_BYTES) if path else ""


def find(job: Job, reader: Reader, known: Starters, text: str, env: dict[str, str]) -> Script | None:
    """Return the program as a script that starts ranks, None if it starts none.

    job: with the slots of the platform. known: table of commands. text: text of the script. env: variables to add for the script.
    """
    path, *args = _file(job.program)
    # Variables that the script reads are kept: the script was written for the platform's values.
    kept = {*env, *re.findall(r"\$\{?(\w+)", text)}.difference(only_secrets(reader.env))
    unset = tuple(name for name in misleading(reader.env) if name not in kept)
    inherited = {name: value for name, value in reader.env.items() if name not in unset}
    commands = tuple(known.in_script(text, {**inherited, **env}, args, reader.env, reader.files, job.folder or reader.cwd))
    return Script(path, commands, env, unset) if commands else None


def _file(program: Program) -> Sequence[str]:
    """Return a shell script and its arguments; () if the program is no shell, or its commands are not in a file."""
    if program.is_shell:
        return (program.path, *program.args)
    return starters.file_of(program.args) if program.name in SHELLS else ()
