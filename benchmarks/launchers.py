"""How each launcher starts ranks on this machine: the commands that a user would type, with the same interpreter for every rank."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs import TOOLS
from rows import Row

PYTHON = (sys.executable, "-u")
RANKLAUNCH = TOOLS / "ranklaunch"


class Ranks(NamedTuple):
    """folder: for logs and files of this start."""

    count: int
    program: tuple[str, ...]
    folder: Path
    options: tuple[str, ...] = ()  # of ranklaunch


def bare(ranks: Ranks) -> list[str]:
    return ["bash", "-c", f"for i in $(seq {ranks.count}); do {shlex.join([*PYTHON, *ranks.program])} & done; wait"]


def ranklaunch(method: str, ranks: Ranks) -> list[str]:
    options = ("--method", method, "--slots", str(ranks.count), "--python", sys.executable, "--log-dir", str(ranks.folder / "logs"))
    return [str(RANKLAUNCH), "run", *options, *ranks.options, "--", *ranks.program]


def ranktable(ranks: Ranks) -> list[str]:
    """The table, table-N.json, is there already: a platform makes it."""
    table = str(ranks.folder / f"table-{ranks.count}.json")
    return ranklaunch("ranktable", ranks._replace(options=(*ranks.options, "--rank-table", table)))


def mpirun(ranks: Ranks) -> list[str]:
    return ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks.count), *PYTHON, *ranks.program]


def torchrun(ranks: Ranks) -> list[str]:
    return ["torchrun", "--standalone", f"--nproc_per_node={ranks.count}", *ranks.program]


def accelerate(ranks: Ranks) -> list[str]:
    """Without --multi_gpu it starts one process where there is no GPU; for one rank it wants it not."""
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


PEERS: Mapping[str, Callable[[Ranks], list[str]]] = {
    "mpirun": mpirun,
    "torchrun": torchrun,
    "accelerate": accelerate,
    "horovodrun": horovodrun,
    "deepspeed": deepspeed,
    "msrun": msrun,
}
_chosen: set[str] = set(PEERS)


def choose(names: Sequence[str]) -> None:
    """Those that are measured from here on."""
    _chosen.clear()
    _chosen.update(names)


def path(name: str) -> str | None:
    return shutil.which(name, path=str(TOOLS)) or shutil.which(name)


def here(*names: str) -> list[str]:
    """Of these peers, the ones that are chosen and installed."""
    return [name for name in names if name in _chosen and path(name)]


def absent(case: str, *names: str) -> list[Row]:
    return [Row(case, name, {}, 0, "not installed") for name in names if name in _chosen and not path(name)]
