"""Volcano jobs, by what its plugins env, svc, pytorch and tensorflow give their pods. ModelArts' jobs are Volcano's too, with more.

The nodes are the pods of one task, or of the leading task and then of the workers, as its plugin pytorch counts them.
"""

from __future__ import annotations

import itertools
import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared import volcano_roles as roles
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, LAUNCHER_AS_WORKER, POD_IP, RESTARTS
from ranklaunch.adapters.platforms.shared.volcano_roles import Task
from ranklaunch.read import parse, tasks
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS as ANY_HOSTS
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS, make_job
from ranklaunch.read.tasks import PS, WORKER, Tasks
from ranklaunch.values import replace

NAME = "volcano"

# As they are listed for people, by the value that they come to.
NODE_INDEX = replace(
    ANY_NODE_INDEX.also("VC_TASK_INDEX", "VK_TASK_INDEX", "RANK"), per_node=False,
    meaning=f"{ANY_NODE_INDEX.meaning}; of plugin env, which counts within a task, and of plugin pytorch",
)  # fmt: skip
NODES = replace(
    ANY_NODES.also("VC_WORKER_NUM", "VC_MASTER_NUM", "WORLD_SIZE"),
    meaning=f"{ANY_NODES.meaning}; the platform's must agree with the hosts; of any task: VC_<TASK>_NUM",
)
HOSTS = replace(
    ANY_HOSTS.also("VC_MASTER_HOSTS", "VC_WORKER_HOSTS"),
    meaning=f"{ANY_HOSTS.meaning}; of any task: VC_<TASK>_HOSTS, else the file /etc/volcano/<task>.host",
)
MASTER_ADDR = ANY_MASTER_ADDR.also("MASTER_ADDR")
MASTER_PORT = Variable(
    "master_port", ("MASTER_PORT",), parse.port, 23456, "port of the rendezvous on node 0, by plugin pytorch", "platform",
)  # fmt: skip
TASK = tasks.TASK
PS_HOSTS = tasks.PS_HOSTS.also("VC_PS_HOSTS")
PS_COUNT = Variable("ps_count", ("VC_PS_NUM",), parse.count, 0, "number of parameter servers (ps)", "platform")

VARIABLES: tuple[Variable[object], ...] = (
    NODE_INDEX, NODES, HOSTS, MASTER_ADDR, MASTER_PORT, PS_HOSTS, PS_COUNT, LAUNCHER_AS_WORKER, roles.MPI_HOST, HOST_IP,
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
LISTED: Variable[tuple[str, ...]] = Variable("task_hosts", (), parse.hosts, (), "hosts of a task, by plugin svc", "platform")
NUMBER = Variable("task_count", (), parse.count, 0, "number of a task's pods, by plugin svc", "platform")

_FOLDER = "/etc/volcano"
_LIST = re.compile(r"VC_([A-Z0-9_]+)_(?:HOSTS|NUM)")
# Tasks of TensorFlow that neither serve nor are told to train: which node they would be is the program's own matter.
_OTHERS = ("chief", "evaluator")


def detect(reader: Reader) -> bool:
    return reader.given(TASK_INDEX) or bool(_names(reader))


def read(reader: Reader, program: Program) -> Job:
    there = {name: _task(reader, name) for name in _names(reader)}
    own = roles.own(reader, there)
    found = _tasks(reader, there)
    if found:
        return _job_with_tasks(reader, program, found, there)
    parts = roles.together(reader, there, own)
    listed = tuple(host for part in parts for host in part.hosts)
    nodes = _count(reader, listed, parts)
    plugin = _plugin(reader, listed)
    only_launches = nodes > 1 and not reader.get(LAUNCHER_AS_WORKER)
    if plugin and not (reader.by_user(ANY_NODES) or reader.given(ANY_HOSTS)):  # else it may count tasks that are no nodes
        _refuse_other_size(reader, nodes)
    if plugin and nodes > 1 and reader.given(MASTER_PORT):
        reader.offer(MASTER_PORT.value, reader.candidates(MASTER_PORT)[0])
    source = " and ".join(part.source for part in parts)
    made = kubernetes.counted(reader, listed, source, nodes) if listed and not reader.given(ANY_HOSTS) else ()
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader, listed),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, source, _REMEDY),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, ANY_NODE_INDEX, nodes, _places(reader, parts, own, listed, plugin), TASK_INDEX.names),
        instance_name=kubernetes.own_name(reader),
        host_ips=_addresses(reader),
        host_ip=reader.get(HOST_IP),
        # The Ascend Operator numbers a vcjob's pods as it finds them, unless plugin hcclrank has.
        table_in_order=reader.by_user(ANY_NODE_INDEX),
        only_launches=only_launches,
    )


def _addresses(reader: Reader) -> tuple[str, ...]:
    """The pod's and its host's. Where the user says which node it is, it need not be the one whose files these are."""
    own = reader.get(POD_IP)
    if not own and not reader.by_user(ANY_NODE_INDEX):
        own = kubernetes.own_address(reader)
        reader.ledger.note(POD_IP.value, own, "/etc/hosts" if own else "default")
    return tuple(ip for ip in (own, reader.get(HOST_IP)) if ip)


_REMEDY = "plugin svc, which names the hosts, is off"


def _names(reader: Reader) -> list[str]:
    """Tasks that plugin svc tells of, by a file or a variable."""
    files = [name[: -len(".host")] for name in reader.files.names(_FOLDER) if name.endswith(".host")]
    keys = {roles.key(name) for name in files}
    matches = [_LIST.fullmatch(name) for name, value in reader.env.items() if name.startswith("VC_") and value.strip()]
    found = {match[1] for match in matches if match and match[1] not in keys}
    return sorted([*files, *(key.lower() for key in found)])


def _task(reader: Reader, name: str) -> Task:
    variable = replace(LISTED, names=(f"VC_{roles.key(name)}_HOSTS",))
    if reader.given(variable):
        found, source = reader.get(variable), variable.names[0]
    else:
        source = f"{_FOLDER}/{name}.host"
        found = kubernetes.host_file(reader, source, variable)
    number = replace(NUMBER, names=(f"VC_{roles.key(name)}_NUM",))
    if reader.given(number) and found:
        found = kubernetes.counted(reader, found, source, reader.get(number), number.names[0]) if reader.get(number) else found
    return Task(name, found, source)


def _count(reader: Reader, listed: tuple[str, ...], parts: list[Task]) -> int:
    if reader.given(ANY_NODES) or not (listed or parts):
        return kubernetes.count(reader, ANY_NODES, f"{_REMEDY}, so set RANKLAUNCH_NODES to the number of pods")
    if reader.given(ANY_HOSTS):
        return kubernetes.count(reader, ANY_NODES, "")
    numbers = [replace(NUMBER, names=(f"VC_{roles.key(part.name)}_NUM",)) for part in parts]
    nodes = len(listed) or sum(reader.get(number) for number in numbers) or 1
    reader.ledger.note(NODES.value, str(nodes), " and ".join(part.source for part in parts) if listed else numbers[0].names[0])
    return nodes


def _plugin(reader: Reader, listed: tuple[str, ...]) -> bool:
    """Whether RANK and its like are plugin pytorch's, and no image's: they name a host of this job as node 0."""
    return bool(listed) and reader.given(roles.LEADER) and reader.given(roles.RANK) and reader.get(roles.LEADER) == listed[0]


def _refuse_other_size(reader: Reader, nodes: int) -> None:
    if reader.given(roles.SIZE) and reader.get(roles.SIZE) != nodes:
        reader.problem(
            f"{reader.told(roles.SIZE)}, but by {reader.source(ANY_NODES)} the job has {nodes} nodes: plugin pytorch counts the same pods"
        )


def _places(reader: Reader, parts: list[Task], own: str, listed: tuple[str, ...], plugin: bool) -> list[tuple[str, int]]:
    """This node's index, by each of the ways that there are."""
    ways = []
    if reader.given(TASK_INDEX):
        before = sum(len(part.hosts) for part in itertools.takewhile(lambda part: roles.key(part.name) != roles.key(own), parts))
        number = before + reader.get(TASK_INDEX)
        ways.append((reader.told(TASK_INDEX), number))
    pod = kubernetes.own_name(reader)
    ways += [(kubernetes.told_name(reader), i) for i, host in enumerate(listed) if pod and host.partition(".")[0] == pod][:1]
    if plugin:
        ways.append((f"{roles.RANK.names[0]}={reader.get(roles.RANK)}", reader.get(roles.RANK)))
    return ways


def _name(reader: Reader, listed: tuple[str, ...]) -> str:
    """Of the job: hosts are called POD.JOB."""
    return kubernetes.name(reader, listed[0].partition(".")[2].partition(".")[0] if listed else "", "hosts", NAME)


# Parameter servers


def _tasks(reader: Reader, there: dict[str, Task]) -> Tasks | None:
    if not (tasks.given(reader, PS_HOSTS) or roles.find(there, PS) or (reader.given(PS_COUNT) and reader.get(PS_COUNT))):
        return tasks.by_config(reader, TASK, ANY_NODE_INDEX)
    for name in _OTHERS:
        if roles.find(there, name):
            reader.problem(f"{there[name].source}: task {name} beside ps: expected tasks ps and worker alone")
    workers = reader.get(tasks.WORKER_HOSTS) or tuple(Endpoint(host) for host in _hosts_of(there, WORKER) or reader.get(ANY_HOSTS))
    ps = reader.get(PS_HOSTS) or tuple(Endpoint(host) for host in _hosts_of(there, PS))
    for what, found, names in (("workers", workers, "VC_WORKER_HOSTS"), ("ps", ps, "VC_PS_HOSTS")):
        if not found:
            reader.problem(f"there are ps, but neither {names} nor a file in {_FOLDER} names the {what}")
    own = roles.own(reader, there)
    named = replace(TASK, default=own)
    found_ = Tasks(workers or (tasks.STAND_IN,), ps or (tasks.STAND_IN,), tasks.own_task(reader, named))
    roles.own(reader, there)  # who said it
    tasks.refuse_duplicates(reader, found_)
    return replace(found_, index=_task_index(reader, found_))


def _hosts_of(there: dict[str, Task], name: str) -> tuple[str, ...]:
    found = roles.find(there, name)
    return found.hosts if found else ()


def _task_index(reader: Reader, found: Tasks) -> int:
    hosts = [endpoint.host for endpoint in (found.ps if found.task == PS else found.workers)]
    return kubernetes.index(
        reader, ANY_NODE_INDEX, len(hosts), _places(reader, [], found.task, tuple(hosts), plugin=False), TASK_INDEX.names
    )


def _job_with_tasks(reader: Reader, program: Program, found: Tasks, there: dict[str, Task]) -> Job:
    count = len(found.workers)
    if reader.given(ANY_NODES) and reader.get(ANY_NODES) != count:
        reader.problem(f"{count} workers are named, but {reader.told(ANY_NODES)}: expected the number of workers")
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader, found.hosts),
        attempt=attempt(reader),
        hosts=found.hosts,
        slots=found.slots(kubernetes.slots(reader, SLOTS, count)),
        node_index=found.node_index,
        tasks=found,
        instance_name=kubernetes.own_name(reader),
    )
