"""Programs that start their ranks themselves, on two hosts: a script with a launcher in it, and one that is told by its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Hosts
from testbench.jobs.on_hosts import LauncherJob
from testbench.places import child

pytestmark = pytest.mark.launchers

SCRIPT = """#!/bin/bash
set -e
DISTRIBUTED=(
  --nnodes "${{NNODES:-1}}" --node_rank "${{NODE_RANK:-0}}" --nproc_per_node "${{NPROC_PER_NODE:-1}}"
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
)
torchrun "${{DISTRIBUTED[@]}}" {program} "$@"
"""


def test_a_script_with_torchrun_in_it_runs_once_on_each_node(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Also where it is asked for as if it were a rank, and where the image has left a place of its own."""
    (tmp_path / "run.sh").write_text(SCRIPT.format(program=child("environment.py")))
    job = LauncherJob(hosts(2), tmp_path, "spawn")
    job.start("run.sh", "--env", "RANK,WORLD_SIZE", env={"RANK": "7", "WORLD_SIZE": "9", "PET_NNODES": "5"})
    assert job.end(0)["outcome"] == "succeeded"
    told = [json.loads(line)["env"] for node in job.nodes for line in node.out.splitlines() if '"env"' in line]
    assert sorted((env["RANK"], env["WORLD_SIZE"]) for env in told) == [(str(rank), "4") for rank in range(4)]
    assert "started once on each node" in job.nodes[0].err
