"""Whole specifications as files: tests/golden/specs/<case>.txt holds the command line, perhaps values, and what comes out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import golden_cases
import pytest
import spec_cases
from spec_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=spec_cases.case_id)
def test_specification_is_as_stored(case: Path, request: pytest.FixtureRequest) -> None:
    text = f"{golden_cases.head_of(case)}\n{spec_cases.output_of(case)}"
    if request.config.getoption("--update-golden"):
        case.write_text(text, encoding="utf-8")
    assert case.read_text(encoding="utf-8") == text, "renew with --update-golden"


@pytest.mark.parametrize("case", CASES, ids=spec_cases.case_id)
def test_two_renderings_are_the_same(case: Path) -> None:
    """In one process. That they are in several, whose sets have other orders, the stored bytes show."""
    first, second = (spec_cases.output_of(case) for _ in range(2))
    assert first == second


def test_every_kind_has_a_case() -> None:
    from ranklaunch.specs.model import KINDS

    assert {kind for kind in KINDS if spec_cases.accepted(kind)} == set(KINDS)
    assert len(CASES) >= 12


def test_body_for_modelarts_is_json() -> None:
    for case in spec_cases.accepted("modelarts"):
        assert json.loads(spec_cases.text_of(case))["kind"] == "job"


@pytest.mark.processes
@pytest.mark.parametrize("case", spec_cases.accepted("slurm"), ids=spec_cases.case_id)
def test_script_for_slurm_is_one_that_bash_can_read(case: Path) -> None:
    script = spec_cases.text_of(case).encode()
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    directives = [line for line in spec_cases.text_of(case).splitlines() if line.startswith("#SBATCH ")]
    assert all(" " not in line.partition(" ")[2] for line in directives)
