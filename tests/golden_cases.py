"""The cases of tests/golden/ and what goes into them; spec_cases.py has those of specifications."""

from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import helpers

GOLDEN = helpers.TESTS / "golden"
CASES = sorted(path for path in GOLDEN.glob("*/*") if path.is_dir() and path.parent.name != "specs")
PLANNED = [case for case in CASES if (case / "summary.txt").exists()]
REFUSALS = sorted(GOLDEN.glob("*/refused.txt"))


def case_id(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def env_of(case: Path) -> dict[str, str]:
    if (case / "env.json").exists():
        return dict(json.loads((case / "env.json").read_text(encoding="utf-8")))
    lines = (case / "env").read_text(encoding="utf-8").split("\n")
    return dict(line.split("=", 1) for line in lines if line)


def argv_of(case: Path) -> list[str]:
    if (case / "argv.json").exists():
        return list(json.loads((case / "argv.json").read_text(encoding="utf-8")))
    return (case / "argv").read_text(encoding="utf-8").split("\n")[:-1]


class Recorded(NamedTuple):
    """What is in a container of a case. name: FOLDER/CASE; files: by their paths there."""

    name: str
    folder: str
    env: dict[str, str]
    files: dict[str, str]


@functools.cache
def recorded() -> list[Recorded]:
    """Of all cases, those that are refused too."""
    found = [Recorded(case_id(case), case.parent.name, env_of(case), files_of(case)) for case in CASES]
    for file in REFUSALS:
        for case in refusals(file.read_text(encoding="utf-8")):
            name = f"{file.parent.name}/{case.asked.partition(':')[0]}"
            own = {f"/{path}": text for path, text in case.files.items()}
            found.append(Recorded(name, file.parent.name, case.env, {**files_of(case.like), **own}))
    return found


def files_of(case: Path) -> dict[str, str]:
    root = case / "root"
    paths = [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else []
    return {f"/{path.relative_to(root)}": path.read_text(encoding="utf-8") for path in paths}


class Refusal(NamedTuple):
    """A case that differs little from one that is planned. asked: its lines in refused.txt, without what comes out; files: of its root/."""

    asked: str
    like: Path
    env: dict[str, str]
    argv: list[str]
    files: dict[str, str]


def refusals(text: str) -> list[Refusal]:
    """What refused.txt says: blocks of NAME: like ADAPTER/CASE, then lines that begin with + (a variable), - (one that is not there),
    $ (the command line), @ (a file, whose lines with | follow it), and what comes out."""
    return [_refusal(block) for block in text.strip().split("\n\n")]


def _refusal(block: str) -> Refusal:
    lines = block.split("\n")
    asked = lines[: next((i for i, line in enumerate(lines) if line.startswith("exit ")), len(lines))]  # a new one has no exit yet
    like = GOLDEN / asked[0].partition(": like ")[2]
    env, argv, files, path = env_of(like), argv_of(like), {}, ""
    for line in asked[1:]:
        kind, rest = line[:1], line[1:]
        if kind == "+":
            name, _, env[name] = rest.partition("=")
        elif kind == "-":
            del env[rest]
        elif kind == "$":
            argv = shlex.split(rest)
        elif kind == "@":
            path = rest.strip()
            files[path] = ""
        else:
            files[path] += f"{re.fullmatch('[|] ?(.*)', line)[1]}\n"  # type: ignore[index]
    return Refusal("\n".join(asked), like, env, argv, files)
