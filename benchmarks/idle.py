"""Cost of launchers while their ranks work in silence: wake-ups, CPU time and memory, of the launcher's own processes only."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import launchers, processes
from benchmarks.jobs import RANK, Job
from benchmarks.launchers import Command, Ranks
from benchmarks.rows import Row, Sample, Target, in_turn, value

NAME = "idle"
RANKS = 8
SECONDS = 60.0
SECONDS_QUICK = 2.0
END_S = 120.0
SETTLE_S = 1.0  # after the last rank is up: the work of the start is over
CASE = f"{RANKS} ranks that sleep"
WATCHED, WATCHED_QUICK = 64, 8
WATCHING = "watching whether ranks hang"  # the default: one sample every ten seconds
UNWATCHED = "ranklaunch --hang off"
PEERS: dict[str, Command] = {"torchrun": launchers.torchrun_with_logs, "deepspeed": launchers.deepspeed}


def measure(quick: bool) -> list[Row]:
    seconds = SECONDS_QUICK if quick else SECONDS
    makers = {"ranklaunch": launchers.spawn, **{way: PEERS[way] for way in launchers.here(*PEERS)}}
    rows = in_turn(CASE, {way: partial(idle, make, seconds) for way, make in makers.items()}, 1)
    count = WATCHED_QUICK if quick else WATCHED
    ways = {"ranklaunch": launchers.spawn, UNWATCHED: lambda ranks: launchers.ranklaunch("spawn", ranks, "--hang", "off")}
    rows += in_turn(WATCHING, {way: partial(idle, make, seconds, count) for way, make in ways.items()}, 1)
    return [*(row.noted(f"over {seconds:g} s") for row in rows), *launchers.absent(CASE, *PEERS)]


def targets(rows: Sequence[Row]) -> list[Target]:
    ours = partial(value, rows, CASE, way="ranklaunch")
    return [
        # One a second of the clock by which the next attempt learns the platform's grace, and six a minute of the sampler.
        Target("wake-ups of ranklaunch in a second, with silent ranks", ours("wake-ups/s"), 1.2),
        Target(
            f"CPU seconds in a minute to watch {WATCHED} silent ranks, 1 % of a core",
            value(rows, WATCHING, "CPU s/min", way="ranklaunch"),
            0.6,
        ),
        Target("MB that the largest process of ranklaunch has resident, with silent ranks", ours("largest MB"), 32.0),
    ]


def idle(make: Command, seconds: float, count: int = RANKS) -> Sample:
    with tempfile.TemporaryDirectory(prefix="ranklaunch-idle-") as name, Job(Path(name)) as job:
        launcher = job.start(make(Ranks(count, (str(RANK), "sleeps", name), job.folder)))
        ranks = job.wait_until_up(count)
        time.sleep(SETTLE_S)
        pids = processes.below(launcher.popen.pid, without=ranks)
        began, switches, cpu_s = time.monotonic(), processes.switches(pids), processes.cpu_s(pids)
        time.sleep(seconds)
        took = time.monotonic() - began
        values = {
            "wake-ups/s": (processes.switches(pids) - switches) / took,
            "CPU s/min": (processes.cpu_s(pids) - cpu_s) / took * 60,
            "resident MB": sum(map(processes.resident_kb, pids)) / 1024,
            "largest MB": max(map(processes.resident_kb, pids)) / 1024,
            "Pss MB": sum(map(processes.proportional_kb, pids)) / 1024,
            "processes": len(pids),
        }
        job.go()
        launcher.wait(END_S)
        return values
