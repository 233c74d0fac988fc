"""Azure Machine Learning: jobs of several instances on its own computes, and of several pods on Kubernetes, which are Volcano's there.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu for MASTER_ADDR, NODE_RANK and the like. What tells
of nodes is documented nowhere: environments that users have shown, and https://github.com/Azure/azureml-examples, for the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.settings import make_job
from ranklaunch.values import Value, replace

NAME = "azureml"


def _host(value: str) -> str:
    """HOST or HOST:PORT."""
    found = parse.endpoints(value)
    if len(found) != 1:
        msg = "expected one host"
        raise ValueError(msg)
    return found[0].host


class Config(Value):
    """rank: name of the variable that has this node's index."""

    hosts: tuple[str, ...] = ()
    rank: str = ""


def _config(value: str) -> Config:
    try:
        found = json.loads(value)
        return Config(tuple(parse.host(str(host)) for host in found.get("host_list") or ()), str(found.get("rank") or ""))
    except (ValueError, TypeError, AttributeError, RecursionError):
        msg = 'expected JSON with a list of hosts, such as {"host_list": ["10.0.0.5", "10.0.0.6"]}'
        raise ValueError(msg) from None


RUN_ID = "AZUREML_RUN_ID"
NODES = ANY_NODES.also("AZUREML_NODE_COUNT")
WORKERS = Variable("workers", ("AMLARC_NUM_WORKER",), parse.positive, 1, "number of pods, on Kubernetes; as the nodes", "platform")
# Not by the node in the table: elsewhere it may be anything, and it is removed from what every rank inherits. So are those of processes.
NODE_INDEX = replace(ANY_NODE_INDEX.also("NODE_RANK"), per_node=False)
OWN_INDEX = Variable(
    "instance_index", ("AZUREML_CR_NODE_RANK", "AZ_BATCHAI_TASK_INDEX"), parse.count, 0, "index of this instance: the node's", "platform",
    agree=True, per_node=True,
)  # fmt: skip
HOSTS: Variable[tuple[str, ...]] = Variable(
    "node_addresses", ("AZ_BATCH_HOST_LIST",), several.listed, (), "addresses of all nodes, in node order", "platform",
)  # fmt: skip
CONFIG: Variable[Config | None] = Variable(
    "distributed_config", ("AZUREML_CR_DISTRIBUTED_CONFIG",), _config, None,
    "JSON with host_list, the hosts of all nodes in node order, and with rank, the name of the variable that has this node's index",
    "platform", default_text="none",
)  # fmt: skip
FIRST = Variable(
    "first_host", ("MASTER_ADDR", "AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_JOB_MASTER_NODE_IP"), _host, "", "host of node 0", "platform",
)  # fmt: skip
SLOTS = ANY_SLOTS.also("AMLARC_NUM_GPU_PER_WORKER")
JOB_NAME = ANY_JOB_NAME.also(RUN_ID)
PROCESS = Variable(
    "process", ("RANK",), parse.count, 0, "index of this process, by distribution type pytorch: as the node's", "platform",
)  # fmt: skip
PROCESSES = Variable(
    "processes", ("WORLD_SIZE",), parse.count, 0, "number of all processes, by distribution type pytorch: as many as nodes", "platform",
)  # fmt: skip
RANK = replace(ANY_NODE_INDEX.also("RANK"), per_node=False)  # where each process is one of ours
LOCAL_PROCESS = Variable("local_process", ("LOCAL_RANK",), parse.count, 0, "index of this process on its node: 0", "platform")
MPI_PROCESS = Variable(
    "mpi_process", ("OMPI_COMM_WORLD_RANK",), parse.count, 0, "index of this process, by distribution type mpi: as the node's", "platform",
)  # fmt: skip
MPI_PROCESSES = Variable(
    "mpi_processes", ("OMPI_COMM_WORLD_SIZE",), parse.count, 0, "number of all processes, by distribution type mpi: as many as nodes",
    "platform",
)  # fmt: skip
MPI_LOCAL = Variable(
    "mpi_processes_of_node", ("OMPI_COMM_WORLD_LOCAL_SIZE",), parse.count, 0, "processes of a node, by distribution type mpi: 1",
    "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    NODES, WORKERS, NODE_INDEX, OWN_INDEX, HOSTS, CONFIG, FIRST, SLOTS, JOB_NAME, PROCESS, PROCESSES, RANK, LOCAL_PROCESS,
    MPI_PROCESS,
    MPI_PROCESSES, MPI_LOCAL,
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
    listed, config = reader.get(HOSTS), reader.get(CONFIG) or Config()
    named, source = (listed, HOSTS.names[0]) if listed else (config.hosts, CONFIG.names[0])
    counts = ((HOSTS.names[0], len(listed)), (CONFIG.names[0], len(config.hosts)))
    ways = [(f"{variable} with {number} hosts", number) for variable, number in counts if number]
    nodes = several.count(reader, NODES, [*ways, *several.told(reader, WORKERS)])
    if len(named) != nodes and not reader.by_user(ANY_NODES):  # a contradiction that count() has refused
        named = named[:1] * nodes
    hosts = several.hosts(reader, nodes, named, source, FIRST, HOSTS.names)
    name = reader.get(JOB_NAME) or NAME
    total, here = _of_pytorch(reader, PROCESSES), _of_pytorch(reader, LOCAL_PROCESS)
    tasks = batch.Tasks(batch.even(total, nodes), here, (PROCESSES, LOCAL_PROCESS), RANK)
    if base.per_rank(reader) and reader.given(LOCAL_PROCESS) and reader.given(PROCESSES):
        from ranklaunch.adapters.platforms.shared import per_rank  # most have one on a node

        return per_rank.job(reader, program, batch.Batch(NAME, "", name), hosts, tasks)
    if not (total > nodes or here):  # of type mpi, or one on each node
        tasks = batch.Tasks((reader.get(MPI_LOCAL),) * nodes, 0, (MPI_LOCAL,))
    index = 0
    if total > nodes or here or tasks.counts[0] > 1:
        batch.refuse_tasks(reader, tasks, nodes, ONE_EACH)
    else:
        index = several.index(reader, NODE_INDEX, nodes, tuple(_ways(reader, config, nodes)), (*OWN_INDEX.names, *MPI_PROCESS.names))
    return make_job(
        reader,
        program,
        platform=NAME,
        name=name,
        attempt=attempt(reader, nodes, index),
        hosts=hosts,
        slots=several.slots(reader, SLOTS, nodes),
        node_index=index,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _of_pytorch(reader: Reader, variable: Variable[int]) -> int:
    """Return a number of distribution type pytorch, 0 where torchrun has set it."""
    return 0 if _BY_TORCHRUN in reader.env else reader.get(variable)


def _ways(reader: Reader, config: Config, nodes: int) -> Iterator[tuple[str, int]]:
    """Yield what else says which node this is: the number of its process, where each node has one."""
    named = Variable("config_rank", (config.rank,) if config.rank else (), parse.count, 0, NODE_INDEX.meaning, "platform")
    yield from several.told(reader, OWN_INDEX, named)
    if _of_pytorch(reader, PROCESSES) == nodes:
        yield from several.told(reader, PROCESS)
    if reader.get(MPI_PROCESSES) == nodes:
        yield from several.told(reader, MPI_PROCESS)
