"""Several hosts on one machine, and ranklaunches that are started, with nothing left behind by any test: for a conftest.py."""

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
    """hosts(3) starts three. What still runs there at the end of the test fails it, unless the test has closed them itself."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    made: list[Hosts] = []

    def make(n: int, **how: Any) -> Hosts:
        made.append(Hosts(n, tmp_path, **how))
        return made[-1].open()

    yield make
    left = [line for cluster in reversed(made) for line in cluster.close()]
    fail_if_left(request, "; ".join(left))


@pytest.fixture
def as_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starter]:
    """Starts ranklaunch as users do."""
    starter = Starter(Family(), tmp_path, False)
    yield starter
    fail_if_left(request, starter.clean_up())
