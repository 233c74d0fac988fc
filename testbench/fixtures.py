"""Fixtures for a conftest.py: several hosts, and a starter of ranklaunch. A test that leaves processes behind fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Hosts, missing
from testbench.jobs.job import Starter
from testbench.jobs.processes import Family
from testbench.leftovers import fail_if_left


@pytest.fixture
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    """Yield a function: hosts(3) starts three hosts. A process that still runs on one at the end fails the test."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    made: list[Hosts] = []

    def make(n: int, **how: Any) -> Hosts:
        made.append(Hosts(n, tmp_path, **how))
        return made[-1].open()

    yield make
    orphans = [line for cluster in reversed(made) for line in cluster.close()]
    fail_if_left(request, "; ".join(orphans))


@pytest.fixture
def as_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starter]:
    """Yield a starter that runs ranklaunch as a plain process."""
    starter = Starter(Family(), tmp_path, False)
    yield starter
    fail_if_left(request, starter.clean_up())
