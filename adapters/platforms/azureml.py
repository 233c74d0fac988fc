"""Azure Machine Learning: lists of hosts, and the processes that the job's distribution starts on each instance.

Sources: https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu for MASTER_ADDR, NODE_RANK and the like;
https://github.com/Azure/azureml-examples and environments published by users for the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from ranklaunch.adapters.platforms.shared import base, batch
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, copied, of_hosts
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable, platform_count
from ranklaunch.env.settings import NODE_INDEX, NODES


def _config(value: str) -> tuple[tuple[str, ...], str]:
    """Return the hosts, and the name of the variable with the index of this node ("" without one). Raise ValueError."""
    try:
        config = json.loads(value)
        return tuple(parse.host(str(host)) for host in config.get("host_list") or ()), str(config.get("rank") or "")
    except (ValueError, TypeError, AttributeError, RecursionError):
        msg = 'expected JSON with a list of hosts, such as {"host_list": ["10.0.0.5", "10.0.0.6"]}'
        raise ValueError(msg) from None


HOSTS: Variable[tuple[parse.Endpoint, ...]] = Variable(
    "node_addresses", ("AZ_BATCH_HOST_LIST",), base.listed, (), "addresses of all nodes, in node order", "platform",
)  # fmt: skip
CONFIG: Variable[tuple[tuple[str, ...], str] | None] = Variable(
    "distributed_config", ("AZUREML_CR_DISTRIBUTED_CONFIG",), _config, None,
    "JSON with host_list, the hosts of all nodes in node order, and rank, the name of the variable with this node's index",
    "platform", default_text="none",
)  # fmt: skip
OWN_INDEX = platform_count(
    "instance_index", ("AZUREML_CR_NODE_RANK", "AZ_BATCHAI_TASK_INDEX"), "index of this instance, which is the node's", per_node=True
)
RANK = replace(NODE_INDEX.also("RANK"), meaning="index of this process, from distribution type pytorch", per_node=False)
PROCESSES = platform_count("processes", ("WORLD_SIZE",), "number of all processes, from distribution type pytorch: as many as nodes")
LOCAL_PROCESS = platform_count("local_process", ("LOCAL_RANK",), "index of this process on its node; must be 0 without --per-rank")
MPI_RANK = platform_count("mpi_process", ("OMPI_COMM_WORLD_RANK",), "index of this process, from distribution type mpi: the node's")
INSTANCES = platform_count("instances", ("AZUREML_NODE_COUNT", "AMLARC_NUM_WORKER"), "number of instances, with --per-rank")

_ONE_EACH = "process_count_per_instance: 1 in the job's distribution"
_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # if set, RANK and its like are torchrun's and not Azure's


class Azureml(Place):
    OWN = (HOSTS, CONFIG, OWN_INDEX, RANK, PROCESSES, LOCAL_PROCESS, MPI_RANK)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """Yield the hosts and the index. With --per-rank, each process is a node."""
        if _per_rank(reader):
            for variable, source in ((NODES, PROCESSES), (NODE_INDEX, RANK)):
                if not reader.by_user(variable):
                    reader.settle(variable.value, reader.candidates(source)[0])
            return
        yield from of_hosts(HOSTS.name, [each.host for each in reader.get(HOSTS)])
        hosts, rank = reader.get(CONFIG) or ((), "")
        yield from of_hosts(CONFIG.name, hosts)
        yield from copied(reader, NODE_INDEX, OWN_INDEX)
        if reader.env.get(rank, "").strip():
            yield NODE_INDEX, rank, reader.env[rank]
        if reader.env.get("OMPI_COMM_WORLD_LOCAL_SIZE", "").strip() == "1":
            yield from copied(reader, NODE_INDEX, MPI_RANK)

    def finished(self, reader: Reader, job: Job) -> Job:
        """Refuse several processes on a node: each would start all ranks of the node. With --per-rank, return the job of one-rank nodes."""
        if _BY_TORCHRUN in reader.env:
            return job
        per_rank, total, here = _per_rank(reader), reader.get(PROCESSES), reader.get(LOCAL_PROCESS)
        nodes = (reader.get(INSTANCES) or len(reader.get(HOSTS)) or 1) if per_rank else len(job.nodes)
        processes = batch.Tasks(batch.even(total, nodes), here, (PROCESSES, LOCAL_PROCESS), RANK, command=_ONE_EACH)
        if per_rank:
            return batch.job_of_ranks(reader, job.program, [job.master], processes, platform=job.platform, name=job.name)
        if total > nodes or here:
            batch.refuse_tasks(reader, processes, nodes)
        return job


def _per_rank(reader: Reader) -> bool:
    """Return True with --per-rank if the distribution's variables number the processes."""
    return base.per_rank(reader) and all(map(reader.is_set, (PROCESSES, LOCAL_PROCESS, RANK))) and _BY_TORCHRUN not in reader.env
