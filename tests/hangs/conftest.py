"""A started ranklaunch in both of its forms, and nothing left behind by any test."""

from __future__ import annotations

from local_jobs import as_pid_1, as_process, family, nobody_is_forsaken, ranklaunch

from testbench.leftovers import pytest_runtest_makereport

__all__ = [
    "as_pid_1",
    "as_process",
    "family",
    "nobody_is_forsaken",
    "pytest_runtest_makereport",
    "ranklaunch",
]
