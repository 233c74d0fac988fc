"""Cost of the parts of ranklaunch: a start without one of the parts at a time, and two nodes with and without the muster."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.jobs import timed
from benchmarks.launchers import RANKLAUNCH
from benchmarks.rows import Row, Sample, Target, in_turn

NAME = "features"
LIMIT_S = 300.0
ALL = "all on"
WAYS = {ALL: "nothing", "no events": "events", "no log per rank": "logs", "no tags": "tags"}
WITHOUT = Path(__file__).with_name("without.py")
LINE = 'print("a line")\n'  # gives logs and tags some work


def measure(quick: bool) -> list[Row]:
    runs = 1 if quick else 7
    starts = [row for count in ((2,) if quick else (8, 64)) for row in _starts(count, runs)]
    return [*starts, *_musters(1 if quick else 4, runs)]


def _starts(count: int, runs: int) -> list[Row]:
    ways = {way: partial(_timed, (sys.executable, WITHOUT, part, "run", "--slots", count)) for way, part in WAYS.items()}
    return in_turn(f"{count} ranks, a line each", ways, runs, against=ALL)


def _musters(slots: int, runs: int) -> list[Row]:
    command = (RANKLAUNCH, "simulate", "--nodes", 2, "--slots", slots)
    ways = {"muster off": partial(_timed, command, RANKLAUNCH_MUSTER="off"), "muster on": partial(_timed, command, RANKLAUNCH_MUSTER="on")}
    return in_turn(f"2 simulated nodes of {slots}, a line each", ways, runs, against="muster off")


def _timed(command: tuple[object, ...], **env: str) -> Sample:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "line.py").write_text(LINE)
        options = ("--method", "spawn", "--python", sys.executable, "--log-dir", folder / "logs")
        return timed((*command, *options, "--", folder / "line.py"), folder, LIMIT_S, **env)


def targets(rows: list[Row]) -> list[Target]:
    return []
