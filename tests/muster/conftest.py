"""A hub with real sockets, and the limit of open files as it was."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from muster_helpers import Bench


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
