"""Cost of ranklaunch in front of another launcher that starts the ranks: two empty ranks, with and without ranklaunch."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks import launchers
from benchmarks.jobs import timed
from benchmarks.launchers import PEERS, Command, Ranks
from benchmarks.rows import Row, Sample, Target, in_turn, value

NAME = "front"
LIMIT_S = 300.0
BEHIND = ("torchrun", "mpirun", "msrun")
MOST_CPU_S = 0.15


def measure(quick: bool) -> list[Row]:
    peers = launchers.here(*BEHIND)
    rows = [row for peer in peers for row in _rows(peer, 1 if quick else 15)]
    return [*rows, *(row for peer in BEHIND for row in launchers.absent(case(peer), peer))]


def case(peer: str) -> str:
    return f"2 empty ranks, {peer}"


def _rows(peer: str, runs: int) -> list[Row]:
    """Return the rows of one launcher. The difference is smaller than the variation of both times, so each run is compared with the run
    right before."""
    makers: dict[str, Command] = {"alone": PEERS[peer], "with ranklaunch": partial(launchers.ranklaunch, peer)}
    return in_turn(case(peer), {way: partial(_start, make) for way, make in makers.items()}, runs, against="alone")


def _start(make: Command) -> Sample:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty.py").touch()
        return timed(make(Ranks(2, (str(folder / "empty.py"),), folder)), folder, LIMIT_S)


def targets(rows: list[Row]) -> list[Target]:
    return [
        Target(f"in front of {peer}: CPU seconds more", value(rows, case(peer), "more cpu s", "with ranklaunch"), MOST_CPU_S)
        for peer in launchers.here(*BEHIND)
    ]
