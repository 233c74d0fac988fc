"""Several hosts on one machine as a fixture, and nothing left behind on them by any test: for the conftest.py of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbench.hosts import Hosts, missing
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
