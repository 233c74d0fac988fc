"""Volcano jobs, by what its plugins env, svc, pytorch and tensorflow give their pods. ModelArts' jobs are Volcano's too, with more.

The nodes are the pods of one task, or of the leading task and then of the workers, as its plugin pytorch counts them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared import volcano_roles as roles
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, LAUNCHER_AS_WORKER, POD_IP, RESTARTS
from ranklaunch.adapters.platforms.shared.volcano_roles import Task
from ranklaunch.read import parse, settings, tasks
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.tasks import PS, WORKER, Tasks
from ranklaunch.values import replace

NAME = "volcano"

# As they are listed for people, by the value that they come to.
NODE_INDEX = replace(
    settings.NODE_INDEX.also("VC_TASK_INDEX", "VK_TASK_INDEX", "RANK"), per_node=False,
    meaning=f"{settings.NODE_INDEX.meaning}; of plugin env, which counts within a task, and of plugin pytorch",
)  # fmt: skip
NODES = replace(
    settings.NODES.also("VC_WORKER_NUM", "VC_MASTER_NUM", "WORLD_SIZE"),
    meaning=f"{settings.NODES.meaning}; the platform's must agree with the hosts; of any task: VC_<TASK>_NUM",
)
HOSTS = replace(
    settings.HOSTS.also("VC_MASTER_HOSTS", "VC_WORKER_HOSTS"),
    meaning=f"{settings.HOSTS.meaning}; of any task: VC_<TASK>_HOSTS, else the file /etc/volcano/<task>.host",
)
MASTER_ADDR = settings.MASTER_ADDR.also("MASTER_ADDR")
MASTER_PORT = Variable(
    "master_port", ("MASTER_PORT",), parse.port, 23456, "port of the rendezvous on node 0, by plugin pytorch", "platform",
)  # fmt: skip
PS_HOSTS = tasks.PS_HOSTS.also("VC_PS_HOSTS")

VARIABLES: tuple[Variable[object], ...] = (
    NODE_INDEX, NODES, HOSTS, MASTER_ADDR, MASTER_PORT, PS_HOSTS, LAUNCHER_AS_WORKER, roles.MPI_HOST, HOST_IP,
    POD_IP, HOSTNAME, RESTARTS,
)  # fmt: skip

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

# As they are read: what each of them says alone.
TASK_INDEX = Variable(
    "task_index", ("VC_TASK_INDEX", "VK_TASK_INDEX"), parse.count, 0, "index of this pod in its task", "platform", agree=True,
)  # fmt: skip

_FOLDER = "/etc/volcano"
_LIST = re.compile(r"VC_([A-Z0-9_]+)_(?:HOSTS|NUM)")
_PORT = re.compile(r':([0-9]{1,5})"')  # in a TF_CONFIG; plugin tensorflow has one for all tasks
_NO_NAMES = "plugin svc, which names the hosts, is off"


def detect(reader: Reader) -> bool:
    return reader.given(TASK_INDEX) or bool(_names(reader))


def read(reader: Reader, program: Program) -> Job:
    there = {key: _task(reader, key, name) for key, name in sorted(_names(reader).items())}
    own = roles.own(reader, there)
    for port in _PORT.findall(kubernetes.seen(reader, tasks.CONFIG))[:1]:
        reader.offer("tensorflow_port", Candidate(tasks.CONFIG.names[0], port))
    found = _tasks(reader, there, own)
    if found:
        return _job_with_tasks(reader, program, found)
    parts = roles.together(reader, there, own)
    listed, source = tuple(host for part in parts for host in part.hosts), " and ".join(part.source for part in parts)
    nodes = _count(reader, listed, source, parts)
    plugin = reader.given(roles.RANK) and reader.given(roles.LEADER) and listed[:1] == (reader.get(roles.LEADER),)
    only_launches = nodes > 1 and not reader.get(LAUNCHER_AS_WORKER)
    if plugin and nodes > 1:
        reader.offer(MASTER_PORT.value, *reader.candidates(MASTER_PORT))
    if plugin and not (reader.by_user(settings.NODES) or reader.given(settings.HOSTS)):  # else it may count tasks that are no nodes
        _refuse_other_size(reader, nodes)
    if len(parts) > 1 and roles.method(reader) in settings.BY_MPI and not reader.given(LAUNCHER_AS_WORKER):
        remedy = f"{LAUNCHER_AS_WORKER.names[0]}=false on all pods leaves ranks to the other task"
        reader.warn(f"task {parts[0].name} has ranks of its own, rank 0 among them: {remedy}")
    made = kubernetes.counted(reader, listed, source, nodes) if listed and not reader.given(settings.HOSTS) else ()
    return settings.make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader, listed),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, source, _NO_NAMES),
        slots=kubernetes.slots(reader, settings.SLOTS, nodes),
        node_index=_index(reader, parts, own, listed, nodes, plugin),
        instance_name=kubernetes.own_name(reader),
        host_ips=_addresses(reader),
        host_ip=reader.get(HOST_IP),
        # The Ascend Operator numbers a vcjob's pods as it finds them, unless plugin hcclrank has.
        table_in_order=reader.by_user(settings.NODE_INDEX),
        only_launches=only_launches,
    )


def _addresses(reader: Reader) -> tuple[str, ...]:
    """The pod's and its host's. Where the user says which node it is, it need not be the one whose files these are."""
    own = reader.get(POD_IP)
    if not own and not reader.by_user(settings.NODE_INDEX):
        own = kubernetes.own_address(reader)
        reader.ledger.note(POD_IP.value, own, "/etc/hosts" if own else "default")
    return tuple(filter(None, (own, reader.get(HOST_IP))))


def _names(reader: Reader) -> dict[str, str]:
    """Return the tasks that plugin svc tells of, by a variable or a file, by their keys."""
    variables = (_LIST.fullmatch(name) for name, value in reader.env.items() if value.strip())
    files = (name[: -len(".host")] for name in reader.files.names(_FOLDER) if name.endswith(".host"))
    return {roles.key(name): name for name in (*(found[1].lower() for found in variables if found), *files)}


def _task(reader: Reader, key: str, name: str) -> Task:
    listed: Variable[tuple[str, ...]] = Variable("task_hosts", (f"VC_{key}_HOSTS",), parse.hosts, (), "hosts of a task", "platform")
    number = Variable("task_count", (f"VC_{key}_NUM",), parse.count, 0, "number of a task's pods", "platform")
    told = reader.given(listed)
    source = listed.names[0] if told else f"{_FOLDER}/{name}.host"
    hosts = reader.get(listed) if told else kubernetes.host_file(reader, source, listed)
    count = reader.get(number) if reader.given(number) else 0
    return Task(name, kubernetes.counted(reader, hosts, source, count, number.names[0]) if hosts and count else hosts, source, count)


def _count(reader: Reader, listed: Sequence[str], source: str, parts: Sequence[Task]) -> int:
    if not parts or reader.given(settings.NODES) or reader.given(settings.HOSTS):
        return kubernetes.count(reader, settings.NODES, f"{_NO_NAMES}, so set RANKLAUNCH_NODES to the number of pods")
    nodes = len(listed) or sum(part.pods for part in parts) or 1
    reader.ledger.note(NODES.value, str(nodes), source if listed else f"VC_{roles.key(parts[0].name)}_NUM")
    return nodes


def _refuse_other_size(reader: Reader, nodes: int) -> None:
    if reader.given(roles.SIZE) and reader.get(roles.SIZE) != nodes:
        size, source = reader.told(roles.SIZE), reader.source(settings.NODES)
        reader.problem(f"{size}, but by {source} the job has {nodes} nodes: plugin pytorch counts the same pods")


def _index(reader: Reader, parts: Sequence[Task], own: str, listed: Sequence[str], nodes: int, plugin: bool = False) -> int:
    """Return this node's index, which all ways that there are must tell alike. listed: hosts of all nodes, as far as they are known."""
    ways = []
    if reader.given(TASK_INDEX):
        before = sum(len(part.hosts) for part in itertools.takewhile(lambda part: roles.key(part.name) != roles.key(own), parts))
        number = before + reader.get(TASK_INDEX)
        ways.append((reader.told(TASK_INDEX), number))
    pod = kubernetes.own_name(reader)
    ways += [(kubernetes.told_name(reader), i) for i, host in enumerate(listed) if pod and host.partition(".")[0] == pod][:1]
    if plugin:
        ways.append((f"{roles.RANK.names[0]}={reader.get(roles.RANK)}", reader.get(roles.RANK)))
    return kubernetes.index(reader, settings.NODE_INDEX, nodes, ways, TASK_INDEX.names)


def _name(reader: Reader, listed: Sequence[str]) -> str:
    """Of the job: hosts are called POD.JOB."""
    return kubernetes.name(reader, (*listed, "")[0].partition(".")[2].partition(".")[0], "hosts", NAME)


# Parameter servers


def _tasks(reader: Reader, there: Mapping[str, Task], own: str) -> Tasks | None:
    """Return tasks ps and worker. Of others beside them (chief, evaluator) the program's own TF_CONFIG tells, which method plain leaves."""
    if not (tasks.given(reader, PS_HOSTS) or PS.upper() in there):
        return tasks.by_config(reader, tasks.TASK, settings.NODE_INDEX)
    for other in filter(None, map(there.get, ("CHIEF", "EVALUATOR"))):
        if roles.method(reader) == "plain":
            return None
        reader.problem(f"{other.source}: task {other.name} beside ps: expected tasks ps and worker alone, or method plain")
    of_worker, of_ps = (there[name.upper()].hosts if name.upper() in there else () for name in (WORKER, PS))
    workers = reader.get(tasks.WORKER_HOSTS) or tuple(map(Endpoint, of_worker or reader.get(settings.HOSTS)))
    ps = reader.get(PS_HOSTS) or tuple(map(Endpoint, of_ps))
    for what, found, names in (("workers", workers, "VC_WORKER_HOSTS"), ("ps", ps, "VC_PS_HOSTS")):
        if not found:
            reader.problem(f"there are ps, but neither {names} nor a file in {_FOLDER} names the {what}")
    if own not in (PS, WORKER):
        reader.problem(f"{reader.told(tasks.TASK)}: expected ps or worker, since hosts of ps are given")
        own = WORKER
    all_of = Tasks(workers or (tasks.STAND_IN,), ps or (tasks.STAND_IN,), own)
    tasks.refuse_duplicates(reader, all_of)
    hosts = [endpoint.host for endpoint in (all_of.ps if own == PS else all_of.workers)]
    return replace(all_of, index=_index(reader, (), own, hosts, len(hosts)))


def _job_with_tasks(reader: Reader, program: Program, found: Tasks) -> Job:
    count = len(found.workers)
    if reader.given(settings.NODES) and reader.get(settings.NODES) != count:
        reader.problem(f"{count} workers are named, but {reader.told(settings.NODES)}: expected the number of workers")
    return settings.make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader, found.hosts),
        attempt=attempt(reader),
        hosts=found.hosts,
        slots=found.slots(kubernetes.slots(reader, settings.SLOTS, count)),
        node_index=found.node_index,
        tasks=found,
        instance_name=kubernetes.own_name(reader),
    )
