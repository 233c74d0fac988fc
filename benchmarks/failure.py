"""End of a job after the failure of a rank: seconds from the failure, exit code, and leftover processes."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import launchers
from benchmarks.jobs import RANK, Job, Started
from benchmarks.launchers import PEERS, Command, Ranks
from benchmarks.rows import Row, Sample, Target, in_turn, ratio, value
from testbench.hosts import Hosts, missing

NAME = "failure"
LIMIT_S = 60.0
GRACE_S = 5
WORKED_S = 0.5  # from the start of the last rank to the failure: launchers have completed their start by then
NODES = 3
FAILS = 3  # the failing rank; with 2 ranks on each node, this rank is on node 1
PEERS_HERE = ("mpirun", "torchrun", "accelerate", "deepspeed")
OURS = "ranklaunch spawn"

OBEY, IGNORE, ACROSS = "1 of 8 ranks fails", "1 of 8 ranks fails, the others ignore SIGTERM", "1 of 6 ranks on 3 hosts fails"


def measure(quick: bool) -> list[Row]:
    runs = 1 if quick else 7
    # Timers decide the result here, so one run is enough.
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
    makers = {OURS: launchers.spawn if term == "obey" else _with_grace, **{peer: PEERS[peer] for peer in launchers.here(*peers)}}
    return {way: partial(_on_one_host, make, term) for way, make in makers.items()}


def _with_grace(ranks: Ranks) -> list[str]:
    return launchers.ranklaunch("spawn", ranks, "--grace-s", str(GRACE_S))


def _on_one_host(make: Command, term: str) -> Sample:
    with _folder() as folder, Job(folder) as job:
        started = job.start(make(Ranks(8, _program(folder, term), folder)))
        return _failed(job, [started], 8)


def _across(quick: bool, runs: int) -> list[Row]:
    if missing():
        return [Row(ACROSS, way, {}, 0, missing()) for way in (OURS, "torchrun")]
    rows = in_turn(ACROSS, {OURS: partial(_on_hosts, launchers.spawn)}, runs)
    if quick or not launchers.here("torchrun"):
        return rows
    # One run: the other nodes of torchrun wait until the limit, because the work never ends here.
    return [*rows, *in_turn(ACROSS, {"torchrun": partial(_on_hosts, launchers.torchrun)}, 1)]


def _on_hosts(make: Command) -> Sample:
    with _folder() as folder, Hosts(NODES, folder) as hosts, Job(folder) as job:
        nodes = [Ranks(2, _program(folder, "obey"), folder / f"node-{node}", NODES, node) for node in range(NODES)]
        return _failed(job, [job.start(make(ranks), hosts[ranks.node].popen) for ranks in nodes], NODES * 2)


def _program(folder: Path, term: str) -> tuple[str, ...]:
    return (str(RANK), "fails", str(folder), str(FAILS), term)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.mkfifo(folder / "fail")
        yield folder


def _failed(job: Job, nodes: Sequence[Started], ranks: int) -> Sample:
    """Let the rank fail once all ranks are up. Wait until the launchers and all processes that they started have ended."""
    pipe = os.open(job.folder / "fail", os.O_RDWR)  # both ends, because opening one end blocks until the other is open
    try:
        job.wait_until_up(ranks)
        time.sleep(WORKED_S)
        os.write(pipe, b"!")
        deadline = time.monotonic() + LIMIT_S
        ended = [node.wait(deadline - time.monotonic()) for node in nodes]
        outlived = job.remaining()
        remaining = outlived
        while remaining and time.monotonic() < deadline:
            time.sleep(0.002)
            remaining = job.remaining()
        gone_at = time.monotonic() if outlived else max(node.ended_at for node in nodes)
        failed_at = float((job.folder / "failed").read_text())
    finally:
        os.close(pipe)
    codes = [float(node.code) for node, has_ended in zip(nodes, ended) if has_ended]
    whole = not remaining and all(ended)
    code = {"exit code": max(codes)} if codes and max(codes) == min(codes) and all(ended) else {}
    return {"s": gone_at - failed_at if whole else LIMIT_S, **code, "outlived the launcher": float(len(outlived) if all(ended) else 0)}


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
