"""meets_by_env.py: prints where MPI's ranks are to meet, meets the others there with PyTorch's gloo, and prints how many there are."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
print(f"rank {rank} meets at {os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']}", flush=True)
dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=size)
one = torch.ones(1)
dist.all_reduce(one)
print(f"rank {rank} has met {int(one)}", flush=True)
dist.destroy_process_group()
