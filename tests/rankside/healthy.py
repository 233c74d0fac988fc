"""The programs of healthy.txt."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).with_name("healthy.txt")
SCRIPT = "train.py"


@dataclass
class Healthy:
    """files: all that lies in its folder, its script too. command: what starts it there."""

    files: dict[str, str]
    command: str = f"exec python {SCRIPT}"
    needs: tuple[str, ...] = ()
    since: tuple[int, int] = (3, 9)
    env: dict[str, str] = field(default_factory=dict)

    def runs_here(self) -> bool:
        return sys.version_info[:2] >= self.since and all(importlib.util.find_spec(name) for name in self.needs)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "start.sh").write_text(f"{self.command}\n")


def read(text: str) -> Mapping[str, Healthy]:
    programs: dict[str, Healthy] = {}
    _, *sections = re.split(r"^=== (.*)\n", text, flags=re.MULTILINE)
    for name, section in zip(sections[::2], sections[1::2]):
        program, file = Healthy({SCRIPT: ""}), SCRIPT
        for line in section.splitlines():
            option, _, value = line.partition(": ")
            if line.startswith("## "):
                break
            if option == "--- command":
                program.command = value
            elif option == "--- needs":
                program.needs = tuple(value.split())
            elif option == "--- since":
                major, _, minor = value.partition(".")
                program.since = (int(major), int(minor))
            elif option == "--- env":
                variable, _, value = value.partition("=")
                program.env[variable] = value
            elif option == "--- file":
                file = value
                program.files[file] = ""
            else:
                program.files[file] += f"{line}\n"
        assert name not in programs, f"{name} is there twice"
        programs[name] = program
    return programs


PROGRAMS = read(TABLE.read_text(encoding="utf-8"))
WITH_TORCH = [name for name, program in PROGRAMS.items() if "torch" in program.needs]
ALONE = [name for name, program in PROGRAMS.items() if program.env]
BATCHED = [name for name in PROGRAMS if name not in {*WITH_TORCH, *ALONE}]
