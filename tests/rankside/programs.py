"""Programs that fail as people's programs do, by kind of failure, each with the records that it must leave.

Each expectation was written before the first run. Who changes one says in the commit why the first one was wrong.

A program is rank 1 of a job of two ranks. Its first line is `import peer`: rank 1 goes on when rank 0 is there, and rank 0 waits until it
is ended; where the program succeeds, rank 0 succeeds at once. The first program of a kind is tried with every launcher, so it is the one
that people meet most.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankside.ending import ENDING
from rankside.expected import Program
from rankside.raising import RAISING

PROGRAMS: Mapping[str, Sequence[Program]] = {**RAISING, **ENDING}
FIRST: Mapping[str, Program] = {kind: programs[0] for kind, programs in PROGRAMS.items()}

LINE = "import peer  # rank 0 waits here, and is ended\n"
PEER = '''"""Rank 1 goes on when rank 0 is there; rank 0 waits for its end signal, or ends at once where rank 1 succeeds."""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def path(rank):
    return os.path.join(HERE, "pid-" + rank)


def wait_until(condition):
    while not condition():
        time.sleep(0.02)


def is_there(rank):
    return os.path.exists(path(rank))


def has_ended(rank):
    with open(path(rank)) as file:
        return not os.path.exists("/proc/" + file.read())


if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun starts the program once more, as a scheduler, which ends last
    wait_until(lambda: is_there("0") and is_there("1"))
    wait_until(lambda: has_ended("0") and has_ended("1"))
    os._exit(0)

rank = next(os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "RANK_ID", "MS_NODE_ID") if name in os.environ)
if not is_there(rank):  # a child of a rank imports this, too
    with open(path(rank) + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path(rank) + ".new", path(rank))
if rank == "0":
    wait_until(lambda: SUCCEEDS)
    sys.exit(0)
wait_until(lambda: is_there("0"))
'''


def write(program: Program, folder: Path) -> Path:
    """Write a program for a job of two ranks; return the script."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peer.py").write_text(PEER.replace("SUCCEEDS", str(program.status == 0)), encoding="utf-8")
    return program.write(folder, LINE)


def exit_code(program: Program) -> int:
    """As a shell gives it."""
    return program.status if isinstance(program.status, int) else 128 + signal.Signals[program.status]
