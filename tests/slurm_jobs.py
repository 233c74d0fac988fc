"""Slurm on two hosts as a fixture, and what jobs there do: for the conftest.py of a folder, and its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.slurm import Slurm, missing

LONG_S = 240.0
ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.tensor(float(dist.get_rank()))
dist.all_reduce(sum_of_ranks)
print("sum", int(sum_of_ranks), "of", dist.get_world_size(), "on", os.environ["SLURMD_NODENAME"], flush=True)
dist.destroy_process_group()
"""
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def slurm(hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Slurm]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with Slurm(hosts(2), tmp_path / "slurm") as cluster:
        yield cluster
