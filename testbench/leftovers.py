"""Nothing is left behind by any test: for the conftest.py of folders whose tests start processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    yield
    if call.when == "call":
        item.stash[_FAILED] = call.excinfo is not None


def fail_if_left(request: pytest.FixtureRequest, left: str) -> None:
    """After a failure the rest is only cleaned away: that it is there says nothing more."""
    if left and not request.node.stash.get(_FAILED, True):
        pytest.fail(f"processes are left behind: {left}", pytrace=False)
