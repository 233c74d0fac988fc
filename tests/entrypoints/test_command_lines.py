"""Command lines of every command, each with what becomes of it: command_lines.py has the table."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import command_lines
import helpers
import pytest

STARTS_PROCESSES = ("run", "simulate", "tune")


def outcome(line: str) -> tuple[int, str]:
    """Return the exit code, and the message or the first line of the output; of a plan the options that it heeds, and a rank's command."""
    command, *words = shlex.split(line)
    if command in STARTS_PROCESSES:
        done = subprocess.run(
            [sys.executable, "-m", "ranklaunch", command, *words], capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        found = helpers.Result(done.returncode, done.stdout, done.stderr)
    else:
        found = helpers.call(command, *words)
    if found.code == 0 and command == "plan" and "--help" not in line and "-h" not in words:
        return 0, heeded(words)
    return found.code, found.err.replace("ranklaunch: ", "") if found.err else found.out.partition("\n")[0] + "\n"


def heeded(words: list[str]) -> str:
    plan = helpers.call("plan", "--format=json", *words).json
    values = [f"{each['name']}={each['value']!r}" for each in plan["values"] if each["source"].startswith("option")]
    argv = [word.replace(str(helpers.ROOT / "src"), "SOURCE") for word in plan["processes"][0]["argv"]]
    return f"{plan['method']} {' '.join([*values, ':', *argv])}\n"


def check(line: str, code: int, text: str) -> None:
    expected = text.replace("USAGE", f"usage: {command_lines.USAGE[line.split()[0]]}")
    found_code, found = outcome(line)
    is_begin = expected.endswith(" ...")
    assert found_code == code
    assert found.startswith(expected[:-3]) if is_begin else found == expected, f"{found} != {expected}"


COMMANDS = dict.fromkeys(row[0].split()[0] for row in command_lines.ROWS)
MARKS = {command: [pytest.mark.processes] for command in STARTS_PROCESSES}


@pytest.mark.parametrize("command", [pytest.param(command, marks=MARKS.get(command, [])) for command in COMMANDS])
def test_what_becomes_of_a_command_line(command: str) -> None:
    helpers.check_each(check, {row[0]: row for row in command_lines.ROWS if row[0].split()[0] == command})
