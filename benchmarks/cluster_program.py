"""Program of the section cluster: `cluster_program.py ray|jax|nodes WORD...`.

ray FOLDER    driver of Ray: times of its first line and of its connection to the cluster
jax FOLDER    process of JAX: times of its first line and of the end of jax.distributed.initialize()
nodes NUMBER  wait until a cluster of Ray has so many nodes

Times are of the monotonic clock, which all processes of a machine share. The file first-RANK of the folder
has both times, then the number of nodes or processes.
"""

from __future__ import annotations

import os
import sys
import time

LOOK_S = 0.1


def ray_driver(folder: str) -> None:
    began = time.monotonic()
    import ray

    ray.init(log_to_driver=False)
    write(folder, 0, began, len(alive()))


def jax_process(folder: str) -> None:
    began = time.monotonic()
    import jax

    process, number = (int(os.environ[f"JAX_{name}"]) for name in ("PROCESS_ID", "NUM_PROCESSES"))
    if os.environ.get("BY_HAND"):  # JAX itself reads only the address from the environment
        jax.distributed.initialize(num_processes=number, process_id=process)
    else:
        jax.distributed.initialize()
    write(folder, process, began, jax.process_count())


def await_nodes(number: str) -> None:
    import ray

    ray.init(log_to_driver=False)
    while len(alive()) < int(number):
        time.sleep(LOOK_S)


def alive() -> list[object]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def write(folder: str, rank: int, began: float, count: int) -> None:
    path = os.path.join(folder, f"first-{rank}")
    with open(f"{path}.new", "w") as file:
        file.write(f"{began!r} {time.monotonic()!r} {count}")
    os.rename(f"{path}.new", path)


if __name__ == "__main__":
    {"ray": ray_driver, "jax": jax_process, "nodes": await_nodes}[sys.argv[1]](sys.argv[2])
