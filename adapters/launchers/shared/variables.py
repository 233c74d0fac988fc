"""Variables of started processes: variables that are added unless the user has set them, and inherited variables that are removed.

Added are the network interface of all communication libraries, HCCL's settings on Ascend (as ModelArts' own launcher sets them, or
better), and variables with which libraries and Python record their actions.

Sources: CANN's environment variable reference (HCCL_CONNECT_TIMEOUT, HCCL_WHITELIST_DISABLE, HCCL_SOCKET_IFNAME, HCCL_IF_IP); NCCL's
(NCCL_SOCKET_IFNAME); for gloo and TensorPipe PyTorch's page "Distributed communication package", "Choosing the network interface".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import BELOW, OF_KEY, RECORDS_DIR
from ranklaunch.files import join, rankside
from ranklaunch.plan.model import Plan, Process, Recorder, Recorders
from ranklaunch.verdict import folders

INTERFACE = Variable(
    "interface", ("RANKLAUNCH_INTERFACE",), parse.text, "", "network interface of all communication between nodes",
    option="--interface", default_text="on Ascend with several nodes, that of the default route; else as each library chooses",
)  # fmt: skip
CONNECT_TIMEOUT = Variable("hccl_connect_timeout", ("HCCL_CONNECT_TIMEOUT",), parse.count, 1800, "seconds that HCCL waits for its peers")
WHITELIST_DISABLE = Variable("hccl_whitelist_disable", ("HCCL_WHITELIST_DISABLE",), parse.text, "1", "1: HCCL checks no list of addresses")
HCCL_INTERFACE = Variable(
    "hccl_socket_ifname", ("HCCL_IF_IP", "HCCL_SOCKET_IFNAME"), parse.text, "", "address or interface of HCCL's host network"
)
GLOO_INTERFACE = Variable("gloo_socket_ifname", ("GLOO_SOCKET_IFNAME",), parse.text, "", "interface of gloo: one exact name")
NCCL_INTERFACE = Variable("nccl_socket_ifname", ("NCCL_SOCKET_IFNAME",), parse.text, "", "interfaces of NCCL; =NAME is an exact name")
TP_INTERFACE = Variable("tp_socket_ifname", ("TP_SOCKET_IFNAME",), parse.text, "", "interface of TensorPipe: one exact name")
PROCESS_LOG_PATH = Variable(
    "ascend_process_log_path", ("ASCEND_PROCESS_LOG_PATH",), parse.text, "", "folder of CANN's own logs",
    default_text="below the log directory: one for each rank with method ranktable, else one for all ranks (a recorder)",
)  # fmt: skip
RECORDERS = Variable(
    "recorders", ("RANKLAUNCH_RECORDERS",), parse.OneOf("on", "npu", "off"), "on", "recorders of Python, PyTorch and CANN, unless you have "
    "set their variables; npu: also those that change how torch_npu supervises itself",
)  # fmt: skip
RANKSIDE = Variable(
    "rankside", ("RANKLAUNCH_RANKSIDE",), parse.flag, True, "every Python process below a rank records how it starts and ends, by a "
    "sitecustomize of ranklaunch",
)  # fmt: skip
STACKS = Variable(
    "stacks", ("RANKLAUNCH_STACKS",), parse.flag, True, "every Python process below a rank writes its stacks on request, by the same "
    "sitecustomize", default_text="that of RANKLAUNCH_RANKSIDE",
)  # fmt: skip
MINDSPORE_RECOVERY = Variable(
    "mindspore_recovery", ("MS_ENABLE_TFT",), parse.text, "",
    "MindSpore's own recovery of faults, passed to the ranks unchanged; the plan warns of ARF",
)  # fmt: skip
RUN_DIR = Variable(
    "run_dir", ("RANKLAUNCH_RUN_DIR",), parse.text, "/tmp", "folder for this run's private folders: keys, and files of recorders",
)  # fmt: skip

VARIABLES = (
    INTERFACE, CONNECT_TIMEOUT, WHITELIST_DISABLE, HCCL_INTERFACE, GLOO_INTERFACE, TP_INTERFACE, NCCL_INTERFACE,
    PROCESS_LOG_PATH, RECORDERS, RANKSIDE, STACKS, RUN_DIR, MINDSPORE_RECOVERY,
)  # fmt: skip
FAULTHANDLER = Recorder("PYTHONFAULTHANDLER", "1", "Python writes the stacks of a rank that crashes or gets SIGABRT")

RANKSIDE_PATH = rankside()
_DEFAULT_ROUTE = r"(?m)^(\S+)\s+0{8}\s"


def environment(job: Job, reader: Reader) -> dict[str, str]:
    """Return the variables to add for a process, without those that the user has set. Record each with its reason in the plan."""
    env: dict[str, str] = {}
    for variable, value, why in _wanted(job, reader):
        if not reader.is_set(variable):
            env[variable.names[-1]] = value
            reader.note(variable, value, why)
    return env


def _wanted(job: Job, reader: Reader) -> Iterator[tuple[Variable[Any], str, str]]:
    on_ascend = job.accelerator == "npu"
    if on_ascend:
        if reader.is_set(CONNECT_TIMEOUT) and not 120 <= reader.get(CONNECT_TIMEOUT) <= 7200:
            reader.warn(f"HCCL_CONNECT_TIMEOUT={reader.get(CONNECT_TIMEOUT)}: HCCL takes 120 to 7200 seconds")
        yield (
            CONNECT_TIMEOUT,
            str(CONNECT_TIMEOUT.default),
            "default on Ascend: HCCL's own 120 s are too short if nodes start at different times",
        )
        yield WHITELIST_DISABLE, WHITELIST_DISABLE.default, "default on Ascend: there is no list of addresses in a container"
    name = reader.get(INTERFACE) if on_ascend or reader.is_set(INTERFACE) else ""
    route = re.search(_DEFAULT_ROUTE, reader.text("/proc/net/route")) if on_ascend and not name and job.has_peers else None
    if route:
        name = route[1]
        reader.note(INTERFACE, name, "default route")
    # Without a name, each library chooses an interface itself. An exact name is =NAME for HCCL and NCCL, NAME for gloo and TensorPipe.
    if name:
        yield HCCL_INTERFACE if on_ascend else NCCL_INTERFACE, f"={name}", INTERFACE.value
        yield GLOO_INTERFACE, name, INTERFACE.value
        yield TP_INTERFACE, name, INTERFACE.value


def warn_of_recovery(reader: Reader) -> None:
    """Warn of MindSpore's ARF recovery, which needs the other ranks alive after a failure."""
    if not reader.is_set(MINDSPORE_RECOVERY):
        return
    from ranklaunch.env import recovery  # imported late: few jobs set the variable

    problem = recovery.problem(reader.get(MINDSPORE_RECOVERY))
    if problem:
        reader.warn(problem)


def recorded(plan: Plan, reader: Reader) -> Plan:
    """Return the plan with the recorders of its processes."""
    job = plan.job
    if job.is_idle:
        return plan
    first = (*of_python(reader), *of_ranks(job, reader, bool(plan.followers)))
    if job.accelerator == "cpu" and not reader.is_set(RECORDERS):
        return replace(plan, recorders=Recorders(first))
    from ranklaunch.plan import recorders  # imported late: a job on CPUs does not need it

    logs = folders.attempt(job.log_dir, job.attempt)
    return replace(plan, recorders=recorders.of(plan, reader, reader.peek(RECORDERS), _run_dir(reader), logs, first))


def _run_dir(reader: Reader) -> str:
    return reader.absolute(reader.peek(RUN_DIR))


def of_python(reader: Reader) -> tuple[Recorder, ...]:
    """Return Python's faulthandler as a recorder, () if the user has set the variable or turned recorders off."""
    return () if FAULTHANDLER.name in reader.env or reader.peek(RECORDERS) == "off" else (FAULTHANDLER,)


def of_ranks(job: Job, reader: Reader, for_others: bool) -> tuple[Recorder, ...]:
    """Return the variables with which every Python process below a rank records itself (ranklaunch.rankside).

    for_others: node 0 starts the ranks of all nodes, so its variables reach all ranks. Then the variables are the same for all nodes, and
    each node finds its own folder for the records.
    """
    records = reader.peek(RANKSIDE)
    stacks = reader.get(STACKS) if reader.is_set(STACKS) else records
    if not (records or stacks):
        return ()
    user_folders = [folder for folder in reader.env.get("PYTHONPATH", "").split(":") if folder != RANKSIDE_PATH]
    path = ":".join((RANKSIDE_PATH, *user_folders)) if any(user_folders) else RANKSIDE_PATH
    if not records:
        return (Recorder("PYTHONPATH", path, "RANKLAUNCH_STACKS: every Python writes its stacks on request"),)
    records_dir = folders.records(folders.restart(folders.attempt(job.log_dir, job.attempt), job.restart), job.node_index)
    if for_others:
        import hashlib  # imported late: few methods need it

        mark = hashlib.sha256(f"{job.name}\0{reader.account.name}".encode(errors="surrogateescape")).hexdigest()[:8]
        records_dir = f"{BELOW}{join(_run_dir(reader), f'ranklaunch-records-{mark}')}"
    result = [
        Recorder("PYTHONPATH", path, "RANKLAUNCH_RANKSIDE: every Python records how it starts and ends"),
        Recorder(RECORDS_DIR, records_dir, "folder of these records"),
    ]
    if not stacks:
        result.append(Recorder(STACKS.name, "off", f"{reader.described(STACKS)}: no handler for stacks"))
    return tuple(result)


# Inherited variables that would mislead a launcher or its ranks: images, operators and earlier launchers leave them behind.
#
# They are removed from the environment of started processes and named in the plan. Settings for recovery (MS_ENABLE_TFT, TORCH_NCCL_*,
# HIGH_AVAILABILITY, TTP_PORT, ...) do not match and stay.

# Names of variables, or prefixes with * at the end, and the reason for their removal.
MISLEADING = {
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE": "set per node, not per rank, by Volcano's pytorch plugin and Ascend Operator",
    "NODE_RANK": "set by clouds, whose order of the nodes may differ; this launch sets GROUP_RANK",
    "GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE": "left by an outer torchrun",
    "MASTER_ADDR MASTER_PORT": "set by operators for another rendezvous",
    "PET_*": "torchrun takes any of its options from these, unseen",
    "TORCHELASTIC_*": "left by an outer torchrun",
    "RANK_ID RANK_SIZE DEVICE_ID ASCEND_DEVICE_ID": "ids of one process, not of the node",
    "RANK_TABLE_FILE RANK_TABLE_FILE_V_1_0": "a folder on ModelArts, which HCCL cannot read",
    "MS_ROLE MS_SCHED_HOST MS_SCHED_PORT MS_NODE_ID MS_NODE_RANK MS_WORKER_NUM MS_LOCAL_WORKER MS_SERVER_NUM MS_WORKER_IP "
    "MS_HCCL_CM_INIT": "cluster of Ascend Operator or of an image, not of this launch",
    " ".join(OF_KEY): "the key of the job's muster, for ranklaunch only",
    "OMPI_MCA_orte_default_hostfile OMPI_MCA_prte_default_hostfile PRTE_MCA_prte_default_hostfile": (
        "host file of an MPIJob or an image, by whose names Open MPI would exclude the hosts of this launch"
    ),
    "OMPI_COMM_WORLD_* PMI_RANK PMI_SIZE PMI_FD PMIX_RANK": "left by an outer mpirun; libraries would take them for those of this launch",
    "JSM_NAMESPACE_* PALS_RANKID PALS_LOCAL_RANKID PALS_LOCAL_SIZE": (
        "set by jsrun and PALS for the one task of a node; Lightning and others take it for a rank"
    ),
}
_ALL = frozenset(" ".join(MISLEADING).split())
_BEGINNINGS = tuple(name[:-1] for name in _ALL if name.endswith("*"))

# srun's variables of its tasks; a job has one task for each node. Lightning, JAX and others take a task for a rank before they read RANK.
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
    """Return the process of one rank with Slurm's task variables set for this rank, and the other task variables removed."""
    counted = _SAME_ON_ALL[0] in reader.env  # with SLURM_NTASKS, Lightning reads all of Slurm's task variables
    of_rank = {"SLURM_PROCID": process.rank, "SLURM_LOCALID": process.local_rank, "SLURM_NODEID": job.node_index}
    values = {**dict.fromkeys(_SAME_ON_ALL, job.world_size), **of_rank}
    env = {name: str(value) for name, value in values.items() if name in reader.env or (counted and name in of_rank)}
    if counted and not job.slots_differ:
        env[_PER_NODE] = str(job.node.slots)
    return without_slurm_tasks(replace(process, env={**process.env, **env}), reader)


def without_slurm_tasks(process: Process, reader: Reader) -> Process:
    """Return the process without Slurm's task variables: all ranks that it starts would inherit the same values."""
    inherited = reader.env.keys() - process.env.keys()
    return replace(process, unset=tuple(sorted({*process.unset, *inherited.intersection(_OF_TASKS)})))
