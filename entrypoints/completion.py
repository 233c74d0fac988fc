"""ranklaunch completion: write a completion script for bash, zsh or fish: source <(ranklaunch completion bash)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ranklaunch.cli import completion, job_spec, options
from ranklaunch.cli.completion import HELP, Command, filled
from ranklaunch.cli.options import Option
from ranklaunch.entrypoints import explain, layout, logs, ranktable, report, save, stacks, status
from ranklaunch.entrypoints.main import COMMANDS
from ranklaunch.env import features, settings, tuning
from ranklaunch.env.reader import Variable
from ranklaunch.errors import nearest
from ranklaunch.render.templates import Templates
from ranklaunch.specs.model import KINDS

SHELLS: dict[str, Callable[[list[Command]], str]] = {"bash": completion.bash, "zsh": completion.zsh, "fish": completion.fish}
# Commands for jobs, each with the variables that only this command has.
OF_JOBS: dict[str, tuple[Variable[Any], ...]] = {
    "run": (), "simulate": (), "plan": settings.PLAN_VARIABLES, "check": features.CHECK_VARIABLES, "tune": tuning.VARIABLES,
}  # fmt: skip
OPTIONS: dict[str, tuple[Option, ...]] = {
    "status": status.OPTIONS, "save": save.OPTIONS, "stacks": stacks.OPTIONS, "report": report.OPTIONS, "logs": logs.OPTIONS,
    "spec": job_spec.OPTIONS, "explain": explain.OPTIONS, "layout": layout.OPTIONS, "ranktable": ranktable.OPTIONS,
}  # fmt: skip
WORDS: dict[str, Iterable[str]] = {
    "spec": KINDS, "ranktable": ranktable.ACTIONS, "template": Templates().shipped, "completion": SHELLS,
}  # fmt: skip
USAGE = f"ranklaunch completion {'|'.join(SHELLS)}"


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    parser = options.Parser("completion", __doc__ or "", USAGE)
    _, words = parser.split(argv)
    if len(words) != 1:
        parser.refuse(f"{len(words)} shells: expected one")
    if words[0] not in SHELLS:
        parser.refuse(f"unknown shell {words[0]!r}{nearest(words[0], SHELLS)}")
    sys.stdout.write(SHELLS[words[0]](commands()))
    return 0


def commands() -> list[Command]:
    """Return all commands in the order of the help."""
    return [_command(name, meaning) for name, (_, meaning) in COMMANDS.items()]


def _command(name: str, meaning: str) -> Command:
    if name in OF_JOBS:
        known_options: Iterable[Option] = options.JobParser(name, "", "", OF_JOBS[name]).options.values()
    else:
        known_options = OPTIONS.get(name, ())
    return Command(name, meaning, (*map(filled, known_options), HELP), tuple(WORDS.get(name, ())), runs=name in OF_JOBS or name == "spec")
