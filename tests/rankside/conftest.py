"""Jobs on this machine and on several hosts of it."""

from __future__ import annotations

from testbench.fixtures import as_process, hosts
from testbench.leftovers import pytest_runtest_makereport

__all__ = ["as_process", "hosts", "pytest_runtest_makereport"]
