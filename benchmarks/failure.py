"""From the end of a rank that fails to the end of the job: how long, with which exit code, and what is left."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import launchers
from cluster_hosts import Hosts, missing
from jobs import Failed, Started, job, marked
from launchers import PEERS, RANKLAUNCH, Ranks
from rows import Row, Sample, Target, in_turn, ratio, value

NAME = "failure"
START_S = 180.0
LIMIT_S = 60.0
GRACE_S = 5
NODES = 3
CODE = 42
FAILS = 3  # a rank; of 2 on each node, it is on node 1
PORT = 29500
PEERS_HERE = ("mpirun", "torchrun", "accelerate", "deepspeed")
OURS = "ranklaunch spawn"

OBEY, IGNORE, ACROSS = "1 of 8 ranks fails", "1 of 8 ranks fails, the others ignore SIGTERM", "1 of 6 ranks on 3 hosts fails"

# Rank FAILS ends when something comes out of the pipe, and says when that was, by the clock that all processes share.
PROGRAM = f"""
import os, signal, sys, time
folder, term = sys.argv[-2:]  # DeepSpeed puts --local_rank before them
rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
if term == "ignore" and rank != {FAILS}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == {FAILS}:
    pipe = os.open(os.path.join(folder, "fail"), os.O_RDONLY)
open(os.path.join(folder, "ready-%d" % rank), "w").close()
if rank == {FAILS}:
    os.read(pipe, 1)
    with open(os.path.join(folder, "failed"), "w") as file:
        file.write(repr(time.monotonic()))
    os._exit({CODE})
while True:
    time.sleep(600)
"""


def measure(quick: bool) -> list[Row]:
    runs = 1 if quick else 7
    # Timers decide those: one run tells.
    ignoring = ("mpirun",) if quick else PEERS_HERE
    peers = PEERS_HERE if not quick else ("mpirun", "torchrun")
    rows = [
        *in_turn(OBEY, _ways("obey", peers), runs),
        *launchers.absent(OBEY, *peers),
        *in_turn(IGNORE, _ways("ignore", ignoring), 1),
        *launchers.absent(IGNORE, *ignoring),
        *_across(quick, runs),
    ]
    return [noted(row) for row in rows]


def _ways(term: str, peers: Sequence[str]) -> dict[str, Callable[[], Sample]]:
    ours = partial(launchers.ranklaunch, "spawn")
    makers = {OURS: ours, **{peer: PEERS[peer] for peer in launchers.here(*peers)}}
    return {way: partial(_on_one_host, make, term) for way, make in makers.items()}


def _on_one_host(make: Callable[[Ranks], list[str]], term: str) -> Sample:
    options = ("--grace-s", str(GRACE_S)) if term == "ignore" else ()
    with _folder() as folder, job(folder) as start:
        command = make(Ranks(8, (str(folder / "program.py"), str(folder), term), folder, options))
        return _failed([start(command)], folder, 8, start.mark)  # type: ignore[attr-defined]


def _across(quick: bool, runs: int) -> list[Row]:
    if missing():
        return [Row(ACROSS, way, {}, 0, missing()) for way in (OURS, "torchrun")]
    rows = in_turn(ACROSS, {OURS: partial(_on_hosts, _node_of_ranklaunch)}, runs)
    if quick or not launchers.here("torchrun"):
        return rows
    # Its other nodes wait for work that never ends here: the limit decides.
    return [*rows, *in_turn(ACROSS, {"torchrun": partial(_on_hosts, _node_of_torchrun)}, 1)]


def _on_hosts(command: Callable[[int, Path], list[str]]) -> Sample:
    with _folder() as folder, Hosts(NODES, folder) as hosts, job(folder) as start:
        nodes = [start(command(index, folder), hosts[index].popen) for index in range(NODES)]
        return _failed(nodes, folder, NODES * 2, start.mark)  # type: ignore[attr-defined]


def _node_of_ranklaunch(index: int, folder: Path) -> list[str]:
    shape = ("--hosts", ",".join(f"h{i}" for i in range(NODES)), "--node", str(index), "--slots", "2")
    options = ("--method", "spawn", "--python", sys.executable, "--log-dir", str(folder / f"logs-{index}"))
    return [str(RANKLAUNCH), "run", *options, *shape, "--", str(folder / "program.py"), str(folder), "obey"]


def _node_of_torchrun(index: int, folder: Path) -> list[str]:
    layout = (f"--nnodes={NODES}", "--nproc_per_node=2", f"--node_rank={index}", "--rdzv_backend=static")
    return ["torchrun", *layout, "--master_addr=h0", f"--master_port={PORT}", str(folder / "program.py"), str(folder), "obey"]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        os.mkfifo(folder / "fail")
        yield folder


def _failed(nodes: Sequence[Started], folder: Path, ranks: int, mark: str) -> Sample:
    """Lets the rank fail once all are up, and waits until the launchers have ended and nothing is left of what they started."""
    pipe = os.open(folder / "fail", os.O_RDWR)  # both ends: opening one waits for the other
    try:
        _wait_until_ready(nodes, folder, ranks)
        os.write(pipe, b"!")
        deadline = time.monotonic() + LIMIT_S
        ended = [node.wait(deadline - time.monotonic()) for node in nodes]
        outlived = marked(mark)
        left = outlived
        while left and time.monotonic() < deadline:
            time.sleep(0.002)
            left = marked(mark)
        gone_at = time.monotonic() if outlived else max(node.ended_at for node in nodes)
        failed_at = float((folder / "failed").read_text())
    finally:
        os.close(pipe)
    codes = [float(node.code) for node, has in zip(nodes, ended) if has]
    whole = not left and all(ended)
    code = {"exit code": max(codes)} if codes and max(codes) == min(codes) and all(ended) else {}
    return {"s": gone_at - failed_at if whole else LIMIT_S, **code, "outlived the launcher": float(len(outlived) if all(ended) else 0)}


def _wait_until_ready(nodes: Sequence[Started], folder: Path, ranks: int) -> None:
    deadline = time.monotonic() + START_S
    while not all((folder / f"ready-{rank}").exists() for rank in range(ranks)):
        over = [node for node in nodes if node.wait(0.0)]
        if over or time.monotonic() > deadline:
            msg = "not up: " + " | ".join(node.words() for node in over or nodes)
            raise Failed(msg)
        time.sleep(0.02)


def noted(row: Row) -> Row:
    if row.values.get("s", 0.0) < LIMIT_S:
        return row
    return dataclasses.replace(row, note=f"> {LIMIT_S:g} s: the benchmark ended what was left")


def targets(rows: list[Row]) -> list[Target]:
    return [
        Target("1 of 8 ranks fails: seconds until all is gone", value(rows, OBEY, "s", OURS), 0.1),
        Target("1 of 8 ranks fails: times mpirun", ratio(rows, OBEY, "s", OURS, "mpirun"), 1.0),
        Target("a rank on one of 3 hosts fails: seconds until all nodes have ended", value(rows, ACROSS, "s", OURS), 1.0),
    ]
