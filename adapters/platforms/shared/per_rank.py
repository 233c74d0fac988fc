"""Where the platform starts one ranklaunch for each rank: each of them is a node of one slot (docs/adr/0017)."""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared import base, batch
from ranklaunch.adapters.platforms.shared.base import PER_RANK
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, NODES, PLACING, SLOTS, make_job
from ranklaunch.typed import NamedTuple
from ranklaunch.values import replace


class Tasks(NamedTuple):
    """What the platform says of its tasks: how many there are, and which of how many on its host this is. numbered: the variable that
    tells which of all it is; those: the names of the variables, for messages. hosts: of the nodes, where they are known."""

    total: int
    here: int
    of_host: int
    numbered: Variable[int]
    those: str
    hosts: Sequence[str] = ()
    nodes: int = 1


def job(reader: Reader, program: Program, tasks: Tasks, *, platform: str, name: str, folder: str) -> Job:
    """folder: that of the job's in the log folder."""
    _refuse(reader, tasks)
    tasks = tasks._replace(total=max(1, tasks.total))  # none, or a malformed number of them, is refused above
    number = base.index(reader, tasks.total, tasks.numbered)
    # One that is planned from elsewhere: nothing is known of it but its number.
    here = number % tasks.of_host if reader.by_user(tasks.numbered) and tasks.of_host else tasks.here
    reader.ledger.note(NODES.value, str(tasks.total), tasks.those)
    made = make_job(
        reader,
        program,
        platform=platform,
        name=name,
        attempt=batch.attempt(reader, folder, tasks.total, number),
        hosts=(_first(reader, tasks), *("",) * (tasks.total - 1)),
        slots=(1,) * tasks.total,
        node_index=number,
    )
    return replace(made, log_dir=batch.log_dir(reader, folder, tasks.total, number), among=(here, tasks.of_host))


def _first(reader: Reader, tasks: Tasks) -> str:
    """The host of rank 0."""
    hosts = reader.get(HOSTS) or tasks.hosts
    if hosts:
        return hosts[0]
    if tasks.nodes > 1 and not reader.given(MASTER_ADDR):
        reader.problem(f"{tasks.total} ranks on {tasks.nodes} hosts, but neither {HOSTS.both} nor {MASTER_ADDR.both} says where rank 0 is")
    return "localhost"


def _refuse(reader: Reader, tasks: Tasks) -> None:
    told = reader.told(PER_RANK)
    if not 0 < tasks.of_host <= tasks.total or tasks.here >= tasks.of_host:
        reader.problem(
            f"{told}: {tasks.those} do not say how many ranks this host has and which of them this is; expected one on each host"
        )
    if reader.by_user(NODES) or (reader.by_user(SLOTS) and set(reader.get(SLOTS)) != {1}):
        reader.problem(f"{told}: {tasks.those} say how many ranks there are, each with one slot: leave {NODES.both} and {SLOTS.both} out")
    for variable in PLACING:
        if reader.given(variable) and reader.by_user(variable):
            reader.problem(f"{reader.told(variable)} with {told}: the platform has placed the ranks; expected one ranklaunch on each host")
