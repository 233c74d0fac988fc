"""The golden cases of `ranklaunch spec`, tests/golden/specs/<case>.txt, in the form of golden_cases.py: a command line, perhaps a file of
values, and what comes out."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_cases
import helpers
from golden_cases import SPECS

CASES = sorted(SPECS.glob("*.txt"))


def case_id(case: Path) -> str:
    return case.stem


def case_of(name: str) -> Path:
    return SPECS / f"{name}.txt"


def argv_of(case: Path) -> list[str]:
    return golden_cases.argv_of(case)


def kind_of(case: Path) -> str:
    return argv_of(case)[0]


def accepted(*kinds: str) -> list[Path]:
    """Cases of these kinds that render, by what is stored."""
    return [case for case in CASES if kind_of(case) in kinds and golden_cases.is_planned(case)]


def output_of(case: Path) -> str:
    with _folder_of(case):
        result = helpers.call("spec", *argv_of(case))
    if result.code:
        assert not result.out
        return f"exit {result.code}\n{result.err}"
    return result.out


@contextlib.contextmanager
def _folder_of(case: Path) -> Iterator[None]:
    """Be in a folder that has the files of the case."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        golden_cases.write_files(golden_cases.inputs_of(case).files, Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def text_of(case: Path) -> str:
    return golden_cases.outputs_of(case)["plan"]


def objects_in(text: str) -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load_all(text))
