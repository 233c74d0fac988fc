"""Rank heads (the first Python process of each rank) and launchers, as read from the records that they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ranklaunch.ends.model import EXCEPTION, EXIT, Record

Key = tuple[int, int]  # pid and start time (clock ticks since boot): identifies a process although pids are reused
OURS = "ranklaunch"
MOST_DIGITS = 9


class _Family(NamedTuple):
    """Names of the variables that a launcher sets for a rank; "" for a variable that it does not set."""

    rank: str
    world: str
    local_rank: str = ""
    local_world: str = ""
    master: str = ""
    port: str = ""


_TORCH = _Family("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OPEN_MPI = _Family("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_PMI = _Family("PMI_RANK", "PMI_SIZE")
_MINDSPORE = _Family("RANK_ID", "MS_WORKER_NUM", master="MS_SCHED_HOST", port="MS_SCHED_PORT")
_ASCEND = _Family("RANK_ID", "RANK_SIZE")
_JAX = _Family("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", master="JAX_COORDINATOR_ADDRESS")
_ANY = (_TORCH, _OPEN_MPI, _PMI, _MINDSPORE, _ASCEND, _JAX)
VARIABLES = tuple(dict.fromkeys(name for family in _ANY for name in family if name))
_BY_LAUNCHER = {"mpirun": (_OPEN_MPI, _PMI), "srun": (_PMI,), "msrun": (_MINDSPORE,)}


@dataclass(frozen=True)
class Head:
    """First Python process of a rank.

    top: topmost process with the same rank variables. parent: parent process of the top. launcher: name of the launcher that started the
    rank, "ranklaunch", or "" for another starter. rank, world, local_rank, local_world: numbers from variables, None without the variable.
    master, port: address of the rendezvous. at: monotonic seconds of the start. argv: command line. within: top of the rank or program
    that has started this rank, None if there is none.
    """

    process: Key
    top: Key
    parent: Key
    launcher: str
    rank: int | None = None
    world: int | None = None
    local_rank: int | None = None
    local_world: int | None = None
    master: str = ""
    port: str = ""
    at: float = 0.0
    argv: tuple[str, ...] = ()
    within: Key | None = None

    @property
    def is_of_launcher(self) -> bool:
        """True for a rank that a launcher other than ranklaunch started."""
        return self.launcher not in ("", OURS)


@dataclass(frozen=True)
class Launcher:
    """Launcher that the program started.

    top: topmost process of the rank that started the launcher, None if no rank did. at: monotonic seconds of the start. code: exit code,
    None if no record has it.
    """

    process: Key
    name: str
    argv: tuple[str, ...] = ()
    top: Key | None = None
    at: float = 0.0
    code: int | None = None


def head(record: Record) -> Head | None:
    """Return the head that wrote a rank record; None for a record without top and parent."""
    if not record.top or not record.parent:
        return None
    result = placed(
        record.process, record.top.key, record.parent.key, record.launcher, dict(record.variables), record.monotonic, record.argv
    )  # fmt: skip
    return replace(result, within=record.within.key) if record.within else result


def placed(
    process: Key, top: Key, parent: Key, launcher: str, variables: Mapping[str, str], at: float = 0.0, argv: tuple[str, ...] = ()
) -> Head:
    """Return a head with rank, world and rendezvous from the launcher's variables."""
    families: Sequence[_Family] = _BY_LAUNCHER.get(launcher, _ANY)
    family = next((each for each in families if _number(variables, each.rank) is not None), _TORCH)
    rank, world, local_rank, local_world = (_number(variables, name) for name in family[:4])
    master, port = variables.get(family.master, ""), variables.get(family.port, "")
    return Head(process, top, parent, launcher, rank, world, local_rank, local_world, master, port, at, argv)


def launcher(record: Record) -> Launcher:
    """Return the launcher that wrote a record."""
    top = record.top.key if record.top else None
    return Launcher(record.process, record.launcher, record.argv, top, record.monotonic)


def has_rank(variables: Mapping[str, str]) -> bool:
    """Return True if one of the variables is the number of a rank."""
    return any(_number(variables, family.rank) is not None for family in _ANY)


def raised_code(records_of: Iterable[Record]) -> int | None:
    """Return the exit code from the records of one process: that of an exit record, 1 after an exception of the main thread, else None."""
    records = [*records_of]
    codes = [record.code for record in records if record.kind == EXIT]
    if codes:
        return codes[-1]
    return 1 if any(record.kind == EXCEPTION and record.where == "main" for record in records) else None


def _number(variables: Mapping[str, str], name: str) -> int | None:
    value = variables.get(name, "") if name else ""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS else None
