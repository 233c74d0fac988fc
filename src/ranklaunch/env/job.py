"""The job as the platform describes it: one frozen value, read once, from which everything else follows."""

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
    """Container of the job. slots: processes on this node (at least 1; 0 for a node only serving the rest); first_rank: rank
    of its slot 0.

    task: "ps" or "worker", in jobs with both, else ""; task_index: its index among nodes with its task. port: its listening
    port, 0 if the platform assigns none. devices: numbers of its ranks' devices, () for the first ones.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs of a node
    host: str
    slots: int
    first_rank: int
    task: str = ""
    task_index: int = 0
    port: int = 0
    devices: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """How it is called among the containers of its job."""
        return f"{self.task} {self.task_index}" if self.task else f"node {self.index}"

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.slots)


SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
# Behind which another program may stand.
WRAPPERS = (
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "taskset", "numactl", "timeout", "time", "chrt", "sudo", "gosu", "tini",
    "dumb-init", "conda", "mamba", "micromamba", "poetry", "uv", "pipenv", "pixi", "nsys", "ncu", "strace",
    "py-spy", "catchsegv", "apptainer", "singularity", "srun",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """User's program as given: `path` of a file, or a module name when `module` is true; args are never looked into.
    stands_for: the program started in the end, if this one is ours."""

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
        """The program and its arguments as a launcher for Python scripts (torchrun, msrun, ...) wants them."""
        return (*(("-m",) if self.module else ()), self.path, *self.args)


@dataclass(frozen=True)
class Job:
    """The whole job, seen from one of its nodes. nodes are in the platform's order; slots may differ from node to node. idle: nodes of the
    platform's that were asked to take no part: they have no ranks, come after the others, and end when these have."""

    name: str
    platform: str
    attempt: int
    nodes: tuple[Node, ...]
    node_index: int
    accelerator: Accelerator
    program: Program
    python: str
    log_dir: str
    # Path in the container where the platform puts the rank table, whether it is there yet or not; "" where it gives none.
    rank_table: str = ""
    # The platform's own names for this container, used to find it in a rank table: pod name and host addresses.
    instance_name: str = ""
    host_ips: tuple[str, ...] = ()
    host_ip: str = ""  # of the physical host, where the platform tells it
    # Whether the platform's rank table has the nodes in the job's order; else a container is found in it by its address.
    table_in_order: bool = True
    # Of node 0 itself, where its host, by which the others know it, is that of a Service; known on node 0 alone.
    own_address: str = ""
    # Whether node 0 is told another address of itself than the others are, so that these cannot be compared.
    own_master: bool = False
    # What the platform's own way to start a program gives it in variables, beside what every program inherits.
    env: tuple[tuple[str, str], ...] = ()
    # Where the platform runs a program that it has named itself; "" for the folder that ranklaunch is started in.
    folder: str = ""
    idle: tuple[Node, ...] = ()
    # Where the platform has started a ranklaunch for each rank, each of which is a node: the rank's number on its host, and how many there
    # are on it.
    among: tuple[int, int] | None = None
    # What a program that stands in for the user's is told, in variables; None where none does.
    place: Callable[[Job], Mapping[str, str]] | None = None
    restart: int = 0  # how many times its ranks were started again in place

    @property
    def node(self) -> Node:
        return self.everyone[self.node_index]

    @property
    def everyone(self) -> tuple[Node, ...]:
        """All nodes that meet at the muster."""
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
    """Remember the result for the nodes of the last call: the plans of 10,000 nodes all ask about the same nodes. Safe in threads."""
    last: list[Any] = [(None, None)]

    @functools.wraps(compute)
    def found(nodes: tuple[Node, ...]) -> T:
        pair = last[0]  # read once: another thread may replace it at any moment
        if pair[0] is not nodes:
            pair = last[0] = nodes, compute(nodes)
        result: T = pair[1]
        return result

    return found


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
    """Nodes with their first ranks: the sums of the slots before them, so any slots per node work."""
    return _make_nodes(tuple(hosts), tuple(slots))


@functools.lru_cache(maxsize=4)
def _make_nodes(hosts: tuple[str, ...], slots: tuple[int, ...]) -> tuple[Node, ...]:
    firsts = itertools.accumulate([0, *slots[:-1]])
    return tuple(Node(i, host, n, first) for i, (host, n, first) in enumerate(zip(hosts, slots, firsts)))
