"""Output of ranks through their launcher: speed, cost and completeness; the delay of ranks by a slow reader of the console; and the speed
of reading the logs of all ranks in the order of time.

Ranks write numbered lines of 100 bytes in blocks of 64,000. Time begins when all ranks are up and ends with the launcher. The launcher
writes each line with a tag to a console, here a file, and without a tag to the rank's own file. `cat` copies the same bytes from one pipe
to one file: a lower bound for any program that copies each byte once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import launchers, lines, processes
from benchmarks.jobs import RANK, Job
from benchmarks.launchers import Command, Ranks
from benchmarks.lines import BLOCK, LINE
from benchmarks.rows import Row, Sample, Target, in_turn, ratio, value

NAME = "output"
RANKS = (4, 8)
TOTAL = 240_000_000  # bytes of all ranks together
TOTAL_QUICK = 4_000_000
SLOW_TOTAL = 40_000_000
SLOW_TOTAL_QUICK = 2_000_000
SLOW_BYTES_PER_S = 2_000_000
SLOW_STEP_S = 0.01
LOOK_AGAIN_S = 0.05
END_S = 600.0
F_SETPIPE_SZ = 1031
PIPE = 1 << 20
WITHOUT = Path(__file__).with_name("without.py")
WITHOUT_TIMES = "ranklaunch, logs without times"
MERGED = f"the lines of {max(RANKS)} ranks in the order of time"
MERGED_TOTAL = 800_000_000  # bytes: a million lines of each rank
MERGED_LEAST = 100.0  # MB/s
PEERS: dict[str, Command] = {"torchrun --tee 3": launchers.torchrun_with_logs, "mpirun --tag-output": launchers.mpirun_with_logs}


def measure(quick: bool) -> list[Row]:
    total, slow = (TOTAL_QUICK, SLOW_TOTAL_QUICK) if quick else (TOTAL, SLOW_TOTAL)
    rows = [each for ranks in (RANKS[-1:] if quick else RANKS) for each in _fast(ranks, total, 1 if quick else 3)]
    merged = _merged(max(RANKS), TOTAL_QUICK if quick else MERGED_TOTAL, 1 if quick else 3)
    return [*rows, *_slow(max(RANKS), slow), *merged]


def targets(rows: Sequence[Row]) -> list[Target]:
    case = fast_case(max(RANKS))
    result = [
        Target(f"{case}: MB/s of ranklaunch, times those of {way}", ratio(rows, case, "MB/s", "ranklaunch", way), limit, at_least=True)
        for way, limit in (("cat", 0.5), ("mpirun --tag-output", 3.0), ("torchrun --tee 3", 8.0))
    ]
    wrong = [each.values["wrong lines"] for each in rows if each.way == "ranklaunch" and "wrong lines" in each.values]
    result.append(
        Target(f"{case}: MB/s of ranklaunch, times those without times", ratio(rows, case, "MB/s", "ranklaunch", WITHOUT_TIMES), 0.9, True)
    )
    result.append(Target(f"{MERGED}: MB/s of ranklaunch logs", value(rows, MERGED, "MB/s", "ranklaunch"), MERGED_LEAST, True))
    return [*result, Target("lines that ranklaunch lost, tore or put out of order", max(wrong, default=None), 0)]


# At full speed


def fast_case(ranks: int) -> str:
    return f"{ranks} ranks write as fast as they can"


def _fast(ranks: int, total: int, runs: int) -> list[Row]:
    blocks = max(1, total // BLOCK // ranks)
    case, makers = (
        fast_case(ranks),
        {"ranklaunch": launchers.spawn, WITHOUT_TIMES: _without_times, **{way: PEERS[way] for way in launchers.here(*PEERS)}},
    )
    each = {way: partial(through, make, ranks, blocks) for way, make in makers.items()}
    rows = in_turn(case, {**each, "cat": partial(_through_cat, ranks, blocks)}, runs)
    return [*(_noted(row, ranks * blocks) for row in rows), *launchers.absent(case, *PEERS)]


def _noted(row: Row, blocks: int) -> Row:
    wrong = "" if row.way == "cat" or row.failed else f"; lines lost, torn or out of order: {row.values['wrong lines']:.0f}"
    return row.noted(f"{blocks * BLOCK / 1e6:.0f} MB{wrong}")


def _without_times(ranks: Ranks) -> list[str]:
    return [sys.executable, str(WITHOUT), "times", *launchers.spawn(ranks)[1:]]


def through(make: Command, ranks: int, blocks: int) -> Sample:
    with _folder() as folder, (folder / "console").open("wb") as console, Job(folder) as job:
        launcher = job.start(make(Ranks(ranks, _program(folder, ranks, blocks), folder)), stdout=console)
        pids = job.wait_until_up(ranks)
        before = processes.cpu_s(processes.below(launcher.popen.pid, without=pids))
        began = time.monotonic()
        job.go()
        launcher.succeed(END_S)
        cpu_s = launcher.cpu_s - before - sum(rank_cpu_s for _, rank_cpu_s in _write_results(folder, ranks))
        return _speed(ranks, blocks, launcher.ended_at - began, cpu_s, _wrong(folder, ranks, blocks))


def _through_cat(ranks: int, blocks: int) -> Sample:
    with _folder() as folder, (folder / "console").open("wb") as console, Job(folder) as job:
        readable, writable = os.pipe()
        fcntl.fcntl(writable, F_SETPIPE_SZ, PIPE)
        cat = job.start(["cat"], stdin=readable, stdout=console)
        os.close(readable)
        writer = [sys.executable, *_program(folder, ranks, blocks)]
        for rank in range(ranks):
            job.start(writer, stdout=writable, RANK=str(rank))
        os.close(writable)
        job.wait_until_up(ranks)
        began = time.monotonic()
        job.go()
        cat.succeed(END_S)
        wrong = abs((folder / "console").stat().st_size - ranks * blocks * BLOCK) / LINE
        return _speed(ranks, blocks, cat.ended_at - began, cat.cpu_s, wrong)


def _speed(ranks: int, blocks: int, wall_s: float, cpu_s: float, wrong: float) -> Sample:
    size = ranks * blocks * BLOCK
    return {"MB/s": size / 1e6 / wall_s, "CPU s/GB": cpu_s / (size / 1e9), "wrong lines": wrong}


# With a slow reader


def _slow(ranks: int, total: int) -> list[Row]:
    blocks = max(1, total // BLOCK // ranks)
    rows = in_turn(f"{ranks} ranks, a reader of 2 MB/s", {"ranklaunch": partial(to_slow_reader, ranks, blocks)}, 1)
    return [_noted(row, ranks * blocks) for row in rows]


def to_slow_reader(ranks: int, blocks: int) -> Sample:
    """Measure the longest write of a rank. "forced s" is the least wait of a rank if all ranks are served equally: the time in which one
    block of each rank passes."""
    with _folder() as folder, (folder / "console").open("wb") as console, Job(folder) as job:
        readable, writable = os.pipe()
        launcher = job.start(launchers.spawn(Ranks(ranks, _program(folder, ranks, blocks), folder)), stdout=writable)
        os.close(writable)
        pids = job.wait_until_up(ranks)
        peak = Peak(processes.below(launcher.popen.pid, without=pids))
        job.go()
        with peak:
            read_s = _read_evenly(readable, console.fileno())
        os.close(readable)
        launcher.succeed(END_S)
        return {
            "longest write s": max(longest for longest, _ in _write_results(folder, ranks)),
            "forced s": ranks * BLOCK / SLOW_BYTES_PER_S,
            "reader MB/s": (folder / "console").stat().st_size / 1e6 / read_s,
            "peak MB": peak.kb / 1e3,
            "wrong lines": _wrong(folder, ranks, blocks),
        }


def _read_evenly(source: int, to: int) -> float:
    """Copy to the end at SLOW_BYTES_PER_S, in equal steps. Return the seconds."""
    step = int(SLOW_BYTES_PER_S * SLOW_STEP_S)
    began = time.monotonic()
    taken = 0
    while True:
        time.sleep(max(0.0, began + taken / SLOW_BYTES_PER_S - time.monotonic()))
        data = os.read(source, step)
        if not data:
            return time.monotonic() - began
        os.write(to, data)
        taken += len(data)


class Peak:
    """Watch of memory within a with block. kb: largest peak memory of any of the processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.kb = 0
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_AGAIN_S):
            self.kb = max(self.kb, *map(processes.peak_kb, self._pids))


# Output in the order of time


def _merged(ranks: int, total: int, runs: int) -> list[Row]:
    blocks = max(1, total // BLOCK // ranks)
    with _folder() as folder:
        with Job(folder) as job, (folder / "console").open("wb") as console:
            launcher = job.start(launchers.spawn(Ranks(ranks, _program(folder, ranks, blocks), folder)), stdout=console)
            job.wait_until_up(ranks)
            job.go()
            launcher.succeed(END_S)
        logs = lines.files_of_ranks(folder / "logs")
        ways = {"ranklaunch": [str(launchers.RANKLAUNCH), "logs", str(folder / "logs")], "cat": ["cat", *map(str, logs)]}
        rows = in_turn(MERGED, {way: partial(_read, folder, words, ranks, blocks) for way, words in ways.items()}, runs)
    return [_noted(row, ranks * blocks) for row in rows]


def _read(folder: Path, command: Sequence[str], ranks: int, blocks: int) -> Sample:
    with Job(folder) as job, (folder / "console").open("wb") as console:
        began = time.monotonic()
        reader = job.start(command, stdout=console)
        reader.succeed(END_S)
        return _speed(ranks, blocks, reader.ended_at - began, reader.cpu_s, lines.wrong([folder / "console"], ranks, blocks))


# Check of the output


def _wrong(folder: Path, ranks: int, blocks: int) -> int:
    """Return the number of wrong lines on the console and in the files of the ranks together."""
    files = lines.files_of_ranks(folder / "logs")
    return lines.wrong([folder / "console"], ranks, blocks) + lines.wrong(files, ranks, blocks)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a new folder, in memory if possible: a disk would limit all launchers to the same speed."""
    with tempfile.TemporaryDirectory(prefix="ranklaunch-output-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        yield Path(name)


def _program(folder: Path, ranks: int, blocks: int) -> tuple[str, ...]:
    return (str(RANK), "writes", str(folder), str(blocks), str(ranks))


def _write_results(folder: Path, ranks: int) -> list[tuple[float, float]]:
    """Return (seconds of the longest write, CPU seconds) of each rank."""
    results = [(folder / f"did-{rank}").read_text().split() for rank in range(ranks)]
    return [(float(longest), float(cpu_s)) for longest, cpu_s in results]
