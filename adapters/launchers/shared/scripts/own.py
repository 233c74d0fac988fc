"""Shell scripts that start ranks themselves, by a launcher among their commands.

Such a script is started once on each node. Variables give it what a person would write into it: the number of nodes, the index of this
one, and the address of node 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ranklaunch.adapters.launchers.shared import own_launcher
from ranklaunch.adapters.launchers.shared.inherited import misleading, only_secrets
from ranklaunch.adapters.launchers.shared.own_launcher import Found
from ranklaunch.files import absolute
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader
from ranklaunch.values import Value

MOST_BYTES = 1024 * 1024


class Script(Value):
    """path: as the user wrote it. starts: its commands that start ranks; reached: none of them depends on a condition. env: variables that
    it gets; unset: variables that it must not inherit."""

    path: str
    starts: tuple[Found, ...]
    reached: bool
    env: dict[str, str]
    unset: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.starts[0].name

    def alone(self, nodes: int) -> str:
        """Return why each of its launchers would be alone on its node, as the end of a sentence; "" if one is not, or nobody knows."""
        reasons = [found.alone(nodes, {}) for found in self.starts]
        return reasons[0] if self.reached and all(reasons) else ""


def find(job: Job, reader: Reader, place: Callable[[], dict[str, str]]) -> Script | None:
    """Return the script that the program is, if it starts ranks. job: with the slots of the platform. place: variables that it gets."""
    path, *args = _file(job.program) or [""]
    try:
        text = reader.files.text(absolute(path, job.folder or reader.cwd), MOST_BYTES) if path else None
    except ValueError:  # too large, or no text
        return None
    if not text or not own_launcher.MENTIONS.search(text):
        return None
    env = place()
    # What the script reads stays as it is: the script was written for the platform's value.
    stays = {*env, *re.findall(r"\$\{?(\w+)", text)}.difference(only_secrets(reader.env))
    unset = tuple(name for name in misleading(reader.env) if name not in stays)
    inherited = {name: value for name, value in reader.env.items() if name not in unset}
    found = tuple(own_launcher.in_script(text, {**inherited, **env}, args))
    starts = tuple(launcher for launcher, _ in found)
    return Script(path, starts, all(reached for _, reached in found), env, unset) if found else None


def _file(program: Program) -> Sequence[str]:
    """Return a shell script and its arguments, nothing if the shell's commands are not in a file."""
    if program.is_shell:
        return (program.path, *program.args)
    for at, word in enumerate(program.args):
        if re.fullmatch("-[a-z]*[cs]", word):
            break
        if not word.startswith(("-", "+")):
            return program.args[at:]
    return ()
