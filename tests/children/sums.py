"""sums.py [NAME...]: what a program does as its training begins, without a framework, whose import takes seconds.

All ranks meet at MASTER_ADDR and MASTER_PORT and learn how many have come. Says that and the variables that are named. Where torchrun is
the launcher, its own store is at that port, and the muster often at the next: they meet at the one after.
"""

from __future__ import annotations

import os
import socket
import sys
import time

WAIT_S = 240  # a launcher that imports PyTorch may be so much later on one node than on another


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 2 * ("TORCHELASTIC_RUN_ID" in os.environ)
    total = gather(port, ranks) if rank == 0 else tell(address, port)
    named = [os.environ[name] for name in sys.argv[1:] if not name.startswith("-")]  # DeepSpeed adds an option
    line = " ".join(map(str, ("place", rank, "sum", total, *(["at", *named] if named else []))))
    print(f"{line}\n", end="", flush=True)  # in one piece: where ranks share a pipe, others would write in between


def gather(port: int, ranks: int) -> int:
    with socket.create_server(("", port)) as server:
        server.settimeout(WAIT_S)
        others = [server.accept()[0] for _ in range(ranks - 1)]
    total = 1 + sum(int(other.recv(1)) for other in others)
    for other in others:
        other.sendall(b"%d\n" % total)
        other.close()
    return total


def tell(address: str, port: int) -> int:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with socket.create_connection((address, port), WAIT_S) as first, first.makefile() as told:
                first.sendall(b"1")
                return int(told.readline())
        except (OSError, ValueError):  # it does not listen yet, as a Service tells by an end without a word
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
