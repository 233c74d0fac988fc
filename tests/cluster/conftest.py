"""Several hosts on one machine."""

from __future__ import annotations

from cluster_fixtures import hosts
from leftovers import pytest_runtest_makereport

__all__ = ["hosts", "pytest_runtest_makereport"]
