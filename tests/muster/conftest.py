"""A hub with real sockets, jobs on this machine, and the limit of open files as it was."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from local_jobs import as_pid_1, as_process, family, nobody_is_forsaken, ranklaunch
from muster_helpers import Bench

from testbench.leftovers import pytest_runtest_makereport

__all__ = [
    "as_pid_1",
    "as_process",
    "family",
    "nobody_is_forsaken",
    "pytest_runtest_makereport",
    "ranklaunch",
]


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """The hub raises the limit of open files for itself."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(nodes: int, **more: Any) -> Bench:
        made.append(Bench(nodes, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
