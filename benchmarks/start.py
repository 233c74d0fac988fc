"""Cost of a launcher: start of ranks that do nothing, until the end of the last one."""

from __future__ import annotations

import subprocess
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import launchers
from benchmarks.jobs import timed
from benchmarks.launchers import PEERS, RANKLAUNCH, Command, Ranks
from benchmarks.rows import Row, Sample, Target, in_turn, ratio

NAME = "start"
LIMIT_S = 300.0
WAYS: dict[str, Command] = {
    "bare loop": launchers.bare,
    "ranklaunch spawn": launchers.spawn,
    "ranklaunch ranktable": launchers.ranktable,
}


def measure(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty.py").touch()
        return [row for count in ((1, 2) if quick else (1, 8, 64)) for row in _rows(count, folder, 1 if quick else 7)]


def _rows(count: int, folder: Path, runs: int) -> list[Row]:
    _make_table(count, folder)
    makers = {**WAYS, **{peer: PEERS[peer] for peer in launchers.here(*PEERS)}}
    ways = {way: partial(_start, make, count, folder) for way, make in makers.items()}
    return [*in_turn(case(count), ways, runs), *launchers.absent(case(count), *PEERS)]


def case(count: int) -> str:
    return f"{count} empty rank{'s' if count > 1 else ''}"


def _make_table(count: int, folder: Path) -> None:
    words = ("ranktable", "make", "--hosts", "127.0.0.1", "--devices", str(count), "--output", str(folder / f"table-{count}.json"))
    subprocess.run([RANKLAUNCH, *words], check=True, stdout=subprocess.DEVNULL)


def _start(make: Command, count: int, folder: Path) -> Sample:
    """Time one start in a new folder: a start in a folder with earlier logs takes other time."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        start_folder = Path(name)
        (start_folder / f"table-{count}.json").symlink_to(folder / f"table-{count}.json")
        return timed(make(Ranks(count, (str(folder / "empty.py"),), start_folder)), start_folder, LIMIT_S)


def targets(rows: list[Row]) -> list[Target]:
    slow = [peer for peer in ("torchrun", "accelerate", "deepspeed", "horovodrun") if peer in launchers.here(peer)]
    times = {peer: ratio(rows, case(8), "wall s", "ranklaunch spawn", peer) for peer in slow}
    return [Target(f"start of 8 ranks, wall: times {peer}", each, 0.1) for peer, each in times.items()]
