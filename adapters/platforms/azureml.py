"""Azure Machine Learning: jobs of several instances on its own computes, and of several pods on Kubernetes, which are Volcano's there.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu for MASTER_ADDR, NODE_RANK and the like. What tells
of nodes is documented nowhere: environments that users have shown, and https://github.com/Azure/azureml-examples, for the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ranklaunch.adapters.platforms.shared import base, several
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


def _number(value: str, name: str, meaning: str) -> Variable[int]:
    return Variable(value, (name,), parse.count, 0, meaning, "platform")


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
PROCESS = _number("process", "RANK", "index of this process, by distribution type pytorch: as the node's")
PROCESSES = Variable(
    "processes", ("WORLD_SIZE",), parse.count, 0, "number of all processes, by distribution type pytorch: as many as nodes", "platform",
)  # fmt: skip
RANK = replace(ANY_NODE_INDEX.also("RANK"), per_node=False)  # where each process is one of ours
LOCAL_PROCESS = _number("local_process", "LOCAL_RANK", "index of this process on its node: 0")
MPI_PROCESS = _number("mpi_process", "OMPI_COMM_WORLD_RANK", "index of this process, by distribution type mpi: as the node's")
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

_SIGNS = (*NODES.names[1:], *WORKERS.names, OWN_INDEX.names[0], *HOSTS.names, *CONFIG.names)
_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # whose RANK and the like are none of Azure's


def detect(reader: Reader) -> bool:
    several_ = any(several.has(reader, name) for name in _SIGNS) or several.has(reader, "NODE_RANK", "MASTER_ADDR")
    return several.has(reader, RUN_ID) and several_


def read(reader: Reader, program: Program) -> Job:
    listed, config = reader.get(HOSTS), reader.get(CONFIG) or Config()
    named, source = (listed, HOSTS.names[0]) if listed else (config.hosts, CONFIG.names[0])
    nodes = several.count(reader, NODES, [*_lists(listed, config), *several.told(reader, WORKERS)])
    if len(named) != nodes and not reader.by_user(ANY_NODES):  # which is said already
        named = named[:1] * nodes
    hosts = several.hosts(reader, nodes, named, source, FIRST, HOSTS.names)
    if base.per_rank(reader) and reader.given(LOCAL_PROCESS) and reader.given(PROCESSES):
        from ranklaunch.adapters.platforms.shared import per_rank  # most have one on a node

        total = reader.get(PROCESSES)
        names = ", ".join(variable.names[0] for variable in (PROCESSES, PROCESS, LOCAL_PROCESS))
        tasks = per_rank.Tasks(total, _said(reader, LOCAL_PROCESS), total // nodes if total % nodes == 0 else 0, RANK, names, hosts, nodes)
        return per_rank.job(reader, program, tasks, platform=NAME, name=reader.get(JOB_NAME) or NAME, folder="")
    own = 0 if _refuse_process_per_device(reader, nodes) else _index(reader, config, nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=several.slots(reader, SLOTS, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _lists(listed: tuple[str, ...], config: Config) -> Iterator[tuple[str, int]]:
    for found, variable in ((listed, HOSTS.names[0]), (config.hosts, CONFIG.names[0])):
        if found:
            yield f"{variable} with {len(found)} hosts", len(found)


def _refuse_process_per_device(reader: Reader, nodes: int) -> bool:
    """Azure ML starts as many processes on a node as it is asked for, each of them to be a rank."""
    most = {LOCAL_PROCESS: 0, PROCESSES: nodes} if _BY_TORCHRUN not in reader.env else {}
    found = [variable for variable, number in {**most, MPI_LOCAL: 1}.items() if _said(reader, variable) > number]
    if found:
        shown = " and ".join(reader.told(variable) for variable in found)
        reader.problem(
            f"{shown}, but the job has {nodes} node{'s' if nodes > 1 else ''}: Azure ML starts ranklaunch once for each GPU, and each "
            "would start all of the node's ranks; expected one on each node: process_count_per_instance: 1 in the job's distribution"
            f"{'; or --per-rank, with which each stands before one rank' if LOCAL_PROCESS in found else ''}"
        )
    return bool(found)


def _said(reader: Reader, variable: Variable[int]) -> int:
    return reader.get(variable) if reader.given(variable) else 0


def _index(reader: Reader, config: Config, nodes: int) -> int:
    return several.index(reader, NODE_INDEX, nodes, tuple(_ways(reader, config, nodes)), (*OWN_INDEX.names, *MPI_PROCESS.names))


def _ways(reader: Reader, config: Config, nodes: int) -> Iterator[tuple[str, int]]:
    """What else says which node this is: of one process on each node its own number does."""
    yield from several.told(reader, OWN_INDEX)
    named = _number("config_rank", config.rank, NODE_INDEX.meaning) if config.rank else None
    if named and reader.given(named):
        yield from several.told(reader, named)
    if _BY_TORCHRUN not in reader.env and _said(reader, PROCESSES) == nodes:
        yield from several.told(reader, PROCESS)
    if _said(reader, MPI_PROCESSES) == nodes:
        yield from several.told(reader, MPI_PROCESS)
