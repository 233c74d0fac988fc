"""A started ranklaunch, with nothing left behind by any test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbench.jobs.job import Starter
from testbench.jobs.processes import Family
from testbench.leftovers import fail_if_left, pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]


@pytest.fixture
def as_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(Family(), tmp_path, False)
    yield starter
    fail_if_left(request, starter.clean_up())
