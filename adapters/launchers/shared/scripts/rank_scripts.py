"""Shell scripts with a launcher among their commands: they start ranks themselves.

Such a script runs once on each node. Variables replace a person's entries in the script: the number of nodes, the index
of this one, and the address of node 0.
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
    """Shell script for starting ranks.

    path: in the user's spelling. commands: commands that start ranks, each once per spelling. env: variables for the
    script. unset: variables not to be inherited.
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
        """Return why no launcher in it starts this node's ranks of the job, as the end of a sentence; "" if one does, or nobody knows."""
        reasons = [place_conflicts.reason(start, place) for start in self.starts]
        return reasons[0] if all(command.reached for command in self.commands) and all(reasons) else ""

    def shows_when_it_runs(self, place: Place) -> bool:
        """Return True if only the run shows whether its launchers start this node's ranks of a job of several nodes."""
        if place.nodes < 2 or self.wrong(place):
            return False
        return any(
            not command.reached or place_conflicts.is_open(command.found) or not command.found.starter.nodes for command in self.commands
        )


def starts(program: Program, env: Mapping[str, str], cwd: str, files: Files) -> Sequence[Start]:
    """Return the commands of a shell script, or of a shell's -c, that start ranks; none for another program. env: of the script."""
    path, *args = _file(program) or [""]
    text = text_of(files, absolute(path, cwd), starters.MOST_BYTES) if path else ""
    if not path and program.name in SHELLS:
        text = starters.text_of_option(program.args)
    trapped = re.search(r"\btrap\b[^\n]*(?:\bexit\b|\$\?)", text)
    commands = Starters().in_script(text, env, args, env, files, cwd)
    return [start._replace(judged=True) if trapped else start for start in commands]


def source(job: Job, reader: Reader) -> str:
    """Return the text of the shell script that the program is, "" for another program, or a script that cannot be read."""
    path, *_ = _file(job.program) or [""]
    return text_of(reader.files, absolute(path, job.folder or reader.cwd), starters.MOST_BYTES) if path else ""


def find(job: Job, reader: Reader, known: Starters, text: str, env: dict[str, str]) -> Script | None:
    """Return the program as a script, if it starts ranks. job: with the slots of the platform. env: variables for the script."""
    path, *args = _file(job.program)
    # What the script reads stays as it is: the script was written for the platform's value.
    stays = {*env, *re.findall(r"\$\{?(\w+)", text)}.difference(only_secrets(reader.env))
    unset = tuple(name for name in misleading(reader.env) if name not in stays)
    inherited = {name: value for name, value in reader.env.items() if name not in unset}
    commands = tuple(known.in_script(text, {**inherited, **env}, args, reader.env, reader.files, job.folder or reader.cwd))
    return Script(path, commands, env, unset) if commands else None


def _file(program: Program) -> Sequence[str]:
    """Return a shell script and its arguments, nothing if the shell's commands are not in a file."""
    if program.is_shell:
        return (program.path, *program.args)
    return starters.file_of(program.args) if program.name in SHELLS else ()
