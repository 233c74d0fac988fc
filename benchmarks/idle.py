"""What launchers do and hold while their ranks work in silence: wake-ups, CPU time and memory, of the launcher's own processes alone."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import processes
import ways
from rows import Row, Sample, Target, in_turn, row
from ways import Command, Job

NAME = "idle"
RANKS = 8
SECONDS = 60.0
SECONDS_QUICK = 2.0
SETTLE_S = 1.0  # after the last rank is up: what starting needed is over
CASE = f"{RANKS} ranks that sleep"

# Says that it is up and sleeps until it is told that it is over.
SLEEPER = """
import os, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
with open(os.path.join(folder, "up-%s.new" % rank), "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, os.path.join(folder, "up-" + rank))
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.2)
"""


def measure(quick: bool) -> list[Row]:
    seconds = SECONDS_QUICK if quick else SECONDS
    launched: dict[str, Command] = {"ranklaunch": ways.ranklaunch, "torchrun": ways.torchrun, "deepspeed": ways.deepspeed}
    each: dict[str, Callable[[], Sample]] = {
        name: lambda command=command: idle(command, seconds)  # type: ignore[misc]
        for name, command in launched.items()
    }
    return [dataclasses.replace(made, note=f"over {seconds:g} s") for made in in_turn(CASE, each, 1)]


def targets(rows: Sequence[Row]) -> list[Target]:
    ours = row(rows, CASE, "ranklaunch")
    value = ours.values.get if ours else lambda unit: None
    return [
        Target("wake-ups of ranklaunch in a second, with silent ranks", value("wake-ups/s"), 1.0),
        Target("MB that the largest process of ranklaunch has resident, with silent ranks", value("largest MB"), 25.0),
    ]


def idle(command: Command, seconds: float) -> Sample:
    with tempfile.TemporaryDirectory(prefix="ranklaunch-idle-") as name:
        folder = Path(name)
        program = folder / "sleeper.py"
        program.write_text(SLEEPER)
        with (folder / "console").open("wb") as console, Job(command(RANKS, folder / "logs", [str(program), name]), folder, console) as job:
            job.wait_until_up(RANKS)
            time.sleep(SETTLE_S)
            pids = processes.below(job.launcher.pid, without=job.ranks)
            began, switches, cpu_s = time.monotonic(), processes.switches(pids), processes.cpu_s(pids)
            time.sleep(seconds)
            took = time.monotonic() - began
            found = {
                "wake-ups/s": (processes.switches(pids) - switches) / took,
                "CPU s/min": (processes.cpu_s(pids) - cpu_s) / took * 60,
                "resident MB": sum(map(processes.resident_kb, pids)) / 1024,
                "largest MB": max(map(processes.resident_kb, pids)) / 1024,
                "Pss MB": sum(map(processes.proportional_kb, pids)) / 1024,
                "processes": len(pids),
            }
            job.go()
            job.launcher.wait(ways.START_S)
        return found
