"""What batch systems have in common that keep their jobs on machines with one disk for all: LSF, PBS and Flux."""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.files import absolute
from ranklaunch.read import parse, settings
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME, LOG_DIR, SLOTS, VISIBLE_GPUS, devices, spread

_MOST_BYTES = 16 * 1024 * 1024
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+@-]{1,100}")


def listed(reader: Reader, path: str) -> dict[str, int]:
    """The hosts of a file with a line for each slot, in its order, and how often each is there; none where it cannot be read. A line that
    names no host is a problem."""
    path = absolute(path, reader.cwd)
    try:
        lines = (reader.files.text(path, _MOST_BYTES) or "").split("\n")
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return {}
    return counted(reader, path, [line.strip() for line in lines if line.strip()])


def counted(reader: Reader, source: str, names: list[str]) -> dict[str, int]:
    """The same of names that are known already."""
    found: dict[str, int] = {}
    for name in names:
        try:
            host = parse.host(name)
        except ValueError as error:
            reader.problem(f"{source}: {error}, found {name[:60]!r}")
            return {}
        found[host] = found.get(host, 0) + 1
    return found


def slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    """Those that the user says, else the GPUs that this node may use. Slots of the batch system are processors."""
    return spread(reader, SLOTS, reader.get(SLOTS) if reader.given(SLOTS) else (gpus(reader),), nodes)


def gpus(reader: Reader) -> int:
    """The devices in /dev, else those that the batch system chooses: a container may have them where they cannot be seen."""
    there = devices(reader)
    if there or not reader.env.get(VISIBLE_GPUS.names[0], "").strip():
        return there
    chosen = settings.visible_devices(reader, VISIBLE_GPUS) or 0
    reader.ledger.note(SLOTS.value, str(chosen), VISIBLE_GPUS.names[0])
    return chosen


def name(reader: Reader, given: Variable[str], job: str, otherwise: str, source: str) -> str:
    """With the id, which no other job has: the nodes know each other by it. A name may be a whole command line, which is none."""
    if reader.given(JOB_NAME):
        return reader.get(JOB_NAME)
    called = reader.get(given).partition("[")[0]
    made = f"{called if _PLAIN_NAME.fullmatch(called) else otherwise}-{job}"
    reader.ledger.note(JOB_NAME.value, made, source)
    return made


def log_dir(reader: Reader, job: str, nodes: int, index: int) -> str:
    """The disk is shared as a rule, by the nodes and by jobs that start in one folder: each has a folder of its own below."""
    return settings.log_dir(reader, index if nodes > 1 else None, _own_folder(reader, job))


def attempt(reader: Reader, job: str, nodes: int = 1, index: int = 0) -> int:
    """Nobody counts how often a job was started, whose id stays: one after the attempts that its folder has."""
    return base.attempt(reader, nodes, index, _own_folder(reader, job))


def _own_folder(reader: Reader, job: str) -> str:
    return "" if reader.given(LOG_DIR) else re.sub("[^A-Za-z0-9._-]+", "_", job).strip("_")


def starts_once(reader: Reader, told: str, remedy: str) -> None:
    """A script runs on the first host alone, and nothing shows that something has started this on the others too."""
    reader.problem(f"{told}: this ranklaunch is alone; expected one on each host: {remedy}")


def offer(reader: Reader, variable: Variable[object], value: str, source: str) -> None:
    """A value of the platform's own, behind whatever the user says."""
    reader.offer(variable.value, Candidate(source, value))
