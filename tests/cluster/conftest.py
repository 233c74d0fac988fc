"""Several hosts on one machine, and nothing left behind on them by any test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import Hosts, missing

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    yield
    if call.when == "call":
        item.stash[FAILED] = call.excinfo is not None


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
    # After a failure the rest is only cleaned away: that it is there says nothing more.
    if left and not request.node.stash.get(FAILED, True):
        pytest.fail(f"processes are left behind: {'; '.join(left)}", pytrace=False)
