"""PyTorch DistributedDataParallel in a script that is started once per node and starts its own ranks: method pytorch.

    ranklaunch simulate --nodes 2 --slots 2 --method pytorch -- examples/ddp_spawn_digits.py --procs_per_node 2

Arguments that give the script its place: --init_method tcp://HOST:PORT and, on several nodes, --rank and --world_size,
which count nodes here, not processes.
"""

from __future__ import annotations

import argparse
import os
import signal
from types import FrameType

import digits
import torch.distributed as dist
from torch import multiprocessing


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one node of a job.", allow_abbrev=False)
    digits.add_options(parser)
    parser.add_argument("--init_method", default="tcp://127.0.0.1:29500", help="where rank 0 listens")
    parser.add_argument("--rank", type=int, default=0, help="index of this node")
    parser.add_argument("--world_size", type=int, default=1, help="number of nodes")
    parser.add_argument("--procs_per_node", type=int, default=int(os.environ.get("MA_NUM_GPUS") or 0) or 1)
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    print(f"node {options.rank} of {options.world_size}; ignored arguments: {unknown}", flush=True)
    ranks = multiprocessing.spawn(run_rank, args=(options,), nprocs=options.procs_per_node, join=False)

    def forward(signum: int, frame: FrameType | None) -> None:
        for process in ranks.processes:
            process.terminate()

    # Without this, SIGTERM would end this process and its ranks before they could save.
    signal.signal(signal.SIGTERM, forward)
    while not ranks.join():
        pass


def run_rank(local_rank: int, options: argparse.Namespace) -> None:
    # ranklaunch sets these two if nodes have different numbers of slots; else they follow from the number of nodes.
    rank = int(os.environ.get("RANKLAUNCH_FIRST_RANK") or options.rank * options.procs_per_node) + local_rank
    world_size = int(os.environ.get("RANKLAUNCH_WORLD_SIZE") or options.world_size * options.procs_per_node)
    dist.init_process_group(digits.backend(), init_method=options.init_method, rank=rank, world_size=world_size)
    digits.train(options, local_rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
