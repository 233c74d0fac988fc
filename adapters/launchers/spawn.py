"""The program once per slot, started by ranklaunch itself with the variables that torch.distributed's env:// reads."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, limits, master_waits, meeting_host, rank_process
from ranklaunch.adapters.launchers.shared.inherited import as_slurm_task
from ranklaunch.adapters.launchers.shared.launcher import Launcher
from ranklaunch.plan.model import Plan, Process
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.render.templates import Templates

NAME = "spawn"


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    port = reader.get(MASTER_PORT)
    argv = templates.command("spawn/command.j2", job=job)

    def process(rank: int, local_rank: int, local_size: int, **more: str) -> Process:
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(job.world_size),
            "LOCAL_WORLD_SIZE": str(local_size),
            **more,
            "MASTER_ADDR": meeting_host(job, reader),
            "MASTER_PORT": str(port),
        }
        return rank_process(job, reader, templates, argv, local_rank, env, rank)

    if job.among:  # the platform has started each rank, and its own variables of tasks are true
        processes = [process(job.node_index, *job.among)]
    else:
        ranks = [process(rank, i, job.node.slots, GROUP_RANK=str(job.node_index)) for i, rank in enumerate(job.node.ranks)]
        processes = [as_slurm_task(rank, job, reader) for rank in ranks]
    return Plan(job=job, method=NAME, why="", processes=tuple(processes), limits=limits(reader), waits=master_waits(job, reader))


class Spawn(Launcher):
    """The ranks themselves are started."""

    NAME = NAME
    VARIABLES = (MASTER_PORT,)
    plan = staticmethod(plan)


LAUNCHER = Spawn
