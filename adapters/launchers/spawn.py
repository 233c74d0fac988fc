"""The program once per slot, started by ranklaunch itself with the variables that torch.distributed's env:// reads."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, limits, master_waits, meeting_host, rank_process
from ranklaunch.adapters.launchers.shared.inherited import as_slurm_task
from ranklaunch.adapters.launchers.shared.launcher import Launcher
from ranklaunch.plan.model import Plan, Process
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates

NAME = "spawn"

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT,)


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    port = reader.get(MASTER_PORT)
    argv = templates.command("spawn/command.j2", job=job)

    if job.among:
        return _own_rank(job, reader, templates, argv)

    def rank(local_rank: int) -> Process:
        env = {
            "RANK": str(job.node.first_rank + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(job.world_size),
            "LOCAL_WORLD_SIZE": str(job.node.slots),
            "GROUP_RANK": str(job.node_index),
            "MASTER_ADDR": meeting_host(job, reader),
            "MASTER_PORT": str(port),
        }
        return as_slurm_task(rank_process(job, reader, templates, argv, local_rank, env), job, reader)

    return Plan(
        job=job,
        method=NAME,
        why="",
        processes=tuple(rank(i) for i in range(job.node.slots)),
        limits=limits(reader),
        waits=master_waits(job, reader),
    )


def _own_rank(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...]) -> Plan:
    """The one that the platform has started this for: what the platform itself says to it is true."""
    here, of_host = job.among or (0, 1)
    env = {
        "RANK": str(job.node_index),
        "LOCAL_RANK": str(here),
        "WORLD_SIZE": str(job.world_size),
        "LOCAL_WORLD_SIZE": str(of_host),
        "MASTER_ADDR": meeting_host(job, reader),
        "MASTER_PORT": str(reader.get(MASTER_PORT)),
    }
    process = rank_process(job, reader, templates, argv, here, env, rank=job.node_index)
    return Plan(job=job, method=NAME, why="", processes=(process,), limits=limits(reader), waits=master_waits(job, reader))


class Spawn(Launcher):
    """The ranks themselves are started."""

    NAME = NAME
    VARIABLES = VARIABLES
    plan = staticmethod(plan)


LAUNCHER = Spawn
