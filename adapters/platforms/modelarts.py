"""Huawei Cloud ModelArts training jobs. A node is a container; a job is a Volcano job in the platform's cluster.

Sources of the variables: ModelArts user guide, "Viewing environment variables of a training container"; Volcano's plugins svc and env.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, host_file, suffix
from ranklaunch.env import parse, settings, tasks
from ranklaunch.env.job import Job, Program
from ranklaunch.env.parse import Endpoint
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import LOG_DIR, make_job, spread
from ranklaunch.env.tasks import Tasks

T = TypeVar("T")

NODES = settings.NODES.also("MA_NUM_HOSTS", "VC_WORKER_NUM", "DLS_TASK_NUMBER")
SLOTS = settings.SLOTS.also("MA_NUM_GPUS")
HOSTS = settings.HOSTS.also("VC_WORKER_HOSTS")
NODE_INDEX = settings.NODE_INDEX.also("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "DLS_TASK_INDEX", agree=True)
STARTS = settings.ATTEMPT.also("MA_PROC_START_CNT")
JOB_NAME = settings.JOB_NAME.also("MA_VJ_NAME", "BATCH_JOB_ID")
SCHEDULED = Variable(
    "scheduled", ("MA_SCHEDULE_CNT",), parse.positive, 1, "number of times that this node's pod was scheduled, from 1", "platform"
)
TASK = tasks.TASK.also("MA_TASK_NAME")
PS_HOSTS = tasks.PS_HOSTS.also("TF_PS_HOSTS", "VC_PS_HOSTS")
PS_COUNT = platform_count("ps_count", ("VC_PS_NUM",), "number of parameter servers (ps)")
WORKER_HOSTS = tasks.WORKER_HOSTS.also("TF_WORKER_HOSTS")
INSTANCE = platform_text(
    "instance_name",
    ("MA_CURRENT_INSTANCE_NAME", "BATCH_TASK_CURRENT_INSTANCE"),
    "name of this pod; ends with the node's index",
    per_node=True,
    ends_with_index=True,
)
HOST_IP = platform_text("host_ip", ("MA_CURRENT_HOST_IP",), "address of the physical host: a rank table's server_id", per_node=True)
CURRENT_IP = platform_text(
    "current_ip",
    ("MA_CURRENT_IP",),
    "address of the host or, on newer platforms, of the container; only used to find this container in a rank table",
    per_node=True,
)
SIGNS = platform_text(
    "modelarts_signs",
    ("MA_NUM_HOSTS", "MA_NUM_GPUS", "MA_VJ_NAME", "MA_JOB_DIR", "MA_MOUNT_PATH", "MA_CURRENT_INSTANCE_NAME", "DLS_TASK_NUMBER"),
    "set by ModelArts alone: one of them is enough to recognise the platform",
)


_HOST_FILE = "/etc/volcano/{task}.host"


class Modelarts(Place):
    OWN = (
        NODES, SLOTS, HOSTS, NODE_INDEX, STARTS, SCHEDULED, JOB_NAME, TASK, PS_HOSTS, PS_COUNT, WORKER_HOSTS,
        INSTANCE, HOSTNAME, HOST_IP, CURRENT_IP, SIGNS,
    )  # fmt: skip

    def detect(self, reader: Reader) -> bool:
        return reader.is_set(SIGNS)

    def read(self, reader: Reader, program: Program) -> Job:
        nodes = reader.get(NODES)
        ps_and_workers = _ps_and_workers(reader, nodes)
        index = ps_and_workers.node_index if ps_and_workers else _index(reader, nodes)
        hosts = ps_and_workers.hosts if ps_and_workers else _hosts(reader, nodes, reader.get(TASK))
        slots = spread(reader, SLOTS, reader.get(SLOTS), len(ps_and_workers.workers) if ps_and_workers else nodes)
        return make_job(
            reader,
            program,
            platform=self.NAME,
            name=_name(reader),
            attempt=self.attempt(reader),
            hosts=hosts,
            slots=ps_and_workers.slots(slots) if ps_and_workers else slots,
            node_index=index,
            tasks=ps_and_workers,
            accelerator=("npu", "MA_NUM_GPUS without a sign of a GPU"),  # GPU images have the variables of CUDA's and NCCL's versions
            instance_name=reader.get(INSTANCE) or reader.get(HOSTNAME),
            host_ips=tuple(ip for ip in (reader.get(HOST_IP), reader.get(CURRENT_IP)) if ip),
            host_ip=reader.get(HOST_IP),
            own_logs=reader.is_set(LOG_DIR) and not reader.by_user(LOG_DIR),
        )

    def attempt(self, reader: Reader, nodes: int = 1, index: int = 0) -> int:
        """Return the process starts plus the pod schedules, minus 1. The sum is the same in pods that were kept and that were replaced."""
        if reader.by_user(STARTS):
            return reader.get(STARTS)
        number = reader.get(STARTS) + reader.get(SCHEDULED) - 1
        if reader.is_set(STARTS) or reader.is_set(SCHEDULED):
            reader.note(STARTS, str(number), f"{STARTS.names[1]} + {SCHEDULED.name} - 1")
        return number


def _ps_and_workers(reader: Reader, nodes: int) -> Tasks | None:
    """Return the ps and workers of a TensorFlow job, None without ps. MA_NUM_HOSTS is the number of ps and also of workers."""
    if _has_ps(reader):
        both = Tasks(_workers(reader, nodes), _ps(reader, nodes), tasks.own_task(reader, TASK))
        tasks.refuse_duplicates(reader, both)
        return replace(both, index=_index(reader, both.size))
    configured = tasks.by_config(reader, TASK, NODE_INDEX)
    if configured and len(configured.workers) != nodes and reader.is_set(NODES):
        workers = f"it names {len(configured.workers)} workers, but {_counter(reader)} is {nodes}"
        reader.warn(f"TF_CONFIG is another job's, and ignored: {workers}")
        return None
    return configured


def _has_ps(reader: Reader) -> bool:
    has = tasks.has_hosts(reader, PS_HOSTS) or reader.seen(PS_COUNT).strip("0") or reader.seen(TASK) == tasks.PS
    return bool(has) or reader.files.exists(_HOST_FILE.format(task=tasks.PS))


def _workers(reader: Reader, nodes: int) -> tuple[Endpoint, ...]:
    if not tasks.has_hosts(reader, WORKER_HOSTS):
        return tuple(map(Endpoint, _hosts(reader, nodes, tasks.WORKER)))
    workers = reader.get(WORKER_HOSTS) or (tasks.STAND_IN,) * nodes
    if reader.is_set(NODES):
        _refuse_count(reader, len(workers), reader.source(WORKER_HOSTS), nodes, _counter(reader))
    return workers


def _ps(reader: Reader, nodes: int) -> tuple[Endpoint, ...]:
    """Return the ps. The platform's variables count them; only a list of the user's may have another length."""
    count, counter = reader.get(PS_COUNT) or nodes, PS_COUNT.name if reader.get(PS_COUNT) else _counter(reader)
    ps, source = reader.get(PS_HOSTS), reader.source(PS_HOSTS)
    if ps and reader.by_user(PS_HOSTS):
        return ps
    if not ps:
        source = _HOST_FILE.format(task=tasks.PS)
        hosts = host_file(reader, source, PS_HOSTS) or _volcano_hosts(reader, tasks.PS, count, PS_HOSTS)
        ps = tuple(map(Endpoint, hosts))
    _refuse_count(reader, len(ps), source, count, counter)
    return ps


def _index(reader: Reader, nodes: int) -> int:
    """Return the index of this container from variables. The number at the end of the pod's name must agree with it."""
    source, number = suffix(reader, INSTANCE)
    if not number and not reader.is_set(NODE_INDEX):
        source, number = suffix(reader, HOSTNAME)
    if nodes > 1 and number not in ("", reader.seen(NODE_INDEX)):
        reader.offer(NODE_INDEX, f"the number in {source}", number)
    return base.index(reader, nodes, NODE_INDEX)


def _hosts(reader: Reader, nodes: int, task: str) -> tuple[str, ...]:
    """Return the hosts from VC_<TASK>_HOSTS, else Volcano's host file (huge jobs have no variable), else by Volcano's rule for names."""
    variable = replace(HOSTS, names=(HOSTS.name, f"VC_{re.sub('[^A-Za-z0-9]', '_', task).upper()}_HOSTS"))
    hosts, source = reader.get(variable), reader.source(variable)
    if not hosts:
        source = _HOST_FILE.format(task=task)
        hosts = host_file(reader, source, HOSTS)
    # Several hosts without a count are refused below: each node would train alone.
    if nodes == 1 != len(hosts) and (reader.is_set(NODES) or not hosts):
        reader.note(HOSTS, "localhost", "default")
        if hosts:
            described = f"{source} names {len(hosts)} hosts, but {_counter(reader)} is 1"
            reader.warn(f"{described}: this node trains alone; set {NODES.name} if the job has more")
        return ("localhost",)
    hosts = hosts or _volcano_hosts(reader, task, nodes, variable)
    _refuse_count(reader, len(hosts), source, nodes, _counter(reader))
    return hosts if len(hosts) == nodes else hosts[:1] * nodes


def _refuse_count(reader: Reader, hosts: int, source: str, count: int, counter: str) -> None:
    if hosts != count:
        reader.problem(f"{source} names {hosts} hosts, but {counter} is {count}: expected as many names")


def _volcano_hosts(reader: Reader, task: str, count: int, variable: Variable[T]) -> tuple[str, ...]:
    """Return the hosts of a task's pods by Volcano's rule, from MA_VJ_NAME. Record a problem if it is not set."""
    job = reader.env.get("MA_VJ_NAME", "")
    hosts = tuple(f"{job}-{task}-{i}.{job}" for i in range(count))
    if job:
        reader.offer(variable, "MA_VJ_NAME, MA_TASK_NAME", hosts)
        reader.record(variable)
    else:
        reader.problem(f"{count} nodes, but none of {variable.names[-1]}, {_HOST_FILE.format(task=task)} and MA_VJ_NAME names their hosts")
    return hosts


def _counter(reader: Reader) -> str:
    return reader.source(NODES) if reader.is_set(NODES) else f"{NODES.names[1]}, which is not set,"


def _name(reader: Reader) -> str:
    """Return the job's public id. The cluster's name begins with ma-job- instead of the platform's modelarts-job-."""
    of_pod = re.sub("-[^-]+-[0-9]+$", "", reader.seen(INSTANCE))
    if of_pod and not reader.is_set(JOB_NAME):
        reader.offer(JOB_NAME, INSTANCE.name, of_pod)
    return re.sub(r"^ma-job(?=-)", "modelarts-job", reader.get(JOB_NAME)) or "modelarts"
