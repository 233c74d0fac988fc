"""Whether a shell script starts ranks itself, by a launcher that one of its commands is. Such a script is started once on each node, and
told what a person would write into it: how many nodes there are, which one this is, and where node 0 is."""

from __future__ import annotations

import re
from collections.abc import Callable

from ranklaunch.adapters.launchers.shared import own_launcher
from ranklaunch.adapters.launchers.shared.inherited import misleading, only_secrets
from ranklaunch.adapters.launchers.shared.own_launcher import Found
from ranklaunch.adapters.launchers.shared.scripts import said
from ranklaunch.files import absolute
from ranklaunch.read.job import SHELLS, Job, Program
from ranklaunch.read.reader import Reader
from ranklaunch.values import Value

MOST_BYTES = 1024 * 1024


class Script(Value):
    """path: as the user wrote it. starts: its commands that start ranks; certain: those of them that are in no condition. env: what it is
    told; unset: of what it would inherit, what must not reach it."""

    path: str
    starts: tuple[Found, ...]
    certain: tuple[Found, ...]
    env: dict[str, str]
    unset: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.starts[0].name

    def alone(self, nodes: int) -> str:
        """As of a Found: where all that it starts would be alone, as far as that is known."""
        known = bool(self.certain) and len(self.certain) == len(self.starts)
        why = [found.alone(nodes, {}) if not any(said.UNKNOWN in word for word in found.words) else "" for found in self.certain]
        return why[0] if known and all(why) else ""


def find(job: Job, reader: Reader, told: Callable[[], dict[str, str]]) -> Script | None:
    """job: with the slots that the platform has. told: what such a script is told."""
    path, args = file_of(job.program)
    try:
        text = reader.files.text(absolute(path, job.folder or reader.cwd), MOST_BYTES) if path else None
    except ValueError:  # it is too large, or no text
        return None
    if not text or not own_launcher.MENTIONS.search(text):
        return None
    env = told()
    secret = only_secrets(reader.env)
    unset = tuple(name for name in misleading(reader.env) if name in secret or not (name in env or _names(name, text)))
    inherited = {name: value for name, value in reader.env.items() if name not in unset}
    found = tuple(own_launcher.in_script(text, {**inherited, **env}, args))
    if not found:
        return None
    return Script(path, tuple(each for each, _ in found), tuple(each for each, reached in found if reached), env, unset)


def file_of(program: Program) -> tuple[str, tuple[str, ...]]:
    """A shell script and its arguments, "" where the program is none."""
    if program.is_shell:
        return program.path, program.args
    if program.module or program.name not in SHELLS:
        return "", ()
    at = next((i for i, word in enumerate(program.args) if not word.startswith(("-", "+"))), len(program.args))
    if any(re.fullmatch("-[a-z]*[cs]", word) for word in program.args[:at]):  # its text is not in a file
        return "", ()
    return "".join(program.args[at : at + 1]), program.args[at + 1 :]


def _names(name: str, text: str) -> bool:
    """Whether a script reads a variable: then it was written for what the platform says there."""
    return bool(re.search(rf"\$\{{?{name}\b", text))
