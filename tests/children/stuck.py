"""Trains nothing: in each step all ranks meet in a collective. At the moment $MOMENT the rank $WHO gets stuck at the place $PLACE, and the
others go on to the next collective, or to their end.

Collectives are PyTorch's with gloo ($BACKEND=gloo), mpi4py's (mpi), or stand-ins by TCP through rank 0 (star), for which nothing need be
installed.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable

MOMENT, PLACE, WHO = os.environ["MOMENT"], os.environ["PLACE"], int(os.environ["WHO"])
BACKEND, HOST, PORT = os.environ.get("BACKEND", "star"), os.environ["STAR"], 7311
STEPS = {"before": 0, "one": 0, "three": 3, "many": 15, "exit": 8}[MOMENT]
PAYLOAD = 8 * 1024
OPEN_MPI, MINDSPORE = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("RANK_ID", "MS_WORKER_NUM")
PAIRS = (("RANK", "WORLD_SIZE"), OPEN_MPI, MINDSPORE, ("RANK_ID", "RANK_SIZE"))


def place() -> tuple[int, int]:
    """Rank and world size, from wherever the launcher gives them."""
    parser = argparse.ArgumentParser()
    for name in ("--rank", "--world_size", "--task_index"):
        parser.add_argument(name, type=int)
    parser.add_argument("--worker_hosts")
    args, _ = parser.parse_known_args()
    if args.worker_hosts:
        return args.task_index, len(args.worker_hosts.split(","))
    if args.world_size:
        return args.rank, args.world_size
    for rank, size in PAIRS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return int(os.environ.get("RANKLAUNCH_NODE", "0")), int(os.environ.get("RANKLAUNCH_HOSTS", "").count(",")) + 1


class Star:
    """Connections of rank 0 to all, or of another to it."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        if rank == 0:
            with socket.create_server(("", PORT), backlog=size) as server:
                self._others = [server.accept()[0] for _ in range(size - 1)]
        else:
            self._others = [_connected()]

    def all_reduce(self) -> None:
        if self._rank == 0:
            for other in self._others:
                _receive(other)
        for other in self._others:
            other.sendall(bytes(PAYLOAD))
        if self._rank:
            _receive(self._others[0])

    def broadcast(self) -> None:
        """Another collective, to which nobody comes."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()

    def close(self) -> None:
        """Leave the connections open: others find out by themselves that this rank has ended."""


class Gloo:
    def __init__(self, rank: int, size: int) -> None:
        import torch
        from torch import distributed

        self._ones, self._dist = torch.ones(8), distributed
        distributed.init_process_group("gloo", rank=rank, world_size=size)

    def all_reduce(self) -> None:
        self._dist.all_reduce(self._ones)

    def broadcast(self) -> None:
        self._dist.barrier()
        self._dist.barrier()

    def close(self) -> None:
        self._dist.destroy_process_group()


class Mpi:
    def __init__(self, rank: int, size: int) -> None:
        from mpi4py import MPI

        self._comm, self._ones = MPI.COMM_WORLD, bytearray(8)

    def all_reduce(self) -> None:
        self._comm.allreduce(1)

    def broadcast(self) -> None:
        self._comm.recv(source=WHO, tag=99)

    def close(self) -> None:
        pass


def _connected() -> socket.socket:
    while True:
        try:
            return socket.create_connection((HOST, PORT), timeout=600)
        except OSError:
            time.sleep(0.1)


def _receive(connection: socket.socket) -> None:
    left = PAYLOAD
    while left:
        data = connection.recv(left)
        if not data:
            sys.exit("the connection is closed")
        left -= len(data)


# Places


def load_batch() -> None:
    """Wait for a thread that brings nothing."""
    queue.Queue().get()  # type: ignore[var-annotated]


def update_cache() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def read_shard() -> None:
    """State D, as on a dead mount: whoever has begun a vfork waits in the kernel until the child is another program."""
    path = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(path)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, path, os.O_RDONLY, 0)])


def augment() -> None:
    while True:
        pass


def fetch_remote() -> None:
    """Ask a server that does not answer."""
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as connection:
        connection.recv(1)


PLACES: dict[str, Callable[[], None]] = {
    "data loader": load_batch,
    "lock": update_cache,
    "file system": read_shard,
    "busy loop": augment,
    "socket": fetch_remote,
}


def main() -> None:
    rank, size = place()
    comm = {"star": Star, "gloo": Gloo, "mpi": Mpi}[BACKEND](rank, size)
    if MOMENT == "one":
        print("loading the data set", flush=True)
    for step in range(1, STEPS + 1):
        comm.all_reduce()
        print(f"step {step}: loss {1 / step:.4f}", flush=True)
        time.sleep(0.2)
    if rank == WHO:
        PLACES.get(PLACE, comm.broadcast)()
    if MOMENT != "exit":
        comm.all_reduce()
        comm.all_reduce()
    comm.close()


if __name__ == "__main__":
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun runs the program once more for this, and waits for it
        time.sleep(1e6)
    main()
