"""Real launchers, on this machine and on several hosts of it."""

from __future__ import annotations

from pod_jobs import pods
from slurm_jobs import slurm

from testbench.fixtures import as_process, hosts
from testbench.leftovers import pytest_runtest_makereport

__all__ = ["as_process", "hosts", "pods", "pytest_runtest_makereport", "slurm"]
