"""Writes docs/commands.md, the help of every command, as `ranklaunch COMMAND --help` prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ranklaunch.entrypoints.main import COMMANDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
OF_THE_JOB = "\nthe job:\n"  # begins the options that all commands for a job share
VERBS = ("show", "validate", "convert", "make", "diff")
INTRODUCTION = """\
# Commands

The help of each command. `run`, `plan`, `check`, `simulate` and `tune` share the options of a job: each option has a variable, and
[variables](variables.md) lists both. Exit codes: [exit codes](exit-codes.md).

| command | purpose |
| --- | --- |
"""


def main() -> int:
    PAGE.write_text("".join(page()), encoding="utf-8")
    return 0


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield INTRODUCTION
    for name, (_, purpose) in COMMANDS.items():
        yield f"| [`ranklaunch {name}`](#ranklaunch-{name}) | {purpose.replace('|', chr(92) + '|')} |\n"
    for name in COMMANDS:
        yield f"\n## ranklaunch {name}\n\n```output\n{own(help_of(name))}```\n"
        for verb in VERBS if name == "ranktable" else ():
            yield f"\n### ranklaunch ranktable {verb}\n\n```output\n{help_of(name, verb)}```\n"


def help_of(*words: str) -> str:
    """Return what `ranklaunch WORDS --help` prints on a terminal of 100 columns."""
    env = {"PATH": os.defpath, "COLUMNS": "100", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    command = [sys.executable, "-m", "ranklaunch", *words, "--help"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def own(text: str) -> str:
    """Return the help without the options that all commands for a job share."""
    before, shared, _ = text.partition(OF_THE_JOB)
    return f"{before.rstrip()}\n\nand the options of a job\n" if shared else text


if __name__ == "__main__":
    sys.exit(main())
