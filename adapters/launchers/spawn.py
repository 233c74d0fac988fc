"""Method spawn: ranklaunch starts the program once per slot, with the variables that torch.distributed reads for env://."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, Launcher, master_waits, meeting_host, planned, rank_process
from ranklaunch.adapters.launchers.shared.variables import as_slurm_task
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import VISIBLE_GPUS, mig_devices
from ranklaunch.plan.model import Plan, Process
from ranklaunch.render.templates import Templates

NAME = "spawn"


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    argv = templates.command("spawn/command.j2", job=job)
    ranks = tuple(_rank(job, reader, templates, argv, slot) for slot in range(job.node.slots))
    return planned(job, reader, NAME, ranks, waits=master_waits(job, reader))


def _rank(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], slot: int) -> Process:
    """Return the process of the rank in one slot.

    With --per-rank, each node of the plan is one rank on its host, so the platform's own variables about that rank stay as they are.
    """
    rank = job.node.first_rank + slot
    local_rank, local_size = job.among or (slot, job.node.slots)
    env = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(job.world_size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(job.node_index),
        "MASTER_ADDR": meeting_host(job, reader),
        "MASTER_PORT": str(reader.get(MASTER_PORT)),
    }
    if job.among:
        del env["GROUP_RANK"]
    mig = mig_devices(reader) if job.accelerator == "gpu" and local_size > 1 else ()
    if len(mig) > 1:
        env[VISIBLE_GPUS.name] = mig[local_rank % len(mig)]
    process = rank_process(job, reader, templates, argv, local_rank, env, rank)
    return process if job.among else as_slurm_task(process, job, reader)


class Spawn(Launcher):
    """Launcher without a process of its own: ranklaunch starts the ranks."""

    NAME = NAME
    VARIABLES = (MASTER_PORT,)
    plan = staticmethod(plan)
