"""Programs that start their ranks themselves, on two hosts: a script with a launcher in it, and one that is told by its arguments."""

from __future__ import annotations

import re
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
    told = re.findall(r'"(RANK|WORLD_SIZE)": "([0-9]+)"', "".join(node.out for node in job.nodes))  # torchrun mixes its ranks' lines
    assert sorted(told) == [*(("RANK", str(rank)) for rank in range(4)), *[("WORLD_SIZE", "4")] * 4]
    assert "started once on each node" in job.nodes[0].err


PROGRAM = """
import argparse, os
import torch, torch.distributed as dist, torch.multiprocessing as mp

def one(local_rank, args):
    rank = args.node_rank * args.nproc_per_node + local_rank
    meet = f"tcp://{args.master_addr}:{args.master_port}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=args.nnodes * args.nproc_per_node)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    os.write(1, b"rank %d of %d has %d\\n" % (rank, dist.get_world_size(), total))
    dist.destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", default="5003")
    for name in ("nproc_per_node", "node_rank", "nnodes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(one, nprocs=args.nproc_per_node, args=(args,))
"""
PLACE = "--nnodes {{ nodes }} --node_rank {{ node_index }} --nproc_per_node {{ slots }} "
MEETING = "--master_addr {{ master_addr }} --master_port {{ master_port }}"


def test_a_program_that_spawns_its_ranks_is_told_by_its_arguments_where_it_is(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = LauncherJob(hosts(2), tmp_path, "plain")
    job.start("train.py", options=(f"--pass={PLACE}{MEETING}",))
    assert job.end(0)["outcome"] == "succeeded"
    said = sorted(line for node in job.nodes for line in node.out.splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} of 4 has 6" for rank in range(4)]
