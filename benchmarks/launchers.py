"""Command of each launcher that starts ranks on this machine, as a user would type it, with the same interpreter for every rank."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.jobs import TOOLS
from benchmarks.rows import Row

PYTHON = (sys.executable, "-u")
RANKLAUNCH = TOOLS / "ranklaunch"
PORT = 29500  # of the rendezvous of several nodes


class Ranks(NamedTuple):
    """Ranks to start on one node. count: ranks on each node. program: script and arguments. folder: for logs and files of this start.
    nodes: number of nodes of the job; several nodes are the hosts h0, h1, ... node: index of this node."""

    count: int
    program: tuple[str, ...]
    folder: Path
    nodes: int = 1
    node: int = 0

    @property
    def logs(self) -> str:
        return str(self.folder / "logs")


Command = Callable[[Ranks], list[str]]


def bare(ranks: Ranks) -> list[str]:
    return ["bash", "-c", f"for i in $(seq {ranks.count}); do {shlex.join([*PYTHON, *ranks.program])} & done; wait"]


def ranklaunch(method: str, ranks: Ranks, *options: str) -> list[str]:
    shape = ["--method", method, "--slots", str(ranks.count), "--python", sys.executable, "--log-dir", ranks.logs]
    if ranks.nodes > 1:
        shape += ["--hosts", ",".join(f"h{node}" for node in range(ranks.nodes)), "--node", str(ranks.node)]
    return [str(RANKLAUNCH), "run", *shape, *options, "--", *ranks.program]


def spawn(ranks: Ranks) -> list[str]:
    return ranklaunch("spawn", ranks)


def ranktable(ranks: Ranks) -> list[str]:
    """Return the command for a rank table. The table, table-N.json, exists already, as on a platform that makes one."""
    return ranklaunch("ranktable", ranks, "--rank-table", str(ranks.folder / f"table-{ranks.count}.json"))


def mpirun(ranks: Ranks, *options: str) -> list[str]:
    return ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks.count), *options, *PYTHON, *ranks.program]


def mpirun_with_logs(ranks: Ranks) -> list[str]:
    """Return the command that writes a file for each rank, and lines with tags to the console, as ranklaunch does. For Open MPI 4.1."""
    return mpirun(ranks, "--bind-to", "none", "--tag-output", "--output-filename", ranks.logs)


def torchrun(ranks: Ranks) -> list[str]:
    if ranks.nodes == 1:
        return _torchrun(ranks, "--standalone")
    nodes = (f"--nnodes={ranks.nodes}", f"--node_rank={ranks.node}", "--master_addr=h0", f"--master_port={PORT}")
    return _torchrun(ranks, *nodes, "--rdzv_backend=static")


def torchrun_with_logs(ranks: Ranks) -> list[str]:
    """Return the command that writes a file for each rank, and lines with tags to the console, as ranklaunch does."""
    return _torchrun(ranks, "--nnodes=1", "--master_port=0", "--tee", "3", "--log-dir", ranks.logs)


def _torchrun(ranks: Ranks, *options: str) -> list[str]:
    return ["torchrun", f"--nproc_per_node={ranks.count}", *options, *ranks.program]


def accelerate(ranks: Ranks) -> list[str]:
    """Return the command of accelerate. Without --multi_gpu, accelerate starts one process on a machine without GPUs; for one rank it
    refuses this option."""
    several = ["--multi_gpu"] if ranks.count > 1 else []
    common = ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    return ["accelerate", "launch", *several, f"--num_processes={ranks.count}", *common, *ranks.program]


def horovodrun(ranks: Ranks) -> list[str]:
    return ["horovodrun", "-np", str(ranks.count), "-H", f"localhost:{ranks.count}", *PYTHON, *ranks.program]


def deepspeed(ranks: Ranks) -> list[str]:
    return ["deepspeed", "--hostfile", "/dev/null", "--num_accelerators", str(ranks.count), *ranks.program]


def msrun(ranks: Ranks) -> list[str]:
    counts = (f"--worker_num={ranks.count}", f"--local_worker_num={ranks.count}")
    return ["msrun", *counts, "--join=True", f"--log_dir={ranks.folder / 'msrun'}", *ranks.program]


PEERS: Mapping[str, Command] = {
    "mpirun": mpirun,
    "torchrun": torchrun,
    "accelerate": accelerate,
    "horovodrun": horovodrun,
    "deepspeed": deepspeed,
    "msrun": msrun,
}
_chosen: set[str] = set(PEERS)


def choose(names: Sequence[str]) -> None:
    """Set the launchers that are measured from now on."""
    _chosen.clear()
    _chosen.update(names)


def path(name: str) -> str | None:
    return shutil.which(name, path=str(TOOLS)) or shutil.which(name)


def here(*ways: str) -> list[str]:
    """Return the ways whose launcher (their first word) is chosen and installed."""
    return [way for way in _with_chosen(ways) if path(way.split()[0])]


def absent(case: str, *ways: str) -> list[Row]:
    """Return a row without values for each way whose launcher is chosen and not installed."""
    return [Row(case, way, {}, 0, "not installed") for way in _with_chosen(ways) if not path(way.split()[0])]


def _with_chosen(ways: Sequence[str]) -> list[str]:
    return [way for way in ways if way.split()[0] in _chosen]
