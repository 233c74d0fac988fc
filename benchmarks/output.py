"""The ranks' output through their launcher: how fast, at what cost, whether whole; and what a slow reader of the console costs the ranks.

Ranks write numbered lines of 100 bytes in blocks of 64,000. Time begins when all ranks are up and ends with the launcher. The launcher
writes each line with a tag to a console, here a file, and without one to the rank's own file. `cat` takes the same bytes from one pipe
to one file, which nobody who copies each byte once can undercut.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lines
import processes
import ways
from lines import BLOCK, LINE
from rows import Row, Sample, Target, in_turn, row
from ways import Command, Job

NAME = "output"
RANKS = (4, 8)
TOTAL = 240_000_000  # bytes of all ranks together
TOTAL_QUICK = 4_000_000
SLOW_TOTAL = 40_000_000
SLOW_TOTAL_QUICK = 2_000_000
SLOW_BYTES_PER_S = 2_000_000
SLOW_STEP_S = 0.01
LOOK_AGAIN_S = 0.05
F_SETPIPE_SZ = 1031
PIPE = 1 << 20

# Says that it is up, waits for all others, and writes. Then says how long one write has taken at most, and what CPU time it has used, and
# stays until the others have written too: what a rank that ends has left in its pipe goes before what the others write.
WRITER = """
import os, sys, time
sys.path.insert(0, {here!r})
from lines import block, template
folder, blocks = sys.argv[1], int(sys.argv[2])
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])
mine = template(rank)
with open(os.path.join(folder, "up-%d.new" % rank), "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, os.path.join(folder, "up-%d" % rank))
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.001)
longest = 0.0
for number in range(blocks):
    data = memoryview(block(mine, number))
    began = time.monotonic()
    while data:
        data = data[os.write(1, data):]
    longest = max(longest, time.monotonic() - began)
with open(os.path.join(folder, "did-%d.new" % rank), "w") as file:
    file.write("%r %r" % (longest, time.process_time()))
os.rename(file.name, os.path.join(folder, "did-%d" % rank))
while not all(os.path.exists(os.path.join(folder, "did-%d" % each)) for each in range(int(sys.argv[3]))):
    time.sleep(0.01)
os._exit(0)
"""


def measure(quick: bool) -> list[Row]:
    total, slow = (TOTAL_QUICK, SLOW_TOTAL_QUICK) if quick else (TOTAL, SLOW_TOTAL)
    rows = [each for ranks in (RANKS[-1:] if quick else RANKS) for each in _fast(ranks, total, 1 if quick else 3)]
    return [*rows, *_slow(max(RANKS), slow)]


def targets(rows: Sequence[Row]) -> list[Target]:
    case = fast_case(max(RANKS))
    ours = row(rows, case, "ranklaunch")
    made = [
        Target(f"{case}: MB/s of ranklaunch, times those of {way}", _ratio(ours, row(rows, case, way), "MB/s"), limit, at_least=True)
        for way, limit in (("cat", 0.5), ("mpirun --tag-output", 3.0), ("torchrun --tee 3", 8.0))
    ]
    wrong = [each.values["wrong lines"] for each in rows if each.way == "ranklaunch" and "wrong lines" in each.values]
    return [*made, Target("lines that ranklaunch lost, tore or put out of order", max(wrong, default=None), 0)]


def _ratio(ours: Row | None, theirs: Row | None, unit: str) -> float | None:
    return ours.values[unit] / theirs.values[unit] if ours and theirs else None


# As fast as it goes


def fast_case(ranks: int) -> str:
    return f"{ranks} ranks write as fast as they can"


def _fast(ranks: int, total: int, runs: int) -> list[Row]:
    blocks = max(1, total // BLOCK // ranks)
    launched: dict[str, Command] = {
        "ranklaunch": ways.ranklaunch,
        "torchrun --tee 3": ways.torchrun,
        "mpirun --tag-output": ways.mpirun,
    }
    each: dict[str, Callable[[], Sample]] = {
        name: lambda command=command: through(command, ranks, blocks)  # type: ignore[misc]
        for name, command in launched.items()
    }
    each["cat"] = lambda: _through_cat(ranks, blocks)
    rows = in_turn(fast_case(ranks), each, runs)
    size = f"{ranks * blocks * BLOCK / 1e6:.0f} MB"
    return [dataclasses.replace(made, note=size if made.way == "cat" else f"{size}; {_verdict(made)}") for made in rows]


def _verdict(made: Row) -> str:
    return f"lines lost, torn or out of order: {made.values['wrong lines']:.0f}"


def through(command: Command, ranks: int, blocks: int) -> Sample:
    with (
        _folder() as folder,
        (folder / "console").open("wb") as console,
        Job(command(ranks, folder / "logs", _program(folder, ranks, blocks)), folder, console) as job,
    ):
        job.wait_until_up(ranks)
        before = processes.cpu_s(processes.below(job.launcher.pid, without=job.ranks))
        began = time.monotonic()
        job.go()
        code, cpu_s = _ended(job.launcher)
        wall_s = time.monotonic() - began
        if code:
            msg = f"ended with {code}: {job.errors}"
            raise RuntimeError(msg)
        cpu_s -= before + sum(did[1] for did in _did(folder, ranks))
        size = ranks * blocks * BLOCK
        wrong = _wrong(folder, ranks, blocks)
        return {"MB/s": size / 1e6 / wall_s, "CPU s/GB": cpu_s / (size / 1e9), "wrong lines": wrong}


def _through_cat(ranks: int, blocks: int) -> Sample:
    readable, writable = os.pipe()
    fcntl.fcntl(writable, F_SETPIPE_SZ, PIPE)
    with _folder() as folder, (folder / "console").open("wb") as console, Job(["cat"], folder, console, stdin=readable) as job:
        os.close(readable)
        program = [sys.executable, *_program(folder, ranks, blocks)]
        envs = ({**ways.environment(), "RANK": str(rank)} for rank in range(ranks))
        writers = [subprocess.Popen(program, stdout=writable, env=env) for env in envs]
        os.close(writable)
        job.wait_until_up(ranks)
        began = time.monotonic()
        job.go()
        _, cpu_s = _ended(job.launcher)
        wall_s = time.monotonic() - began
        for writer in writers:
            writer.wait()
        size = ranks * blocks * BLOCK
        wrong = abs((folder / "console").stat().st_size - size) / LINE
        return {"MB/s": size / 1e6 / wall_s, "CPU s/GB": cpu_s / (size / 1e9), "wrong lines": wrong}


def _ended(launcher: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Its exit code, and the CPU time of it and all that it has waited for."""
    _, status, usage = os.wait4(launcher.pid, 0)
    launcher.returncode = os.waitstatus_to_exitcode(status)
    return launcher.returncode, usage.ru_utime + usage.ru_stime


# With a reader that is slow


def _slow(ranks: int, total: int) -> list[Row]:
    blocks = max(1, total // BLOCK // ranks)
    rows = in_turn(f"{ranks} ranks, a reader of 2 MB/s", {"ranklaunch": lambda: to_slow_reader(ranks, blocks)}, 1)
    return [dataclasses.replace(made, note=f"{ranks * blocks * BLOCK / 1e6:.0f} MB; {_verdict(made)}") for made in rows]


def to_slow_reader(ranks: int, blocks: int) -> Sample:
    """forced s: for as long must a rank wait at least, with all ranks served alike: one block of each passes in this time."""
    readable, writable = os.pipe()
    with _folder() as folder, Job(ways.ranklaunch(ranks, folder / "logs", _program(folder, ranks, blocks)), folder, writable) as job:
        os.close(writable)
        job.wait_until_up(ranks)
        peak = Peak(processes.below(job.launcher.pid, without=job.ranks))
        job.go()
        with peak, (folder / "console").open("wb") as console:
            read_s = _read_evenly(readable, console.fileno())
        os.close(readable)
        code, _ = _ended(job.launcher)
        if code:
            msg = f"ended with {code}: {job.errors}"
            raise RuntimeError(msg)
        return {
            "longest write s": max(did[0] for did in _did(folder, ranks)),
            "forced s": ranks * BLOCK / SLOW_BYTES_PER_S,
            "reader MB/s": (folder / "console").stat().st_size / 1e6 / read_s,
            "peak MB": peak.kb / 1e3,
            "wrong lines": _wrong(folder, ranks, blocks),
        }


def _read_evenly(source: int, to: int) -> float:
    """A step's worth in each step, to the end; seconds."""
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
    """kb: the most that the largest of some processes has had in memory, until the end of the block."""

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


# What was written


def _wrong(folder: Path, ranks: int, blocks: int) -> int:
    """Both on the console and in the files of the ranks."""
    files = lines.files_of_ranks(folder / "logs")
    return lines.wrong([folder / "console"], ranks, blocks) + lines.wrong(files, ranks, blocks)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """In memory, where there is room: a disk would be the limit of all."""
    with tempfile.TemporaryDirectory(prefix="ranklaunch-output-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        yield Path(name)


def _program(folder: Path, ranks: int, blocks: int) -> list[str]:
    path = folder / "writer.py"
    path.write_text(WRITER.format(here=str(Path(__file__).resolve().parent)))
    return [str(path), str(folder), str(blocks), str(ranks)]


def _did(folder: Path, ranks: int) -> list[tuple[float, float]]:
    found = [(folder / f"did-{rank}").read_text().split() for rank in range(ranks)]
    return [(float(longest), float(cpu_s)) for longest, cpu_s in found]
