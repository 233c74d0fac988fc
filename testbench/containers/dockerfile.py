"""Parser of Dockerfiles for the instructions that containers/ uses. Any other instruction is an error."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Docker expands variables in these. In RUN the shell does; in ENTRYPOINT nothing does.
EXPANDED = {"FROM", "COPY", "USER", "WORKDIR", "ENV", "ARG"}
KNOWN = EXPANDED | {"RUN", "ENTRYPOINT"}


@dataclass(frozen=True)
class Step:
    """An instruction. variables: those set by ARG and ENV before it."""

    name: str
    text: str
    variables: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def steps(path: Path, arguments: Mapping[str, str]) -> list[Step]:
    """Return the instructions of a Dockerfile. arguments: values of --build-arg; an ARG without one has its default."""
    variables: dict[str, str] = {}
    made = []
    for name, text in instructions(path.read_text(encoding="utf-8")):
        text = expanded(text, variables) if name in EXPANDED else text
        made.append(Step(name, text, dict(variables)))
        if name in ("ARG", "ENV"):
            for pair in shlex.split(text):
                key, _, value = pair.partition("=")
                variables[key] = arguments.get(key, value) if name == "ARG" else value
    return made


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each instruction. Comments are removed before lines that end in a backslash are joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, rest = line.partition(" ")
        if name not in KNOWN:
            msg = f"{name}: unknown instruction; add it to testbench/containers/dockerfile.py"
            raise ValueError(msg)
        yield name, rest.strip()


def expanded(text: str, variables: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda match: variables.get(match[1] or match[2], ""), text)
