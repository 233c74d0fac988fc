"""Real launchers, on this machine and on several hosts of it."""

from __future__ import annotations

from cluster_fixtures import hosts
from leftovers import pytest_runtest_makereport
from pod_jobs import pods
from slurm_jobs import slurm

__all__ = ["hosts", "pods", "pytest_runtest_makereport", "slurm"]
