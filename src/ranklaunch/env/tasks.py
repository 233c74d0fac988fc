"""Jobs of parameter servers (ps) and workers, as in TensorFlow: ps hold the variables, workers train on them.

The job's nodes are the workers, then the ps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.env import parse
from ranklaunch.env.job import Node
from ranklaunch.env.parse import Endpoint
from ranklaunch.env.reader import Reader, Variable

PS, WORKER = "ps", "worker"
STAND_IN = Endpoint("localhost")  # in place of a malformed list, which is reported already

TASK = Variable(
    "task", ("RANKLAUNCH_TASK",), parse.text, WORKER, "task of this container in a job of ps and workers: ps or worker",
    option="--task",
)  # fmt: skip
PS_HOSTS: Variable[tuple[Endpoint, ...]] = Variable(
    "ps_hosts", ("RANKLAUNCH_PS_HOSTS",), parse.endpoints, (),
    "HOST or HOST:PORT of each parameter server (ps), in index order; if set, the job has ps and workers", option="--ps-hosts",
)  # fmt: skip
WORKER_HOSTS: Variable[tuple[Endpoint, ...]] = Variable(
    "worker_hosts", ("RANKLAUNCH_WORKER_HOSTS",), parse.endpoints, (), "HOST or HOST:PORT of each worker, beside the ps",
    option="--worker-hosts", default_text="the hosts of the job",
)  # fmt: skip
CONFIG = Variable(
    "tf_config", ("TF_CONFIG",), parse.text, "",
    "cluster and task, by Volcano's tensorflow plugin or Kubeflow; read if no other variable names ps", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (TASK, PS_HOSTS, WORKER_HOSTS, CONFIG)


@dataclass(frozen=True)
class Tasks:
    """Workers and ps of a job. task, index: of this container; the index counts within the task."""

    workers: tuple[Endpoint, ...]
    ps: tuple[Endpoint, ...]
    task: str
    index: int = 0

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (*self.workers, *self.ps)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(endpoint.host for endpoint in self.endpoints)

    @property
    def size(self) -> int:
        """Number of containers with this container's task."""
        return len(self.ps if self.task == PS else self.workers)

    @property
    def node_index(self) -> int:
        return self.index + (len(self.workers) if self.task == PS else 0)

    def slots(self, of_workers: Sequence[int]) -> tuple[int, ...]:
        """Return the devices of each node; a ps has none."""
        return (*of_workers, *(0,) * len(self.ps))

    def placed(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Return the nodes with their tasks and ports."""
        names = [(WORKER, i) for i in range(len(self.workers))] + [(PS, i) for i in range(len(self.ps))]
        rows = zip(nodes, names, self.endpoints)
        return tuple(node._replace(task=task, task_index=i, port=endpoint.port) for node, (task, i), endpoint in rows)


def has_hosts(reader: Reader, hosts: Variable[tuple[Endpoint, ...]]) -> bool:
    """Return True if a list of hosts is set, also a malformed one. An empty array [] counts as unset."""
    return any(candidate.value.strip("[] \t") for candidate in reader.candidates(hosts)[:1])


def own_task(reader: Reader, variable: Variable[str]) -> str:
    """Return ps or worker. Another task is a problem: the job has ps."""
    task = reader.get(variable).strip()
    if task not in (PS, WORKER):
        reader.problem(f"{reader.described(variable)}: expected ps or worker, since hosts of ps are set")
        return WORKER
    return task


def refuse_duplicates(reader: Reader, workers_and_ps: Tasks) -> None:
    """Refuse two tasks that would listen at one address: one of the lists is another job's, or another task's."""
    for endpoint, count in Counter(workers_and_ps.endpoints).items():
        if count > 1 and endpoint != STAND_IN:
            address = f"{endpoint.host}:{endpoint.port}" if endpoint.port else endpoint.host
            reader.problem(
                f"{reader.source(PS_HOSTS)}, {reader.source(WORKER_HOSTS)}: {address} is named {count} times; "
                "each ps and each worker needs an address of its own"
            )


def by_config(reader: Reader, task: Variable[str], index: Variable[int]) -> Tasks | None:
    """Return the tasks of TF_CONFIG if its cluster has ps and workers alone; None for another cluster, which only the program reads.

    task, index: variables that override TF_CONFIG's task and index if they are set.
    """
    if not reader.is_set(CONFIG):
        return None
    try:
        result = _from_config(json.loads(reader.get(CONFIG)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        expected = '{"cluster": {"ps": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}'
        reader.warn(f"{reader.described(CONFIG)} is not understood: expected {expected}")
        return None
    if not result:
        return None
    result = replace(
        result,
        task=own_task(reader, task) if reader.is_set(task) else result.task,
        index=reader.get(index) if reader.is_set(index) else result.index,
    )
    if result.task not in (PS, WORKER) or result.index >= result.size or not result.workers:
        reader.problem(f"{reader.described(CONFIG)}: {result.task} {result.index} is not in its cluster")
        return None
    return result


def _from_config(config: Any) -> Tasks | None:
    """Return the tasks of a TF_CONFIG, None for a cluster without ps or with other tasks."""
    cluster, this_task = config["cluster"], config["task"]
    if not cluster.get(PS) or cluster.keys() - {PS, WORKER}:
        return None
    workers, ps = (tuple(e for item in cluster.get(name, ()) for e in parse.endpoints(item)) for name in (WORKER, PS))
    return Tasks(workers, ps, str(this_task["type"]), parse.count(str(this_task["index"])))
