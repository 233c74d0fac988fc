"""Whole specifications as files: tests/golden/specs/<case>/ holds argv.json, perhaps values.json, and what comes out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import spec_cases
from spec_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=spec_cases.case_id)
def test_specification_is_as_stored(case: Path, request: pytest.FixtureRequest) -> None:
    name, data = spec_cases.output_of(case)
    if request.config.getoption("--update-golden"):
        for path in case.iterdir():
            if path.name not in spec_cases.INPUTS:
                path.unlink()
        (case / name).write_bytes(data)
    assert {path.name for path in case.iterdir()} - spec_cases.INPUTS == {name}, "renew with --update-golden"
    assert (case / name).read_bytes() == data


@pytest.mark.parametrize("case", CASES, ids=spec_cases.case_id)
def test_two_renderings_are_the_same(case: Path) -> None:
    """In one process. That they are in several, whose sets have other orders, the stored bytes show."""
    first, second = (spec_cases.output_of(case) for _ in range(2))
    assert first == second


def test_every_kind_has_a_case() -> None:
    from ranklaunch.specs.model import KINDS

    assert {spec_cases.kind_of(case) for case in CASES if not (case / "error.txt").exists()} == set(KINDS)
    assert len(CASES) >= 12


def test_body_for_modelarts_is_json() -> None:
    for case in spec_cases.accepted("modelarts"):
        assert json.loads(spec_cases.text_of(case))["kind"] == "job"


@pytest.mark.processes
@pytest.mark.parametrize("case", spec_cases.accepted("slurm"), ids=spec_cases.case_id)
def test_script_for_slurm_is_one_that_bash_can_read(case: Path) -> None:
    done = subprocess.run(["bash", "-n", str(case / "spec.sh")], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    directives = [line for line in spec_cases.text_of(case).splitlines() if line.startswith("#SBATCH ")]
    assert all(" " not in line.partition(" ")[2] for line in directives)
