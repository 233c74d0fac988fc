"""Several hosts on one machine."""

from __future__ import annotations

from testbench.fixtures import hosts
from testbench.leftovers import pytest_runtest_makereport

__all__ = ["hosts", "pytest_runtest_makereport"]
