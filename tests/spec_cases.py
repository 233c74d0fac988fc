"""The golden cases of `ranklaunch spec`, and what they come out as."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helpers

from ranklaunch.specs.model import BY_SCRIPT

FOLDER = helpers.TESTS / "golden" / "specs"
CASES = sorted(path for path in FOLDER.iterdir() if path.is_dir())
INPUTS = {"argv.json", "values.json"}
SUFFIXES = {"modelarts": "json", "aws_batch": "json", **dict.fromkeys(("slurm", *BY_SCRIPT), "sh")}


def case_id(case: Path) -> str:
    return case.name


def argv_of(case: Path) -> list[str]:
    return list(json.loads((case / "argv.json").read_text(encoding="utf-8")))


def kind_of(case: Path) -> str:
    return argv_of(case)[0]


def accepted(*kinds: str) -> list[Path]:
    """Cases of these kinds that render, by what is stored."""
    return [case for case in CASES if kind_of(case) in kinds and not (case / "error.txt").exists()]


def output_of(case: Path) -> tuple[str, bytes]:
    """(name of the file, its bytes)."""
    with _in(case):
        result = helpers.call("spec", *argv_of(case))
    if result.code:
        assert not result.out
        return "error.txt", f"exit {result.code}\n{result.err}".encode()
    return f"spec.{SUFFIXES.get(kind_of(case), 'yaml')}", result.out.encode()


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def text_of(case: Path) -> str:
    return next(case.glob("spec.*")).read_text(encoding="utf-8")


def objects_in(text: str) -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load_all(text))
