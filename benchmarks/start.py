"""Starting ranks that do nothing, until all have ended: what a launcher costs."""

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
    """In a folder of its own, as every start has: a folder with logs in it is another case."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        (Path(own) / f"table-{count}.json").symlink_to(folder / f"table-{count}.json")
        return timed(make(Ranks(count, (str(folder / "empty.py"),), Path(own))), Path(own), LIMIT_S)


def targets(rows: list[Row]) -> list[Target]:
    found = lambda to: ratio(rows, case(8), "wall s", "ranklaunch spawn", to)  # noqa: E731
    slow = [peer for peer in ("torchrun", "accelerate", "deepspeed", "horovodrun") if peer in launchers.here(peer)]
    return [
        *(Target(f"start of 8 ranks, wall: times {peer}", found(peer), 0.1) for peer in slow),
    ]
