"""Volcano: tasks and hosts of a job, from its plugins env, svc, pytorch, mpi and tensorflow. ModelArts' jobs are Volcano jobs with more
variables, and have a module of their own.

The nodes are the pods of one task, or of the leading task and then of the workers, in the order of plugin pytorch. Tasks have any names.
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
INDEX = platform_count("task_index", ("VC_TASK_INDEX", "VK_TASK_INDEX"), "index of this pod in its task, from plugin env", agree=True)
TASK_HOSTS: Variable[tuple[str, ...]] = Variable(
    "task_hosts", ("VC_MASTER_HOSTS", "VC_WORKER_HOSTS", "VC_PS_HOSTS"), parse.hosts, (),
    f"hosts of a task, of any VC_<TASK>_HOSTS, else the file {_FOLDER}/<task>.host", "platform",
)  # fmt: skip
RANK = platform_count("plugin_rank", ("RANK",), "index of this node, from plugin pytorch")
SIZE = Variable("plugin_nodes", ("WORLD_SIZE",), parse.positive, 1, "number of nodes, from plugin pytorch", "platform")
LEADER = platform_text("plugin_master", ("MASTER_ADDR",), "host of node 0, from plugin pytorch")
PORT = Variable("master_port", ("MASTER_PORT",), parse.port, 23456, "port of the rendezvous on node 0, from plugin pytorch", "platform")

_LIST = r"VC_([A-Z0-9_]+)_HOSTS"
_TF_PORT = r':([0-9]{1,5})"'  # in a TF_CONFIG; plugin tensorflow has one for all tasks


class Task(NamedTuple):
    """Task of the job, with the hosts of its pods. source: variable or file with these hosts."""

    name: str
    hosts: tuple[str, ...]
    source: str


TasksByKey = Mapping[str, Task]  # the job's tasks, by the form of their names in variables (_key)


class Volcano(Place):
    OWN = (INDEX, TASK_HOSTS, RANK, SIZE, LEADER, PORT, LAUNCHER_AS_WORKER, HOST_IP, POD_IP, HOSTNAME)
    INDEX = INDEX

    def detect(self, reader: Reader) -> bool:
        return reader.is_set(INDEX) or bool(_names(reader))

    def facts(self, reader: Reader) -> Iterator[Fact]:
        by_key = {key: _task(reader, key, name) for key, name in sorted(_names(reader).items())}
        own = _own_task(reader, by_key)
        has_ps = _has_ps(reader, by_key)
        nodes = [task for task in [own] if task] if has_ps else _nodes(reader, by_key, own)
        yield from _index_and_name(reader, nodes, own)
        yield from _of_ps(by_key) if has_ps else _of_nodes(reader, nodes)
        for port in re.findall(_TF_PORT, reader.seen(CONFIG))[:1]:
            reader.offer(replace(PORT, value="tensorflow_port"), CONFIG.name, port)
        if not reader.by_user(NODE_INDEX):  # with the user's index the planned node may be another one, and /etc/hosts is this node's
            yield POD_IP, "/etc/hosts", kubernetes.own_address(reader)

    def job_facts(self, reader: Reader) -> dict[str, Any]:
        return {
            "host_ips": tuple(filter(None, (reader.get(POD_IP), reader.get(HOST_IP)))),
            "host_ip": reader.get(HOST_IP),
            # The Ascend Operator numbers a vcjob's pods in any order, unless plugin hcclrank has numbered them.
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


def _index_and_name(reader: Reader, nodes: Sequence[Task], own: Task | None) -> Iterator[Fact]:
    """Yield the index of this pod among the nodes, and the job's name. A host has the form POD.JOB."""
    hosts, pod = [host.split(".") for task in nodes for host in task.hosts], kubernetes.own_name(reader)
    if reader.is_set(INDEX):
        before = len(nodes[0].hosts) if nodes[1:] and nodes[0] != own else 0
        index = before + reader.get(INDEX)
        yield NODE_INDEX, f"{reader.source(INDEX)}{f' + {before}' if before else ''}", index
    yield from ((NODE_INDEX, "place of HOSTNAME in the hosts", i) for i, host in enumerate(hosts) if host[0] == pod)
    yield from ((JOB_NAME, "hosts", host[1]) for host in hosts[:1] if host[1:])


# Tasks


def _names(reader: Reader) -> dict[str, str]:
    """Return the names of the tasks that plugin svc lists in a variable or a file, by the form of the names in variables."""
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
    """Return the requested method in small letters, without a note in the plan."""
    return reader.seen(METHOD).lower()


def _own_task(reader: Reader, by_key: TasksByKey) -> Task | None:
    """Return this pod's task: the user's value, else the first of the signs."""
    for source, task in [*_signs_of_task(reader, by_key)][:1]:
        reader.offer(TASK, source, task.name)
    if len(by_key) > 1 and not reader.is_set(TASK) and not reader.by_user(NODE_INDEX):
        names = ", ".join(task.name for task in by_key.values())
        reader.problem(f"{kubernetes.shown_name(reader)} is none of the hosts of tasks {names}: set {TASK.name} to this pod's task")
    return by_key.get(_key(reader.get(TASK).strip()))


def _signs_of_task(reader: Reader, by_key: TasksByKey) -> Iterator[tuple[str, Task]]:
    """Yield this pod's task with its source: from the pod's name, else from plugins (on the host's network), else the only task."""
    pod = kubernetes.own_name(reader)
    yield from ((HOSTNAME.name, task) for task in by_key.values() if pod in [host.partition(".")[0] for host in task.hosts])
    pair = _of_pytorch(reader, by_key, None)
    if pair:
        yield RANK.name, pair[reader.get(RANK) >= len(pair[0].hosts)]
    try:
        yield CONFIG.name, by_key[_key(json.loads(reader.seen(CONFIG))["task"]["type"])]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if len(by_key) == 1:
        yield from (("the only task", task) for task in by_key.values())


# Nodes


def _nodes(reader: Reader, by_key: TasksByKey, own: Task | None) -> Sequence[Task]:
    """Return the tasks whose pods are the nodes, in their order: the leading task and the workers. Plugins pytorch and mpi allow any names
    for these two."""
    usual = [by_key[key] for key in ("MASTER", "WORKER") if key in by_key]
    pair = _of_pytorch(reader, by_key, own) or _of_mpi(reader, by_key, own)
    return pair or (usual if not own or own in usual else [own])


def _of_pytorch(reader: Reader, by_key: TasksByKey, own: Task | None) -> Sequence[Task]:
    """Return the leader's and the workers' task in a pod of plugin pytorch, which alone have a RANK; () in other pods.

    The leader's pod knows the number of workers, but not the name of their task.
    """
    leader = next((task for task in by_key.values() if task.hosts[:1] == (reader.seen(LEADER),)), None)
    if not (leader and reader.is_set(RANK) and reader.is_set(SIZE)):
        return ()
    if own and own != leader:
        return [leader, own]
    size = reader.get(SIZE) - len(leader.hosts)
    fitting = [task for task in by_key.values() if task != leader and len(task.hosts) == size]
    workers = [task for task in fitting if task.name == WORKER] or fitting
    return [leader, *workers] if len(workers) == 1 else ()


def _of_mpi(reader: Reader, by_key: TasksByKey, own: Task | None) -> Sequence[Task]:
    """Return the leader's and the workers' task of plugin mpi; () without them. The leader is known by its task's name: plugin mpi names
    the workers in the leader's pod alone."""
    if _method(reader) not in BY_MPI or reader.is_set(HOSTS) or {"MASTER", "WORKER"} <= by_key.keys():
        return ()
    leaders = [task for task in by_key.values() if re.search("master|launcher", task.name.lower()) and len(task.hosts) == 1]
    if len(by_key) == 2 and len(leaders) == 1:
        return sorted(by_key.values(), key=lambda task: task != leaders[0])
    if len(by_key) > 1 and own and own.name != WORKER:
        names = ", ".join(task.name for task in by_key.values())
        reader.problem(
            f"method mpirun, tasks {names}: the launcher's task is not known; on all pods of the job set {HOSTS.name} to the hosts of both "
            f"tasks, the launcher's first, and {NODE_INDEX.name}"
        )
    return ()


# Parameter servers


def _has_ps(reader: Reader, by_key: TasksByKey) -> bool:
    """Return True for a job of tasks ps and worker. Refuse further tasks, unless method plain leaves them to the program's TF_CONFIG."""
    further = sorted(by_key[key].name for key in by_key.keys() & {"CHIEF", "EVALUATOR"})
    if not (tasks.has_hosts(reader, PS_HOSTS) or "PS" in by_key) or (further and _method(reader) == "plain"):
        return False
    if further:
        reader.problem(f"task {', '.join(further)} beside ps: expected tasks ps and worker alone, or method plain")
    return True


def _of_ps(by_key: TasksByKey) -> Iterator[Fact]:
    for variable, key in ((WORKER_HOSTS, "WORKER"), (PS_HOSTS, "PS")):
        if key in by_key:
            yield variable, by_key[key].source, by_key[key].hosts
