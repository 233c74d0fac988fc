"""placed.py ...: prints its rank, the cores that it may use and its arguments, as one line of JSON; a debugger stops in `say`."""

from __future__ import annotations

import json
import os
import sys


def say(rank: str) -> None:
    told = {"rank": rank, "cores": sorted(os.sched_getaffinity(0)), "argv": sys.argv[1:], "threads": os.environ.get("OMP_NUM_THREADS")}
    told.update(number=os.environ.get("X_NUMBER"), local_rank=os.environ.get("LOCAL_RANK"))
    told["left"] = [name for name in os.environ if name.startswith("RANKLAUNCH_PLACE_")]
    os.write(1, f"placed {json.dumps(told)}\n".encode())  # at once: mpirun mixes lines whose ends come by themselves


if os.environ.get("MS_ROLE") != "MS_SCHED":  # msrun's own, which has no rank
    say(os.environ.get("RANK") or os.environ.get("RANK_ID") or os.environ["OMPI_COMM_WORLD_RANK"])
