"""Hosts for tests of launchers, as for those of nodes."""

from __future__ import annotations

from cluster.conftest import hosts, pytest_runtest_makereport

__all__ = ["hosts", "pytest_runtest_makereport"]
