"""Batch systems whose nodes share a disk: Slurm, LSF, PBS and Flux. Also jobs of which each rank has a ranklaunch of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ranklaunch.adapters.platforms.shared import base, self_index, unrecognised
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import LISTED_SLOTS, Fact
from ranklaunch.env import parse, settings
from ranklaunch.env.job import Job, Program
from ranklaunch.env.reader import Reader, Variable, show
from ranklaunch.env.settings import (
    HOSTS,
    JOB_NAME,
    LOG_DIR,
    NODE_INDEX,
    NODES,
    PLACING,
    SLOTS,
    VISIBLE_GPUS,
    devices,
    make_job,
)
from ranklaunch.errors import counted as number_of


class Tasks(NamedTuple):
    """Processes started by a platform for a job.

    counts: number on each node, () if unknown or uneven. here: number of this one on its node, from 0. variables: source of
    both. rank: variable with the number of this one in the job, None if none. node: place of this node in counts. script:
    sign of the job's script instead of a task, else "". command: line for starting one ranklaunch on each node.
    """

    counts: Sequence[int]
    here: int
    variables: Sequence[Variable[object]]
    rank: Variable[int] | None = None
    node: int = 0
    script: str = ""
    command: str = ""


class System(Place):
    """A batch system. The id of a job ends its name, by which nodes find each other, and names its log folder on the shared disk.

    JOB_ID: variable with this id.
    """

    JOB_ID: Variable[str]

    def job_id(self, reader: Reader) -> str:
        return reader.get(self.JOB_ID)

    def tasks(self, reader: Reader, nodes: int) -> Tasks:
        """Return the processes that the batch system has started for the job."""
        raise NotImplementedError

    def read(self, reader: Reader, program: Program) -> Job:
        job = super().read(reader, program)
        name = reader.get(self.job_name)
        if not reader.by_user(self.job_name):
            name = f"{name or self.NAME}-{self.job_id(reader)}"
            reader.note(JOB_NAME, name, reader.source(self.JOB_ID))
        return replace(job, name=name, log_dir=self._logs(reader, len(job.nodes), job.node_index))

    def attempt(self, reader: Reader, nodes: int = 1, index: int = 0) -> int:
        if self.row.restarts:
            return super().attempt(reader, nodes, index)
        return base.attempt(reader, nodes, index, self._folder(reader))

    def log_dir(self, reader: Reader) -> str:
        self._offer(reader, self._facts(reader))
        return self._logs(reader, self._count(reader, sure=False), reader.get(self.node_index))

    def _logs(self, reader: Reader, nodes: int, index: int) -> str:
        return settings.log_dir(reader, index if nodes > 1 else None, self._folder(reader))

    def _folder(self, reader: Reader) -> str:
        """Return the name of the job's folder in the log folder, "" in a log folder of the user's."""
        return "" if reader.is_set(LOG_DIR) else re.sub("[^A-Za-z0-9._-]+", "_", self.job_id(reader)).strip("_")

    def _facts(self, reader: Reader) -> Iterator[Fact]:
        """Refuse a start by mpirun or torchrun on the only node, before hosts of the batch system look like the user's word."""
        facts = list(super()._facts(reader))
        if not base.per_rank(reader) and not any(variable is HOSTS and "," in show(value) for variable, _, value in facts):
            unrecognised.refuse_mpirun(reader, unrecognised.OF_MPIRUN_HERE)
            unrecognised.refuse_others(reader)
        yield from facts

    def _job_of_ranks(self, reader: Reader, program: Program, hosts: Sequence[str]) -> Job | None:
        tasks = self.tasks(reader, len(hosts)) if base.per_rank(reader) else None
        if not tasks or tasks.script or not tasks.rank:
            return None
        attempt = self.attempt(reader) if self.row.restarts else 0
        return job_of_ranks(reader, program, hosts, tasks, platform=self.NAME, folder=self._folder(reader), attempt=attempt)

    def _index(self, reader: Reader, nodes: int, sure: bool) -> int:
        """Return the index of this node. Refuse the job's script on one of several nodes, and another number of tasks than one on each."""
        tasks, by_user = self.tasks(reader, nodes), reader.by_user(self.node_index)
        if tasks.script and nodes > 1 and not by_user:
            refuse_script(reader, f"{nodes} nodes", tasks.script, tasks.command)
        elif not (tasks.script or by_user) and (set(tasks.counts) != {1} or tasks.here):
            refuse_tasks(reader, tasks, nodes)
        else:
            return super()._index(reader, nodes, sure)
        return 0

    def _slots(self, reader: Reader, nodes: int) -> tuple[int, ...]:
        """Return the slots of each node. A container may hide the device files of GPUs that the batch system has chosen for the job."""
        if reader.is_set(self.slots) and not reader.is_set(LISTED_SLOTS):
            return settings.spread(reader, SLOTS, reader.get(self.slots), nodes)
        chosen = 0 if devices(reader) else settings.visible_devices(reader, VISIBLE_GPUS)
        if chosen:
            reader.offer(SLOTS, VISIBLE_GPUS.name, chosen)
        return super()._slots(reader, nodes)

    def _accelerator(self, reader: Reader) -> tuple[str, str]:
        source = reader.source(SLOTS)
        return ("gpu", source) if "GPU" in source else ("cpu", "default")


def even(total: int, nodes: int) -> tuple[int, ...]:
    """Return the number of tasks of each node, () where the nodes cannot have the same number."""
    return (total // nodes,) * nodes if total % nodes == 0 else ()


def listed(reader: Reader, path: str) -> dict[str, int]:
    """Return the hosts of a file with a line for each slot, in its order, and their slots; {} where the file cannot be read."""
    path = reader.absolute(path)
    return counted(reader, path, reader.text(path).split("\n"))


def counted(reader: Reader, source: str, names: Iterable[str]) -> dict[str, int]:
    """Return how often each host is named. A name that is none is a problem, and {} is returned."""
    result = Counter[str]()
    for name in filter(None, map(str.strip, names)):
        try:
            result[parse.host(name)] += 1
        except ValueError as error:
            reader.problem(f"{source}: {error}, found {name[:60]!r}")
            return {}
    return result


def own_index(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    """Yield the index of this node among the hosts, by its name or address."""
    places = self_index.find(reader, hosts)
    if len(places) == 1:
        yield NODE_INDEX, f"place of {hosts[places[0]]} among the hosts", places[0]


def refuse_script(reader: Reader, nodes: str, sign: str, command: str) -> None:
    reader.problem(
        f"{nodes}, and {sign}: this is the job's script or shell, which runs on one node alone; expected one ranklaunch on each: {command}"
    )


def refuse_tasks(reader: Reader, tasks: Tasks, nodes: int) -> None:
    signs = " and ".join(reader.described(variable) for variable in tasks.variables if reader.is_set(variable))
    remedy = "; or --per-rank, with which each stands before one rank" if tasks.rank else ""
    reader.problem(
        f"{signs} on {number_of(nodes, 'node')}: expected one ranklaunch on each node, which starts all ranks there: {tasks.command}, with "
        f"--slots for their number{remedy}"
    )


# A ranklaunch for each rank: each of them is a node of one slot (docs/adr/0017)


def job_of_ranks(
    reader: Reader,
    program: Program,
    hosts: Sequence[str],
    tasks: Tasks,
    *,
    platform: str,
    name: str = "",
    folder: str = "",
    attempt: int = 0,
) -> Job:
    """Return the job whose nodes are its ranks. hosts: of the machines, of which the first has rank 0. folder: name of the job's folder in
    the log folder. attempt: 0 where the batch system does not count them."""
    rank, ranks = tasks.rank or NODE_INDEX, max(1, sum(tasks.counts))
    of_host = tasks.counts[tasks.node] if tasks.node < len(tasks.counts) else 0
    sources = ", ".join((*map(reader.source, tasks.variables), rank.names[-1]))
    described = reader.described(base.PER_RANK)
    if tasks.here >= of_host:
        reader.problem(
            f"{described}: {sources} do not say how many ranks this host has and which of them this is; expected one on each host"
        )
    for variable in (NODES, SLOTS, *PLACING):
        if reader.by_user(variable) and reader.get(variable) != (1,):
            reader.problem(
                f"{reader.described(variable)} with {described}: the platform has placed the ranks, each with one slot: leave it out"
            )
    number = base.index(reader, ranks, rank)
    reader.note(NODES, str(ranks), sources)
    made = make_job(
        reader,
        program,
        platform=platform,
        name=name,
        attempt=attempt or base.attempt(reader, ranks, number, folder),
        hosts=(hosts[0], *("",) * (ranks - 1)),
        slots=(1,) * ranks,
        node_index=number,
    )
    # In a plan for another node only the number of the rank is known.
    here = number % of_host if reader.by_user(rank) and of_host else tasks.here
    return replace(made, among=(here, of_host))
