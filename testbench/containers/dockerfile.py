"""Reads a Dockerfile into its instructions, as far as containers/ uses them. What is not known here is refused, not left out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Docker puts variables into these. RUN has its shell do it, ENTRYPOINT has none.
EXPANDED = {"FROM", "COPY", "USER", "WORKDIR", "ENV", "ARG"}
KNOWN = EXPANDED | {"RUN", "ENTRYPOINT"}


@dataclass(frozen=True)
class Step:
    """An instruction whose turn has come. variables: what ARG and ENV have set before it."""

    name: str
    text: str
    variables: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def steps(path: Path, arguments: Mapping[str, str]) -> list[Step]:
    """arguments: what --build-arg gives. Without one, an ARG has its default."""
    variables: dict[str, str] = {}
    found = []
    for name, text in instructions(path.read_text(encoding="utf-8")):
        text = expanded(text, variables) if name in EXPANDED else text
        found.append(Step(name, text, dict(variables)))
        if name in ("ARG", "ENV"):
            for pair in shlex.split(text):
                key, _, value = pair.partition("=")
                variables[key] = arguments.get(key, value) if name == "ARG" else value
    return found


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Comments go first, also those between the lines of one instruction; then lines that end in a backslash are joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, rest = line.partition(" ")
        if name not in KNOWN:
            msg = f"{name}: testbench/containers/dockerfile.py does not know this instruction yet"
            raise ValueError(msg)
        yield name, rest.strip()


def expanded(text: str, variables: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda match: variables.get(match[1] or match[2], ""), text)
