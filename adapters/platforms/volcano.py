"""Tasks and hosts of a Volcano job, by its plugins env, svc, pytorch, mpi and tensorflow. ModelArts' jobs are Volcano's too, with more.

The nodes are the pods of one task, or of the leading task and then of the workers, as plugin pytorch counts them. Tasks have any names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import Fact, copied
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, LAUNCHER_AS_WORKER, POD_IP
from ranklaunch.env import parse, tasks
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import BY_MPI, HOSTS, JOB_NAME, METHOD, NODE_INDEX, NODES
from ranklaunch.env.tasks import CONFIG, PS_HOSTS, TASK, WORKER, WORKER_HOSTS

_FOLDER = "/etc/volcano"
INDEX = platform_count("task_index", ("VC_TASK_INDEX", "VK_TASK_INDEX"), "index of this pod in its task, by plugin env", agree=True)
TASK_HOSTS: Variable[tuple[str, ...]] = Variable(
    "task_hosts", ("VC_MASTER_HOSTS", "VC_WORKER_HOSTS", "VC_PS_HOSTS"), parse.hosts, (),
    f"hosts of a task, of any VC_<TASK>_HOSTS, else the file {_FOLDER}/<task>.host", "platform",
)  # fmt: skip
RANK = platform_count("plugin_rank", ("RANK",), "index of this node, by plugin pytorch")
SIZE = Variable("plugin_nodes", ("WORLD_SIZE",), parse.positive, 1, "number of nodes, by plugin pytorch", "platform")
LEADER = platform_text("plugin_master", ("MASTER_ADDR",), "host of node 0, by plugin pytorch")
PORT = Variable("master_port", ("MASTER_PORT",), parse.port, 23456, "port of the rendezvous on node 0, by plugin pytorch", "platform")

_LIST = r"VC_([A-Z0-9_]+)_HOSTS"
_TF_PORT = r':([0-9]{1,5})"'  # in a TF_CONFIG; plugin tensorflow has one for all tasks


class Task(NamedTuple):
    """Pods of one task. source: variable or file with their hosts."""

    name: str
    hosts: tuple[str, ...]
    source: str


There = Mapping[str, Task]  # the job's tasks, by their names as variables have them


class Volcano(Place):
    OWN = (INDEX, TASK_HOSTS, RANK, SIZE, LEADER, PORT, LAUNCHER_AS_WORKER, HOST_IP, POD_IP, HOSTNAME)
    INDEX = INDEX

    def detect(self, reader: Reader) -> bool:
        return reader.is_set(INDEX) or bool(_names(reader))

    def facts(self, reader: Reader) -> Iterator[Fact]:
        there = {key: _task(reader, key, name) for key, name in sorted(_names(reader).items())}
        mine = _mine(reader, there)
        has_ps = _has_ps(reader, there)
        nodes = [task for task in [mine] if task] if has_ps else _nodes(reader, there, mine)
        yield from _of_place(reader, nodes, mine)
        yield from _of_ps(there) if has_ps else _of_nodes(reader, nodes)
        for port in re.findall(_TF_PORT, reader.seen(CONFIG))[:1]:
            reader.offer(replace(PORT, value="tensorflow_port"), CONFIG.name, port)
        if not reader.by_user(NODE_INDEX):  # else these files may be another node's
            yield POD_IP, "/etc/hosts", kubernetes.own_address(reader)

    def job_facts(self, reader: Reader) -> dict[str, Any]:
        return {
            "host_ips": tuple(filter(None, (reader.get(POD_IP), reader.get(HOST_IP)))),
            "host_ip": reader.get(HOST_IP),
            # The Ascend Operator numbers a vcjob's pods as it finds them, unless plugin hcclrank has.
            "table_in_order": reader.by_user(NODE_INDEX),
            "only_launches": not reader.get(LAUNCHER_AS_WORKER),
        }


def _of_nodes(reader: Reader, nodes: Sequence[Task]) -> Iterator[Fact]:
    hosts = [host for task in nodes for host in task.hosts]
    yield HOSTS, " and ".join(task.source for task in nodes), hosts
    if reader.is_set(RANK) and hosts[:1] == [reader.seen(LEADER)]:
        yield from copied(reader, NODES, SIZE) if not reader.by_user(HOSTS) else ()
        yield from copied(reader, NODE_INDEX, RANK)
        yield from copied(reader, PORT, PORT) if len(hosts) > 1 else ()
    if len(nodes) > 1 and _method(reader) in BY_MPI and not reader.is_set(LAUNCHER_AS_WORKER):
        remedy = f"{LAUNCHER_AS_WORKER.name}=false on all pods leaves ranks to the other task"
        reader.warn(f"task {nodes[0].name} has ranks of its own, rank 0 among them: {remedy}")


def _of_place(reader: Reader, nodes: Sequence[Task], mine: Task | None) -> Iterator[Fact]:
    """Yield the index of this pod among those of the nodes, and the job's name. Hosts are called POD.JOB."""
    hosts, pod = [host.split(".") for task in nodes for host in task.hosts], kubernetes.own_name(reader)
    if reader.is_set(INDEX):
        before = len(nodes[0].hosts) if nodes[1:] and nodes[0] != mine else 0
        index = before + reader.get(INDEX)
        yield NODE_INDEX, f"{reader.source(INDEX)}{f' + {before}' if before else ''}", index
    yield from ((NODE_INDEX, "place of HOSTNAME in the hosts", i) for i, host in enumerate(hosts) if host[0] == pod)
    yield from ((JOB_NAME, "hosts", host[1]) for host in hosts[:1] if host[1:])


# Tasks


def _names(reader: Reader) -> dict[str, str]:
    """Return the names of the tasks that plugin svc lists, in a variable or a file, by their names as variables have them."""
    variables = (re.fullmatch(_LIST, name) for name, value in reader.env.items() if value.strip())
    files = (name[: -len(".host")] for name in reader.files.names(_FOLDER) if name.endswith(".host"))
    return {_key(name): name for name in (*(match[1].lower() for match in variables if match), *files)}


def _key(task: str) -> str:
    return re.sub("[^A-Za-z0-9]", "_", task).upper()


def _task(reader: Reader, key: str, name: str) -> Task:
    listed, path = replace(TASK_HOSTS, names=(f"VC_{key}_HOSTS",)), f"{_FOLDER}/{name}.host"
    if reader.is_set(listed):
        return Task(name, reader.get(listed), listed.name)
    return Task(name, kubernetes.host_file(reader, path, listed), path)


def _method(reader: Reader) -> str:
    """Return the method that is asked for. It is not read yet."""
    return reader.seen(METHOD).lower()


def _mine(reader: Reader, there: There) -> Task | None:
    """Return this pod's task: the user's word, else the first that tells."""
    for source, task in [*_told(reader, there)][:1]:
        reader.offer(TASK, source, task.name)
    if len(there) > 1 and not reader.is_set(TASK) and not reader.by_user(NODE_INDEX):
        names = ", ".join(task.name for task in there.values())
        reader.problem(f"{kubernetes.told_name(reader)} is none of the hosts of tasks {names}: set {TASK.name} to this pod's task")
    return there.get(_key(reader.get(TASK).strip()))


def _told(reader: Reader, there: There) -> Iterator[tuple[str, Task]]:
    """Yield the task of this pod with the source of it: by its name, else by plugins, as on the host's network, else the only one."""
    pod = kubernetes.own_name(reader)
    yield from ((HOSTNAME.name, task) for task in there.values() if pod in [host.partition(".")[0] for host in task.hosts])
    led = _of_pytorch(reader, there, None)
    if led:
        yield RANK.name, led[reader.get(RANK) >= len(led[0].hosts)]
    try:
        yield CONFIG.name, there[_key(json.loads(reader.seen(CONFIG))["task"]["type"])]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if len(there) == 1:
        yield from (("the only task", task) for task in there.values())


# Nodes


def _nodes(reader: Reader, there: There, mine: Task | None) -> Sequence[Task]:
    """Return the tasks whose pods are the nodes, in their order: the leading one and the workers, which plugins pytorch and mpi may call
    otherwise."""
    joint = [there[key] for key in ("MASTER", "WORKER") if key in there]
    led = _of_pytorch(reader, there, mine) or _of_mpi(reader, there, mine)
    return led or (joint if not mine or mine in joint else [mine])


def _of_pytorch(reader: Reader, there: There, mine: Task | None) -> Sequence[Task]:
    """Return the two tasks of plugin pytorch on their pods: no others have a RANK. The leader's pod knows the number of workers, and not
    the name of their task."""
    leader = next((task for task in there.values() if task.hosts[:1] == (reader.seen(LEADER),)), None)
    if not (leader and reader.is_set(RANK) and reader.is_set(SIZE)):
        return ()
    if mine and mine != leader:
        return [leader, mine]
    size = reader.get(SIZE) - len(leader.hosts)
    fitting = [task for task in there.values() if task != leader and len(task.hosts) == size]
    workers = [task for task in fitting if task.name == WORKER] or fitting
    return [leader, *workers] if len(workers) == 1 else ()


def _of_mpi(reader: Reader, there: There, mine: Task | None) -> Sequence[Task]:
    """Return the two tasks of plugin mpi. Their names tell the leader: plugin mpi says to its pod alone who the workers are."""
    if _method(reader) not in BY_MPI or reader.is_set(HOSTS) or {"MASTER", "WORKER"} <= there.keys():
        return ()
    leaders = [task for task in there.values() if re.search("master|launcher", task.name.lower()) and len(task.hosts) == 1]
    if len(there) == 2 and len(leaders) == 1:
        return sorted(there.values(), key=lambda task: task != leaders[0])
    if len(there) > 1 and mine and mine.name != WORKER:
        names, remedy = ", ".join(task.name for task in there.values()), f"set {HOSTS.name} to the hosts of both on all their pods"
        reader.problem(
            f"method mpirun, tasks {names}: which of them starts the ranks of which is not known: {remedy}, and {NODE_INDEX.name}"
        )
    return ()


# Parameter servers


def _has_ps(reader: Reader, there: There) -> bool:
    """Return True for tasks ps and worker. Further tasks are in the TF_CONFIG of the program, which method plain keeps."""
    others = sorted(there[key].name for key in there.keys() & {"CHIEF", "EVALUATOR"})
    if not (tasks.has_hosts(reader, PS_HOSTS) or "PS" in there) or (others and _method(reader) == "plain"):
        return False
    if others:
        reader.problem(f"task {', '.join(others)} beside ps: expected tasks ps and worker alone, or method plain")
    return True


def _of_ps(there: There) -> Iterator[Fact]:
    for variable, key in ((WORKER_HOSTS, "WORKER"), (PS_HOSTS, "PS")):
        if key in there:
            yield variable, there[key].source, there[key].hosts
