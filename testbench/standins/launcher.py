"""Stand-in for torchrun and launchers like it: starts ranks with their variables, waits for them, and ends with 1 if one failed.

It uses torchrun's options for the place of ranks and accepts any other `--name=value`. There is no rendezvous: ranks of each node start at
once. With --join=False it exits as soon as its ranks have started, like msrun.
"""

from __future__ import annotations

import os
import subprocess
import sys

WITH_VALUE = ("--nnodes", "--nproc_per_node", "--node_rank", "--master_addr", "--master_port", "--join", "--worker_num")


def main(words: list[str]) -> int:
    if words[:1] == ["launch"]:  # accelerate's
        words.pop(0)
    options = {"--nnodes": "1", "--nproc_per_node": "1", "--node_rank": "0", "--master_addr": "127.0.0.1", "--master_port": "29500"}
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        name = "--" + name.lstrip("-").replace("-", "_")
        if not equals and name in WITH_VALUE:
            value = words.pop(0)
        options[name] = value
    here = int(options.get("--worker_num") or options["--nproc_per_node"])
    first = int(options["--node_rank"]) * here
    ranks = [
        subprocess.Popen([sys.executable, *words], env={**os.environ, **_place(first + i, i, here, options)})
        for i in range(here)
    ]  # fmt: skip
    if options.get("--join") == "False":
        return 0
    codes = [rank.wait() for rank in ranks]
    return 1 if any(codes) else 0


def _place(rank: int, local_rank: int, here: int, options: dict[str, str]) -> dict[str, str]:
    world = here * int(options["--nnodes"].rpartition(":")[2])
    return {
        "RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(here),
        "MASTER_ADDR": options["--master_addr"], "MASTER_PORT": options["--master_port"],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
