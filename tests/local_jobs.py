"""Fixtures of tests that start ranklaunch on this machine, in both of its forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ranklaunch.system import tree
from testbench.jobs.job import Starter, pid_1_prefix
from testbench.jobs.processes import Family
from testbench.leftovers import fail_if_left
from testbench.waiting import sleep_until


@pytest.fixture(autouse=True)
def nobody_is_forsaken() -> Iterator[None]:
    """What a test has started in its own process, and ended, it also waits for: another would count it."""
    yield
    for pid in list(tree.wanted):
        sleep_until(lambda pid=pid: tree.forsake(pid) is not None, "a process that was killed lives")  # type: ignore[misc]


@pytest.fixture
def family() -> Family:
    return Family()


def _starter(request: pytest.FixtureRequest, family: Family, tmp_path: Path, as_pid_1: bool) -> Iterator[Starter]:
    starter = Starter(family, tmp_path, as_pid_1)
    yield starter
    fail_if_left(request, starter.clean_up())


@pytest.fixture(params=["process", "pid1"])
def ranklaunch(request: pytest.FixtureRequest, family: Family, tmp_path: Path) -> Iterator[Starter]:
    """Starts ranklaunch as a plain process, and again as PID 1 of a namespace."""
    if request.param == "pid1" and not pid_1_prefix():
        pytest.skip("this machine does not allow a PID namespace: run as root, with unshare of util-linux")
    yield from _starter(request, family, tmp_path, request.param == "pid1")


@pytest.fixture
def as_pid_1(request: pytest.FixtureRequest, family: Family, tmp_path: Path) -> Iterator[Starter]:
    """Starts ranklaunch as PID 1 only: where a plain process is in other tests, or would do the same."""
    if not pid_1_prefix():
        pytest.skip("this machine does not allow a PID namespace: run as root, with unshare of util-linux")
    yield from _starter(request, family, tmp_path, True)


@pytest.fixture
def as_process(request: pytest.FixtureRequest, family: Family, tmp_path: Path) -> Iterator[Starter]:
    """Starts ranklaunch as a plain process only: where the form makes no difference, or there is only this one."""
    yield from _starter(request, family, tmp_path, False)
