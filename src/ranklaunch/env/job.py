"""The job as the platform describes it: one frozen value, read once, from which every plan is made."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Accelerator = str  # "npu", "gpu" or "cpu"
ACCELERATORS = ("npu", "gpu", "cpu")

T = TypeVar("T")


class Node(NamedTuple):
    """Container of the job.

    slots: ranks of this node; at least 1, or 0 for a node that only starts or serves the others' ranks. first_rank: rank of slot 0. task:
    "ps" or "worker" in jobs with both, else "". task_index: index among the nodes of this task. port: listening port, 0 if the platform
    assigns none. devices: numbers of the ranks' devices, () for the first ones.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller needs
    host: str
    slots: int
    first_rank: int
    task: str = ""
    task_index: int = 0
    port: int = 0
    devices: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name among the containers of the job: "ps 0", or "node 1" in a job without tasks."""
        return f"{self.task} {self.task_index}" if self.task else f"node {self.index}"

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.slots)


SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
# Commands that run another command, which stands behind their own options.
WRAPPERS = (
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "taskset", "numactl", "timeout", "time", "chrt", "sudo", "gosu", "tini",
    "dumb-init", "conda", "mamba", "micromamba", "poetry", "uv", "pipenv", "pixi", "nsys", "ncu", "strace",
    "py-spy", "catchsegv", "apptainer", "singularity", "srun",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """User's program. path: of a file, or a module's name if `module`. args: passed on unread. stands_for: the user's program, if this one
    is a script of ranklaunch that starts it."""

    path: str
    args: tuple[str, ...] = ()
    module: bool = False
    stands_for: Program | None = None

    @property
    def is_python(self) -> bool:
        return self.module or self.path.endswith(".py")

    @property
    def is_shell(self) -> bool:
        return not self.module and self.path.endswith(".sh")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments in the form of launchers of Python scripts (torchrun, msrun)."""
        return (*(("-m",) if self.module else ()), self.path, *self.args)


@dataclass(frozen=True)
class Job:
    """Job, seen from one of its nodes.

    nodes: in the platform's order; slots may differ from node to node. idle: nodes that the user has excluded. They have no ranks, are
    numbered after the others, and end when the others have ended.
    """

    name: str
    platform: str
    attempt: int
    nodes: tuple[Node, ...]
    node_index: int
    accelerator: Accelerator
    program: Program
    python: str
    log_dir: str
    # Path in the container of the platform's rank table, which may appear later; "" if the platform has none.
    rank_table: str = ""
    # The platform's own names of this container, by which a rank table has it: pod name and host addresses.
    instance_name: str = ""
    host_ips: tuple[str, ...] = ()
    host_ip: str = ""  # of the physical host, if the platform tells it
    # True if the rank table has the nodes in the job's order; else a container is found in the table by its address.
    table_in_order: bool = True
    # Address of node 0's own container, if the other nodes reach node 0 through a Service; known on node 0 alone.
    own_address: str = ""
    # True if the platform gives node 0 another master address than the other nodes: the nodes' addresses must not be compared.
    own_master: bool = False
    # Variables that the platform's own launcher would set for the program, beside those that every program inherits.
    env: tuple[tuple[str, str], ...] = ()
    # Folder in which to run a program that the platform names; "" for the folder in which ranklaunch was started.
    folder: str = ""
    idle: tuple[Node, ...] = ()
    # If the platform has started one ranklaunch for each rank, so that each rank is a node: the rank's number on its host, and the number
    # of ranks there.
    among: tuple[int, int] | None = None
    # Returns the variables for a script of ranklaunch that starts the user's program (Program.stands_for); None without one.
    place: Callable[[Job], Mapping[str, str]] | None = None
    restart: int = 0  # number of restarts in place so far

    @property
    def node(self) -> Node:
        return self.everyone[self.node_index]

    @property
    def everyone(self) -> tuple[Node, ...]:
        """All nodes that meet at the start barrier (muster)."""
        return (*self.nodes, *self.idle) if self.idle else self.nodes

    @property
    def has_peers(self) -> bool:
        return len(self.nodes) > 1

    @property
    def is_idle(self) -> bool:
        return self.node_index >= len(self.nodes)

    @property
    def world_size(self) -> int:
        return _world_size(self.nodes)

    @property
    def master(self) -> str:
        """Host name or address of node 0."""
        return self.nodes[0].host

    @property
    def has_tasks(self) -> bool:
        """True if the nodes have different tasks."""
        return self.nodes[0].task != self.nodes[-1].task

    @property
    def slots_differ(self) -> bool:
        return _slots_differ(self.nodes)


def remembered(compute: Callable[[tuple[Node, ...]], T]) -> Callable[[tuple[Node, ...]], T]:
    """Cache the result for the nodes of the last call: the plans of 10,000 nodes all ask about the same nodes. Safe in threads."""
    last: list[Any] = [(None, None)]

    @functools.wraps(compute)
    def cached(nodes: tuple[Node, ...]) -> T:
        pair = last[0]  # read once: another thread may replace it at any moment
        if pair[0] is not nodes:
            pair = last[0] = nodes, compute(nodes)
        result: T = pair[1]
        return result

    return cached


@remembered
def _world_size(nodes: tuple[Node, ...]) -> int:
    return sum(node.slots for node in nodes)


@remembered
def _slots_differ(nodes: tuple[Node, ...]) -> bool:
    return any(node.slots != nodes[0].slots for node in nodes)


@remembered
def hosts_of(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    return tuple(node.host for node in nodes)


def make_nodes(hosts: Sequence[str], slots: Sequence[int]) -> tuple[Node, ...]:
    """Return nodes with their first ranks, the sums of the slots before them. Slots may differ from node to node."""
    return _make_nodes(tuple(hosts), tuple(slots))


@functools.lru_cache(maxsize=4)
def _make_nodes(hosts: tuple[str, ...], slots: tuple[int, ...]) -> tuple[Node, ...]:
    firsts = itertools.accumulate([0, *slots[:-1]])
    return tuple(Node(i, host, n, first) for i, (host, n, first) in enumerate(zip(hosts, slots, firsts)))
