"""The examples for platforms are what ranklaunch renders today."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import helpers
import pytest

from ranklaunch.specs.model import KINDS
from testbench import places


@pytest.fixture
def examples() -> ModuleType:
    return places.module("tools/render_examples.py")


def test_examples_are_fresh(examples: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert examples.main(["--check"]) == 0, capsys.readouterr().err
    folders = [helpers.ROOT / "examples" / name for name in ("k8s", "modelarts", "slurm", "clouds", "batch")]
    assert {str(path.relative_to(helpers.ROOT)) for folder in folders for path in folder.iterdir()} == set(examples.COMMANDS)


def test_there_is_an_example_of_each_kind(examples: ModuleType) -> None:
    assert {options.split()[0] for options in examples.COMMANDS.values()} == set(KINDS)


def test_stale_examples_are_named(examples: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert examples.main(["--check"], tmp_path) == 1
    assert "examples/k8s/job-cpu.yaml is stale" in capsys.readouterr().err
    assert examples.main([], tmp_path) == 0
    assert examples.main(["--check"], tmp_path) == 0
