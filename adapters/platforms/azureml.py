"""Azure Machine Learning: jobs of several instances on its own computes, and of several pods on Kubernetes, which are Volcano's there.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu for MASTER_ADDR, NODE_RANK and the like. What tells
of nodes is documented nowhere: environments that users have shown, and https://github.com/Azure/azureml-examples, for the rest.
"""

from __future__ import annotations

import json

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.values import replace

NAME = "azureml"


def _host(value: str) -> str:
    """HOST or HOST:PORT."""
    found = parse.endpoints(value)
    if len(found) != 1:
        msg = "expected one host"
        raise ValueError(msg)
    return found[0].host


def _config(value: str) -> tuple[tuple[str, ...], str]:
    """Return the hosts, and the name of the variable that has this node's index."""
    try:
        found = json.loads(value)
        return tuple(parse.host(str(host)) for host in found.get("host_list") or ()), str(found.get("rank") or "")
    except (ValueError, TypeError, AttributeError, RecursionError):
        msg = 'expected JSON with a list of hosts, such as {"host_list": ["10.0.0.5", "10.0.0.6"]}'
        raise ValueError(msg) from None


RUN_ID = "AZUREML_RUN_ID"
NODES = settings.NODES.also("AZUREML_NODE_COUNT")
WORKERS = Variable("workers", ("AMLARC_NUM_WORKER",), parse.positive, 1, "number of pods, on Kubernetes; as the nodes", "platform")
# Not by the node in the table: elsewhere it may be anything, and it is removed from what every rank inherits. So are those of processes.
NODE_INDEX = replace(settings.NODE_INDEX.also("NODE_RANK"), per_node=False)
OWN_INDEX = Variable(
    "instance_index", ("AZUREML_CR_NODE_RANK", "AZ_BATCHAI_TASK_INDEX"), parse.count, 0, "index of this instance: the node's", "platform",
    agree=True, per_node=True,
)  # fmt: skip
HOSTS: Variable[tuple[str, ...]] = Variable(
    "node_addresses", ("AZ_BATCH_HOST_LIST",), several.listed, (), "addresses of all nodes, in node order", "platform",
)  # fmt: skip
CONFIG: Variable[tuple[tuple[str, ...], str] | None] = Variable(
    "distributed_config", ("AZUREML_CR_DISTRIBUTED_CONFIG",), _config, None,
    "JSON with host_list, the hosts of all nodes in node order, and with rank, the name of the variable that has this node's index",
    "platform", default_text="none",
)  # fmt: skip
FIRST = Variable(
    "first_host", ("MASTER_ADDR", "AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_JOB_MASTER_NODE_IP"), _host, "", "host of node 0", "platform",
)  # fmt: skip
SLOTS = settings.SLOTS.also("AMLARC_NUM_GPU_PER_WORKER")
JOB_NAME = settings.JOB_NAME.also(RUN_ID)
PROCESS = Variable(
    "process", ("RANK",), parse.count, 0, "index of this process, by distribution type pytorch: as the node's", "platform",
)  # fmt: skip
PROCESSES = Variable(
    "processes", ("WORLD_SIZE",), parse.count, 0, "number of all processes, by distribution type pytorch: as many as nodes", "platform",
)  # fmt: skip
RANK = replace(settings.NODE_INDEX.also("RANK"), per_node=False)  # where each process is one of ours
LOCAL_PROCESS = Variable("local_process", ("LOCAL_RANK",), parse.count, 0, "index of this process on its node: 0", "platform")
MPI_PROCESS = Variable(
    "mpi_process", ("OMPI_COMM_WORLD_RANK",), parse.count, 0, "index of this process, by distribution type mpi: as the node's", "platform",
)  # fmt: skip
MPI_LOCAL = Variable(
    "mpi_processes_of_node", ("OMPI_COMM_WORLD_LOCAL_SIZE",), parse.count, 0, "processes of a node, by distribution type mpi: 1",
    "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    NODES, WORKERS, NODE_INDEX, OWN_INDEX, HOSTS, CONFIG, FIRST, SLOTS, JOB_NAME, PROCESS, PROCESSES, RANK, LOCAL_PROCESS, MPI_PROCESS,
    MPI_LOCAL,
)  # fmt: skip

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

ONE_EACH = "process_count_per_instance: 1 in the job's distribution"
_SIGNS = (*NODES.names[1:], *WORKERS.names, OWN_INDEX.names[0], *HOSTS.names, *CONFIG.names)
_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # whose RANK and the like are none of Azure's


def detect(reader: Reader) -> bool:
    several_ = any(several.has(reader, name) for name in _SIGNS) or several.has(reader, "NODE_RANK", "MASTER_ADDR")
    return several.has(reader, RUN_ID) and several_


def read(reader: Reader, program: Program) -> Job:
    listed, (configured, rank) = reader.get(HOSTS), reader.get(CONFIG) or ((), "")
    lists = [(source, hosts) for source, hosts in ((HOSTS.names[0], listed), (CONFIG.names[0], configured)) if hosts]
    ways = [(f"{source} with {len(hosts)} hosts", len(hosts)) for source, hosts in lists]
    nodes = several.count(reader, NODES, [*ways, *several.told(reader, WORKERS)])
    source, named = lists[0] if lists else (CONFIG.names[0], ())
    if len(named) != nodes and not reader.by_user(settings.NODES):  # a contradiction that count() has refused
        named = named[:1] * nodes
    hosts = several.hosts(reader, nodes, named, source, FIRST, HOSTS.names)
    known = batch.Batch(NAME, "", reader.get(JOB_NAME) or NAME)
    by_torchrun = _BY_TORCHRUN in reader.env
    total, here, by_mpi = (0 if by_torchrun else reader.get(PROCESSES)), reader.get(LOCAL_PROCESS), reader.get(MPI_LOCAL)
    tasks = batch.Tasks(batch.even(total, nodes), here, (PROCESSES, LOCAL_PROCESS), RANK)
    if base.per_rank(reader) and reader.given(LOCAL_PROCESS) and reader.given(PROCESSES):
        return batch.job_of_ranks(reader, program, known, hosts, tasks)
    index = 0
    if not by_torchrun and (total > nodes or here):
        batch.refuse_tasks(reader, tasks, nodes, ONE_EACH)
    elif by_mpi > 1:
        batch.refuse_tasks(reader, batch.Tasks((), 0, (MPI_LOCAL,)), nodes, ONE_EACH)
    else:
        named_rank = Variable("config_rank", (rank,) if rank else (), parse.count, 0, NODE_INDEX.meaning, "platform")
        # Where each node has one process, the number of that is the node's.
        numbers = [OWN_INDEX, named_rank, *([PROCESS] if total == nodes else []), *([MPI_PROCESS] if by_mpi else [])]
        others = (*OWN_INDEX.names, *MPI_PROCESS.names)
        index = several.index(reader, NODE_INDEX, nodes, several.told(reader, *numbers), others)
    return batch.job(reader, program, known, hosts, index, several.slots(reader, SLOTS, nodes), ("gpu", SLOTS.names[-1]))
