"""Which of a Volcano job's tasks are its nodes, and which of them this pod is of. Its plugins call tasks as they are told to."""

from __future__ import annotations

import json
import re

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.read import parse, tasks
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import BY_MPI, HOSTS, METHOD, NODE_INDEX
from ranklaunch.read.tasks import TASK, WORKER
from ranklaunch.typed import NamedTuple

MASTER = "master"

RANK = Variable("plugin_rank", ("RANK",), parse.count, 0, "index of this node, by plugin pytorch", "platform")
SIZE = Variable("plugin_nodes", ("WORLD_SIZE",), parse.positive, 1, "number of nodes, by plugin pytorch", "platform")
LEADER = Variable("plugin_master", ("MASTER_ADDR",), parse.host, "", "host of node 0, by plugin pytorch", "platform")
MPI_HOST = Variable(
    "mpi_host", ("MPI_HOST",), parse.text, "", "hosts of the workers, which plugin mpi gives to the master alone; for method mpirun",
    "platform",
)  # fmt: skip


class Task(NamedTuple):
    """source: what names its hosts."""

    name: str
    hosts: tuple[str, ...]
    source: str


def key(task: str) -> str:
    return re.sub("[^A-Za-z0-9]", "_", task).upper()


def find(there: dict[str, Task], name: str) -> Task | None:
    return next((task for task in there.values() if key(task.name) == key(name)), None)


def own(reader: Reader, there: dict[str, Task]) -> str:
    """This pod's task: the user's word, else the one that has its name among its hosts, else what plugins say, else the only one."""
    if reader.given(TASK):
        return reader.get(TASK).strip()
    pod = kubernetes.own_name(reader)
    named = [task.name for task in there.values() if pod and pod in [host.partition(".")[0] for host in task.hosts]][:1]
    told = [(name, HOSTNAME.names[0]) for name in named] or _by_plugins(reader, there)
    for name, source in told[:1]:
        reader.ledger.note(TASK.value, name, source)
        return name
    if len(there) > 1 and not reader.by_user(NODE_INDEX):
        reader.problem(
            f"{kubernetes.told_name(reader)} is none of the hosts of tasks {', '.join(there)}: set {TASK.names[0]} to this pod's task"
        )
    return next(iter(there)) if len(there) == 1 else WORKER


def _by_plugins(reader: Reader, there: dict[str, Task]) -> list[tuple[str, str]]:
    """On the host's network, where HOSTNAME is the machine's: the task, and which variable of a plugin has shown it."""
    if len(there) == 1:
        return []
    joint = _of_pytorch(reader, there, "")
    if joint:
        return [(joint[min(1, reader.get(RANK) // len(joint[0].hosts))].name, RANK.names[0])]
    own = _of_config(reader)
    return [(own, tasks.CONFIG.names[0])] if find(there, own) else []


def together(reader: Reader, there: dict[str, Task], own: str) -> list[Task]:
    """The tasks whose pods are the nodes, in their order: the leading one and the workers, which plugins pytorch and mpi may call
    otherwise."""
    led = _of_pytorch(reader, there, own) or _of_mpi(reader, there, own)
    if led:
        return led
    leader = _leader(reader, there)
    joint = [there[name] for name in dict.fromkeys((leader.name if leader else MASTER, WORKER)) if name in there]
    if own in [task.name for task in joint] or not find(there, own):
        return joint
    return [find(there, own)]  # type: ignore[list-item]


def _leader(reader: Reader, there: dict[str, Task]) -> Task | None:
    address = reader.env.get("MASTER_ADDR", "").strip()
    return next((task for task in there.values() if task.hosts and task.hosts[0] == address), None)


def _of_pytorch(reader: Reader, there: dict[str, Task], own: str) -> list[Task]:
    """The two tasks of plugin pytorch, on their pods alone, since no others have a RANK. The leader's pod does not know what the workers
    are called, but how many there are."""
    leader, mine = _leader(reader, there), find(there, own)
    if not (leader and reader.given(RANK) and reader.given(SIZE)):
        return []
    if mine and mine != leader:
        return [leader, mine]
    size = reader.get(SIZE) - len(leader.hosts)
    fitting = sorted((task for task in there.values() if task != leader and len(task.hosts) == size), key=lambda task: task.name != WORKER)
    return [leader, fitting[0]] if fitting and (len(fitting) == 1 or fitting[0].name == WORKER) else []


def _of_mpi(reader: Reader, there: dict[str, Task], own: str) -> list[Task]:
    """The two tasks of plugin mpi, which tells the leader's pod alone who the workers are: these know it by its name."""
    if kubernetes.seen(reader, METHOD).lower() not in BY_MPI or reader.given(HOSTS) or {MASTER, WORKER} <= there.keys():
        return []
    first, mine = kubernetes.seen(reader, MPI_HOST).partition(",")[0], find(there, own)
    led = [task for task in there.values() if first and task.hosts and task.hosts[0] == first and task != mine]
    if led and mine:
        return [mine, led[0]]
    leaders = [task for task in there.values() if re.search("master|launcher", task.name.lower()) and len(task.hosts) == 1]
    if len(there) == 2 and len(leaders) == 1:
        return [leaders[0], *(task for task in there.values() if task != leaders[0])]
    if len(there) > 1 and mine and mine.name != WORKER:
        remedy = f"set {HOSTS.names[0]} to the hosts of both on all their pods, and {NODE_INDEX.names[0]}"
        reader.problem(f"method mpirun, tasks {', '.join(there)}: which of them starts the ranks of which is not known: {remedy}")
    return []


def _of_config(reader: Reader) -> str:
    """What a TF_CONFIG says that this container does."""
    try:
        return str(json.loads(kubernetes.seen(reader, tasks.CONFIG))["task"]["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
