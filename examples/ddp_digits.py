"""PyTorch DistributedDataParallel for methods that start every rank: spawn, torchrun or ranktable.

    ranklaunch simulate --nodes 2 --slots 2 --method torchrun -- examples/ddp_digits.py --checkpoint digits.pt

Variables that give a rank its place in the job:
    spawn, torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
    ranktable         RANK_TABLE_FILE, RANK_ID, RANK_SIZE, ASCEND_DEVICE_ID
    none of these     one rank, the whole job: python examples/ddp_digits.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import digits
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits, as one rank of a job.", allow_abbrev=False)
    digits.add_options(parser)
    parser.add_argument("--port", type=int, default=os.environ.get("MASTER_PORT", "29500"), help="with a rank table")
    options, unknown = parser.parse_known_args()  # platforms add arguments of their own
    join_process_group(os.environ, options.port)
    digits.say(f"{dist.get_world_size()} ranks; ignored arguments: {unknown}")
    digits.train(options, int(os.environ.get("LOCAL_RANK") or os.environ.get("ASCEND_DEVICE_ID") or 0))
    dist.barrier()  # so that no rank closes its connections while another still uses them
    dist.destroy_process_group()


def join_process_group(env: Mapping[str, str], port: int) -> None:
    if "RANK_ID" in env:
        place = place_in_rank_table(env)
        url = f"tcp://{place.master}:{port}"
        dist.init_process_group(digits.backend(), init_method=url, rank=place.rank, world_size=place.world_size)
    elif "RANK" in env:
        dist.init_process_group(digits.backend(), init_method="env://")
    else:
        dist.init_process_group(digits.backend(), store=dist.HashStore(), rank=0, world_size=1)


class Place(NamedTuple):
    rank: int
    world_size: int
    master: str  # the host of rank 0


def place_in_rank_table(env: Mapping[str, str]) -> Place:
    """Return this rank's place in the job. Exit if environment and rank table contradict each other.

    On Ascend NPUs, HCCL reads the table too, for the devices' addresses. For the rendezvous, ranks need only the host of rank 0.
    """
    table = read_table(env["RANK_TABLE_FILE"])
    seats = {device["rank_id"]: (server, device) for server in table["server_list"] for device in server["device"]}
    rank, size = env["RANK_ID"], env["RANK_SIZE"]
    require(rank in seats, f"RANK_ID={rank} is not in the rank table, which has {sorted(seats, key=int)}")
    require(size == str(len(seats)), f"RANK_SIZE={size}, but the rank table has {len(seats)} devices")
    server, device = seats[rank]
    index = index_in_container(server["device"].index(device), len(server["device"]), env)
    named = env["ASCEND_DEVICE_ID"]
    require(named == str(index), f"ASCEND_DEVICE_ID={named}, but rank {rank} has device {index} of its container")
    return Place(int(rank), len(seats), seats["0"][0]["server_id"])


def read_table(path: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    status, version = table.get("status"), table.get("version", "")
    require(status == "completed", f"RANK_TABLE_FILE={path} has status {status!r}, not 'completed'")
    require(version.startswith("1."), f"RANK_TABLE_FILE={path} has version {version!r}, not 1.x")
    return table


def index_in_container(index_in_server: int, devices_of_server: int, env: Mapping[str, str]) -> int:
    # Containers on one server share its entry in the table. Each container numbers its devices from 0.
    own_devices = int(env.get("MA_NUM_GPUS") or 0) or devices_of_server
    return index_in_server % own_devices


def require(true: bool, otherwise: str) -> None:
    if not true:
        sys.exit(otherwise)


if __name__ == "__main__":
    main()
