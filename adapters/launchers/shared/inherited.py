"""Inherited variables that would mislead a launcher or its ranks: images, operators and earlier launchers leave them behind.

They are removed from the environment of what is started and named in the plan. Settings for recovery (MS_ENABLE_TFT,
TORCH_NCCL_*, HIGH_AVAILABILITY, TTP_PORT, ...) do not match and stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import OF_KEY
from ranklaunch.plan.model import Process

# Names, or with * at the end all that begin so; and why they go.
MISLEADING = {
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE": "set per node, not per rank, by Volcano's pytorch plugin and Ascend Operator",
    "NODE_RANK": "set by clouds, whose order of the nodes may be another; GROUP_RANK is this launch's",
    "GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE": "left by an outer torchrun",
    "MASTER_ADDR MASTER_PORT": "set by operators for another rendezvous",
    "PET_*": "every option of torchrun may come from here, unseen",
    "TORCHELASTIC_*": "left by an outer torchrun",
    "RANK_ID RANK_SIZE DEVICE_ID ASCEND_DEVICE_ID": "ids of one process, not of the node",
    "RANK_TABLE_FILE RANK_TABLE_FILE_V_1_0": "a folder on ModelArts, which HCCL cannot read",
    "MS_ROLE MS_SCHED_HOST MS_SCHED_PORT MS_NODE_ID MS_NODE_RANK MS_WORKER_NUM MS_LOCAL_WORKER MS_SERVER_NUM MS_WORKER_IP "
    "MS_HCCL_CM_INIT": "cluster of Ascend Operator or of an image, not of this launch",
    " ".join(OF_KEY): "the key of the job's muster, which is ranklaunch's alone",
    "OMPI_MCA_orte_default_hostfile OMPI_MCA_prte_default_hostfile PRTE_MCA_prte_default_hostfile": (
        "hosts by an MPIJob's or an image's own names, by which Open MPI would sort out those of this launch"
    ),
    "OMPI_COMM_WORLD_* PMI_RANK PMI_SIZE PMI_FD PMIX_RANK": "left by an outer mpirun; libraries take them for their own",
    "JSM_NAMESPACE_* PALS_RANKID PALS_LOCAL_RANKID PALS_LOCAL_SIZE": (
        "of a node's one task, by jsrun and PALS; Lightning and others take it for a rank"
    ),
}
_ALL = frozenset(" ".join(MISLEADING).split())
_BEGINNINGS = tuple(name[:-1] for name in _ALL if name.endswith("*"))

# srun's variables of its tasks, one for each node here. Lightning, JAX and others take a task for a rank before they look at RANK.
# Source: https://slurm.schedmd.com/srun.html, "Output environment variables"; lightning.fabric.plugins.environments.slurm.
_SAME_ON_ALL = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
_PER_NODE = "SLURM_NTASKS_PER_NODE"
_OF_TASKS = (*_SAME_ON_ALL, _PER_NODE, "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS")


def misleading(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted names of the variables in an environment that must not reach the ranks."""
    return tuple(sorted(name for name in env if name in _ALL or name.startswith(_BEGINNINGS)))


def only_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted names of the variables that only ranklaunch may know."""
    return tuple(sorted(env.keys() & OF_KEY))


def as_slurm_task(process: Process, job: Job, reader: Reader) -> Process:
    """Make a process that is one rank a task of Slurm's, without the variables that cannot be true of it."""
    counted = _SAME_ON_ALL[0] in reader.env  # by which Lightning takes Slurm's word, and then wants all of it
    own = {"SLURM_PROCID": process.rank, "SLURM_LOCALID": process.local_rank, "SLURM_NODEID": job.node_index}
    values = {**dict.fromkeys(_SAME_ON_ALL, job.world_size), **own}
    env = {name: str(value) for name, value in values.items() if name in reader.env or (counted and name in own)}
    if counted and not job.slots_differ:
        env[_PER_NODE] = str(job.node.slots)
    return without_slurm_tasks(replace(process, env={**process.env, **env}), reader)


def without_slurm_tasks(process: Process, reader: Reader) -> Process:
    """Remove Slurm's variables of tasks from a launcher or a program that starts its node's ranks: all of them would inherit the same."""
    inherited = reader.env.keys() - process.env.keys()
    return replace(process, unset=tuple(sorted({*process.unset, *inherited.intersection(_OF_TASKS)})))
