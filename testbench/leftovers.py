"""Failure of tests that leave processes behind: for the conftest.py of folders whose tests start processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    yield
    if call.when == "call":
        item.stash[_FAILED] = call.excinfo is not None


def fail_if_left(request: pytest.FixtureRequest, orphans: str) -> None:
    """Fail a test that passed and left processes behind. After another failure orphans are expected."""
    if orphans and not request.node.stash.get(_FAILED, True):
        pytest.fail(f"processes are left behind: {orphans}", pytrace=False)
