"""The cases of tests/golden/ and what goes into them; spec_cases.py has those of specifications."""

from __future__ import annotations

import json
from pathlib import Path

import helpers

GOLDEN = helpers.TESTS / "golden"
CASES = sorted(path for path in GOLDEN.glob("*/*") if path.is_dir() and path.parent.name != "specs")


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
