"""Searches are started as users start them."""

from __future__ import annotations

from testbench.fixtures import as_process
from testbench.leftovers import pytest_runtest_makereport

__all__ = ["as_process", "pytest_runtest_makereport"]
