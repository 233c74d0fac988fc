"""Method jax: the program once per node or per device, as processes of jax.distributed.

JAX (0.10) reads the coordinator's address and the ids of local devices from the environment, and the number of processes and the id of a
process from a cluster class. ranklaunch_rankside registers such a class in each process, so that jax.distributed.initialize() works
without arguments. Sources: jax._src.distributed.State.initialize, jax._src.clusters.cluster.ClusterEnv.
"""

from __future__ import annotations

from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base, variables
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.adapters.launchers.shared.variables import as_slurm_task
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.plan.model import Plan, Process
from ranklaunch.render.templates import Templates

NAME = "jax"
NODE, DEVICE = "node", "device"

MASTER_PORT = replace(base.MASTER_PORT, default=6666)  # port of the coordinator
PROCESSES = Variable(
    "jax_processes", ("RANKLAUNCH_JAX_PROCESSES",), parse.OneOf(NODE, DEVICE), NODE,
    "processes of JAX: node (one for each node, with all its devices) or device (one for each device)", option="--jax-processes",
)  # fmt: skip

CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
_OWN_CPU_DEVICES = "xla_force_host_platform_device_count"  # in XLA_FLAGS: the older setting for the same number


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    devices = job.node.slots
    per_node = reader.get(PROCESSES) == NODE
    slots = tuple(node.slots for node in job.nodes)
    if per_node:
        job = replace(job, nodes=tuple(node._replace(slots=1, first_rank=node.index) for node in job.nodes))
    if not reader.get(variables.RANKSIDE):
        reader.warn(
            f"{reader.described(variables.RANKSIDE)}: jax.distributed.initialize() then needs the arguments num_processes and process_id; "
            "pass the values of JAX_NUM_PROCESSES and JAX_PROCESS_ID"
        )
    argv = templates.command("jax/command.j2", job=job)
    ranks = tuple(_process(job, reader, templates, argv, slot, devices if per_node else 0) for slot in range(job.node.slots))
    return base.planned(job, reader, NAME, ranks, waits=base.master_waits(job, reader), slots=slots)


def _process(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], slot: int, devices: int) -> Process:
    """Return the process of one slot. devices: number of devices for the only process of a node; 0: one device, that of the slot."""
    rank = job.node.first_rank + slot
    host = base.address(base.meeting_host(job, reader))
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{host}:{reader.get(MASTER_PORT)}",
        "JAX_NUM_PROCESSES": str(job.world_size),
        "JAX_PROCESS_ID": str(rank),
    }
    if job.accelerator != "cpu":
        env["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(devices))) if devices else str(slot)
    elif devices > 1 and not reader.env.get(CPU_DEVICES) and _OWN_CPU_DEVICES not in reader.env.get("XLA_FLAGS", ""):
        env[CPU_DEVICES] = str(devices)
    return as_slurm_task(base.rank_process(job, reader, templates, argv, slot, env, rank), job, reader)


class Jax(Launcher):
    """Launcher without a process of its own: ranklaunch starts the processes of JAX."""

    NAME = NAME
    VARIABLES = (MASTER_PORT, PROCESSES)
    plan = staticmethod(plan)
