"""Batch systems whose nodes share a disk: Slurm, LSF, PBS and Flux. Also jobs with one ranklaunch for each rank (--per-rank)."""

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
    """Processes (tasks) that the platform has started for a job.

    counts: tasks of each node, () if unknown or uneven. here: number of this task on its node, from 0. variables: sources of counts and
    here. rank: variable with the number of this task in the job, None without one. node: index of this node in counts. script: sign that
    this process is the job's script and no task, else "". command: shell line that starts one ranklaunch on each node.
    """

    counts: Sequence[int]
    here: int
    variables: Sequence[Variable[object]]
    rank: Variable[int] | None = None
    node: int = 0
    script: str = ""
    command: str = ""


class System(Place):
    """Batch system. The job's id ends the job's name, by which the nodes find each other, and names the job's folder on the shared disk.

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
        """Return the name of the job's folder in the log folder; "" if the user has set the log folder."""
        return "" if reader.is_set(LOG_DIR) else re.sub("[^A-Za-z0-9._-]+", "_", self.job_id(reader)).strip("_")

    def _facts(self, reader: Reader) -> Iterator[Fact]:
        """Refuse a start by mpirun or torchrun on the only node, then yield the facts.

        The check comes first: once the batch system's hosts are offered, they look like hosts of the user's, which switch the check off.
        """
        facts = list(super()._facts(reader))
        if not base.per_rank(reader) and not any(variable is HOSTS and "," in show(value) for variable, _, value in facts):
            unrecognised.refuse_mpirun(reader, unrecognised.OF_MPIRUN_HERE)
            unrecognised.refuse_launchers(reader)
        yield from facts

    def _job_of_ranks(self, reader: Reader, program: Program, hosts: Sequence[str]) -> Job | None:
        tasks = self.tasks(reader, len(hosts)) if base.per_rank(reader) else None
        if not tasks or tasks.script or not tasks.rank:
            return None
        attempt = self.attempt(reader) if self.row.restarts else 0
        return job_of_ranks(reader, program, hosts, tasks, platform=self.NAME, folder=self._folder(reader), attempt=attempt)

    def _index(self, reader: Reader, nodes: int, sure: bool) -> int:
        """Return the index of this node. Refuse the job's script on one of several nodes, and any number of tasks on a node but one."""
        tasks, by_user = self.tasks(reader, nodes), reader.by_user(self.node_index)
        if tasks.script and nodes > 1 and not by_user:
            refuse_script(reader, f"{nodes} nodes", tasks.script, tasks.command)
        elif not (tasks.script or by_user) and (set(tasks.counts) != {1} or tasks.here):
            refuse_tasks(reader, tasks, nodes)
        else:
            return super()._index(reader, nodes, sure)
        return 0

    def _slots(self, reader: Reader, nodes: int) -> tuple[int, ...]:
        """Return the slots of each node. Without device files, which a container may hide, CUDA_VISIBLE_DEVICES gives the job's GPUs."""
        if reader.is_set(self.slots) and not reader.is_set(LISTED_SLOTS):
            return settings.spread(reader, SLOTS, reader.get(self.slots), nodes)
        visible = 0 if devices(reader) else settings.visible_devices(reader, VISIBLE_GPUS)
        if visible:
            reader.offer(SLOTS, VISIBLE_GPUS.name, visible)
        return super()._slots(reader, nodes)

    def _accelerator(self, reader: Reader) -> tuple[str, str]:
        source = reader.source(SLOTS)
        return ("gpu", source) if "GPU" in source else ("cpu", "default")


def even(total: int, nodes: int) -> tuple[int, ...]:
    """Return the number of tasks of each node, () if the nodes cannot have the same number."""
    return (total // nodes,) * nodes if total % nodes == 0 else ()


def listed(reader: Reader, path: str) -> dict[str, int]:
    """Return the hosts and their slots from a file with a line for each slot, in the file's order; {} if the file cannot be read."""
    path = reader.absolute(path)
    return counted(reader, path, reader.text(path).split("\n"))


def counted(reader: Reader, source: str, names: Iterable[str]) -> dict[str, int]:
    """Return the number of times that each host is named. For a name that is no host's, record a problem and return {}."""
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
    indices = self_index.find(reader, hosts)
    if len(indices) == 1:
        yield NODE_INDEX, f"place of {hosts[indices[0]]} among the hosts", indices[0]


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


# One ranklaunch for each rank: each rank is a node of one slot (docs/adr/0017)


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
    """Return the job whose nodes are its ranks.

    hosts: the machines' hosts, rank 0's first. folder: name of the job's folder in the log folder. attempt: 0 if the batch system does not
    count attempts.
    """
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
    # A plan for another node knows only the rank's number.
    here = number % of_host if reader.by_user(rank) and of_host else tasks.here
    return replace(made, among=(here, of_host))
