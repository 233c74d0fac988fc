"""Jobs on this machine and on several hosts of it, with records whatever the rest of the suite is tried with."""

from __future__ import annotations

import pytest

from testbench.fixtures import as_process, hosts
from testbench.leftovers import pytest_runtest_makereport

__all__ = ["as_process", "hosts", "pytest_runtest_makereport"]


@pytest.fixture(autouse=True)
def with_records(unchanged_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKLAUNCH_RANKSIDE", raising=False)
