"""Which of a Volcano job's tasks are its nodes, and which of them this pod is of. Its plugins call tasks as they are told to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.read import parse
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import BY_MPI, HOSTS, METHOD, NODE_INDEX
from ranklaunch.read.tasks import CONFIG, TASK, WORKER
from ranklaunch.typed import NamedTuple

RANK = Variable("plugin_rank", ("RANK",), parse.count, 0, "index of this node, by plugin pytorch", "platform")
SIZE = Variable("plugin_nodes", ("WORLD_SIZE",), parse.positive, 1, "number of nodes, by plugin pytorch", "platform")
LEADER = Variable("plugin_master", ("MASTER_ADDR",), parse.host, "", "host of node 0, by plugin pytorch", "platform")
MPI_HOST = Variable(
    "mpi_host", ("MPI_HOST",), parse.text, "", "hosts of the workers, which plugin mpi gives to the master alone; for method mpirun",
    "platform",
)  # fmt: skip


class Task(NamedTuple):
    """source: what names its hosts. pods: their number, 0 if unknown."""

    name: str
    hosts: tuple[str, ...]
    source: str
    pods: int


There = Mapping[str, Task]  # the job's tasks, by key


def key(task: str) -> str:
    return re.sub("[^A-Za-z0-9]", "_", task).upper()


def method(reader: Reader) -> str:
    """Return the method that is asked for, which is not read yet."""
    return kubernetes.seen(reader, METHOD).lower()


def own(reader: Reader, there: There) -> str:
    """This pod's task: the user's word, else the one that has its name among its hosts, else what plugins say, else the only one."""
    if reader.given(TASK):
        return reader.get(TASK).strip()
    pod = kubernetes.own_name(reader)
    named = [(task.name, HOSTNAME.names[0]) for task in there.values() if pod and pod in [host.partition(".")[0] for host in task.hosts]]
    for name, source in named or _by_plugins(reader, there):
        reader.ledger.note(TASK.value, name, source)
        return name
    if len(there) > 1 and not reader.by_user(NODE_INDEX):
        names = ", ".join(task.name for task in there.values())
        reader.problem(f"{kubernetes.told_name(reader)} is none of the hosts of tasks {names}: set {TASK.names[0]} to this pod's task")
    return next(iter(there.values())).name if len(there) == 1 else WORKER


def _by_plugins(reader: Reader, there: There) -> Sequence[tuple[str, str]]:
    """On the host's network, where HOSTNAME is the machine's: the task, and which variable of a plugin has shown it."""
    joint = _of_pytorch(reader, there, None) if len(there) > 1 else ()
    if joint:
        return [(joint[min(1, reader.get(RANK) // len(joint[0].hosts))].name, RANK.names[0])]
    try:
        task = json.loads(kubernetes.seen(reader, CONFIG))["task"]["type"] if len(there) > 1 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return [(task, CONFIG.names[0])] if isinstance(task, str) and key(task) in there else ()


def together(reader: Reader, there: There, own: str) -> Sequence[Task]:
    """The tasks whose pods are the nodes, in their order: the leading one and the workers, which plugins pytorch and mpi may call
    otherwise."""
    mine = there.get(key(own))
    joint = [task for task in dict.fromkeys((_leader(reader, there) or there.get("MASTER"), there.get("WORKER"))) if task]
    led = _of_pytorch(reader, there, mine) or _of_mpi(reader, there, mine)
    return led or (joint if not mine or mine in joint else [mine])


def _leader(reader: Reader, there: There) -> Task | None:
    address = reader.env.get("MASTER_ADDR", "").strip()
    return next((task for task in there.values() if task.hosts[:1] == (address,)), None)


def _of_pytorch(reader: Reader, there: There, mine: Task | None) -> Sequence[Task]:
    """The two tasks of plugin pytorch, on their pods alone, since no others have a RANK. The leader's pod does not know what the workers
    are called, but how many there are."""
    leader = _leader(reader, there)
    if not (leader and reader.given(RANK) and reader.given(SIZE)):
        return ()
    if mine and mine != leader:
        return [leader, mine]
    size = reader.get(SIZE) - len(leader.hosts)
    fitting = [task for task in there.values() if task != leader and len(task.hosts) == size]
    workers = [task for task in fitting if task.name == WORKER] or fitting
    return [leader, *workers] if len(workers) == 1 else ()


def _of_mpi(reader: Reader, there: There, mine: Task | None) -> Sequence[Task]:
    """The two tasks of plugin mpi, which tells the leader's pod alone who the workers are: these know it by its name."""
    if method(reader) not in BY_MPI or reader.given(HOSTS) or {"MASTER", "WORKER"} <= there.keys():
        return ()
    every, first = list(there.values()), kubernetes.seen(reader, MPI_HOST).partition(",")[0]
    led = [task for task in every if first and task.hosts[:1] == (first,) and task != mine]
    if led and mine:
        return [mine, led[0]]
    leaders = [task for task in every if re.search("master|launcher", task.name.lower()) and len(task.hosts) == 1]
    if len(there) == 2 and len(leaders) == 1:
        return sorted(every, key=lambda task: task != leaders[0])
    if len(there) > 1 and mine and mine.name != WORKER:
        names, remedy = ", ".join(task.name for task in every), f"set {HOSTS.names[0]} to the hosts of both on all their pods"
        reader.problem(
            f"method mpirun, tasks {names}: which of them starts the ranks of which is not known: {remedy}, and {NODE_INDEX.names[0]}"
        )
    return ()
