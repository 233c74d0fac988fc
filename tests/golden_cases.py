"""The cases of tests/golden/: their inputs, and the outputs that are stored. spec_cases.py has those of specifications.

A case is a file, tests/golden/<adapter>/<case>.txt. Its lines up to the first empty one are the inputs:

    # a comment
    like ADAPTER/CASE          the case that this one starts from, which is planned and like no other
    +NAME=VALUE                a variable; +NAME:"VALUE" is JSON, for values with unprintable characters
    -NAME                      a variable of that case which is not there
    $ train.py --epochs=3      the command line, quoted as for a shell; $: ["train.py"] is JSON
    @ etc/hosts                a file of the container; its lines follow, each behind "| "

The outputs follow. A line "== FORM" begins a further output (json, text, sh or files); in a new case it asks for one.
refused.txt has cases that are refused, a block each, which begins with "NAME: like ADAPTER/CASE".
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import helpers

GOLDEN = helpers.TESTS / "golden"
SPECS = GOLDEN / "specs"
REFUSALS = sorted(GOLDEN.glob("*/refused.txt"))
CASES = sorted(path for path in GOLDEN.glob("*/*.txt") if path.parent != SPECS and path.name != "refused.txt")


class Inputs(NamedTuple):
    """files: texts by their paths below the root. like: ADAPTER/CASE, "" where the case starts from none."""

    env: dict[str, str]
    argv: list[str]
    files: dict[str, str]
    like: str


def case_id(case: Path) -> str:
    return f"{case.parent.name}/{case.stem}"


def path_of(name: str) -> Path:
    return GOLDEN / f"{name}.txt"


@functools.cache
def inputs_of(case: Path) -> Inputs:
    lines = [line for line in head_of(case).splitlines() if not line.startswith("#")]
    if lines and lines[0].startswith("like "):
        like = lines[0][len("like ") :]
        start = inputs_of(path_of(like)).like
        assert not start, f"{like} is like {start}: name that one, so that a reader opens one other file"
        return _inputs(lines[1:], like)
    return _inputs(lines, "")


def _inputs(lines: Sequence[str], like: str) -> Inputs:
    start = inputs_of(path_of(like)) if like else Inputs({}, [], {}, "")
    env, argv, files, path = dict(start.env), start.argv, dict(start.files), ""
    for line in lines:
        kind, rest = line[:1], line[1:]
        if kind == "+":
            name, sign, value = re.fullmatch("([^=:]+)([=:])(.*)", rest).groups()  # type: ignore[union-attr]
            env[name] = json.loads(value) if sign == ":" else value
        elif kind == "-":
            del env[rest]
        elif kind == "$":
            argv = list(json.loads(rest[1:])) if rest.startswith(":") else shlex.split(rest)
        elif kind == "@":
            path = rest.strip()
            files[path] = ""
        else:
            assert kind == "|", f"{line!r}: expected a line that begins with one of + - $ @ |"
            files[path] += f"{rest[1:] if rest.startswith(' ') else rest}\n"
    return Inputs(env, argv, files, like)


def env_of(case: Path) -> dict[str, str]:
    return inputs_of(case).env


def argv_of(case: Path) -> list[str]:
    return inputs_of(case).argv


def write_files(files: dict[str, str], root: Path) -> None:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


# Outputs


def head_of(case: Path) -> str:
    """The lines of the inputs, as they are written."""
    return case.read_text(encoding="utf-8").partition("\n\n")[0].rstrip("\n") + "\n"


def outputs_of(case: Path) -> dict[str, str]:
    """The stored outputs by their form; the first is "plan": a summary, or the message of a refusal."""
    parts = re.split(r"^== (\w+)\n", case.read_text(encoding="utf-8").partition("\n\n")[2], flags=re.MULTILINE)
    return {"plan": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def is_planned(case: Path) -> bool:
    """False, too, of a new case, whose plan is not there yet."""
    plan = outputs_of(case)["plan"]
    return bool(plan) and not plan.startswith("exit ")


class Shape(NamedTuple):
    method: str
    platform: str
    nodes: str


def shape_of(case: Path) -> Shape:
    lines = outputs_of(case)["plan"].splitlines()
    method, platform = re.match(r"(\S+) on (\w+): ", lines[0]).groups()  # type: ignore[union-attr]
    hosts = [line for line in lines if line.startswith("  @")]
    return Shape(method, platform, "several nodes" if len(hosts) > 1 or hosts[0].startswith("  @{") else "one node")


PLANNED = [case for case in CASES if is_planned(case)]


# All environments


class Recorded(NamedTuple):
    """Environment and files of a container. name: FOLDER/CASE; files: texts by their paths there."""

    name: str
    folder: str
    env: dict[str, str]
    files: dict[str, str]


@functools.cache
def recorded() -> list[Recorded]:
    """Of all cases, those that are refused too."""
    planned = [(case_id(case), inputs_of(case)) for case in CASES]
    refused = [(f"{file.parent.name}/{case.name}", case.inputs) for file in REFUSALS for case in refusals(file.read_text(encoding="utf-8"))]
    return [
        Recorded(name, name.partition("/")[0], inputs.env, {f"/{path}": text for path, text in inputs.files.items()})
        for name, inputs in (*planned, *refused)
    ]


class Refusal(NamedTuple):
    """A case that differs little from one that is planned. head: its lines in refused.txt, without what comes out."""

    name: str
    head: str
    inputs: Inputs


def refusals(text: str) -> list[Refusal]:
    return [_refusal(block) for block in text.strip().split("\n\n")]


def _refusal(block: str) -> Refusal:
    lines = block.split("\n")
    head = lines[: next((i for i, line in enumerate(lines) if line.startswith("exit ")), len(lines))]  # a new one has no exit yet
    name, _, like = head[0].partition(": like ")
    return Refusal(name, "\n".join(head), _inputs(head[1:], like))
