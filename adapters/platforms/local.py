"""No platform: counts and names come from RANKLAUNCH_ variables alone. The smallest platform; copy it to add one."""

from __future__ import annotations

import re

from ranklaunch import tasks
from ranklaunch.files import join
from ranklaunch.job import Job, Program
from ranklaunch.reading import (
    ATTEMPT,
    HOSTS,
    JOB_NAME,
    LOG_DIR,
    MASTER_ADDR,
    NODE_INDEX,
    NODES,
    SLOTS,
    devices,
    make_job,
    spread,
)
from ranklaunch.settings import Endpoint, Reader, Variable
from ranklaunch.tasks import Tasks
from ranklaunch.values import replace

NAME = "local"

VARIABLES: tuple[Variable[object], ...] = ()


def detect(reader: Reader) -> bool:
    return True


def read(reader: Reader, program: Program) -> Job:
    found = _tasks(reader)
    if found:
        return _job_with_tasks(reader, program, found)
    hosts = reader.get(HOSTS)
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(hosts))
    if hosts and len(hosts) != nodes:
        reader.problem(f"{reader.source(HOSTS)} names {len(hosts)} hosts, but {reader.source(NODES)} is {nodes}")
        hosts = hosts[:1] * nodes
    if nodes > 1 and not hosts and not reader.given(MASTER_ADDR):
        reader.problem(f"{nodes} nodes, but neither RANKLAUNCH_HOSTS nor RANKLAUNCH_MASTER_ADDR says where node 0 is")
    index = _index(reader, nodes)
    slots = reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or "local",
        attempt=attempt(reader),
        hosts=hosts or ("localhost",) + ("",) * (nodes - 1),
        slots=spread(reader, SLOTS, slots, nodes),
        node_index=index,
    )


def _tasks(reader: Reader) -> Tasks | None:
    """Where ps are given, or TF_CONFIG names some."""
    if not tasks.given(reader, tasks.PS_HOSTS):
        return tasks.by_config(reader, tasks.TASK, NODE_INDEX)
    workers = reader.get(tasks.WORKER_HOSTS) or tuple(Endpoint(host) for host in reader.get(HOSTS))
    if not workers:
        reader.problem(f"{tasks.PS_HOSTS.names[0]} names ps, but neither RANKLAUNCH_WORKER_HOSTS nor RANKLAUNCH_HOSTS names workers")
        workers = (tasks.STAND_IN,)
    ps = reader.get(tasks.PS_HOSTS) or (tasks.STAND_IN,)
    found = Tasks(workers, ps, tasks.own_task(reader, tasks.TASK))
    return replace(found, index=_index(reader, found.size, "workers" if found.task == tasks.WORKER else "ps"))


def _job_with_tasks(reader: Reader, program: Program, found: Tasks) -> Job:
    count = len(found.workers)
    if reader.given(NODES) and reader.get(NODES) != count:
        reader.problem(f"{count} workers are named, but {reader.told(NODES)}: expected the number of workers")
    tasks.refuse_duplicates(reader, found)
    slots = reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or "local",
        attempt=attempt(reader),
        hosts=found.hosts,
        slots=found.slots(spread(reader, SLOTS, slots, count)),
        node_index=found.node_index,
        tasks=found,
    )


def _index(reader: Reader, nodes: int, what: str = "nodes") -> int:
    index = reader.get(NODE_INDEX)
    if nodes > 1 and not reader.given(NODE_INDEX):
        reader.problem(f"{nodes} {what}, but RANKLAUNCH_NODE does not say which one this is (0 to {nodes - 1})")
    elif index >= nodes:
        reader.problem(f"{reader.told(NODE_INDEX)}: expected 0 to {nodes - 1}, for {nodes} {what}")
    return min(index, nodes - 1)


def attempt(reader: Reader) -> int:
    """One after the attempts whose folders are there, so that no earlier log is lost."""
    if reader.given(ATTEMPT):
        return reader.get(ATTEMPT)
    names = reader.files.names(reader.get(LOG_DIR))
    done = [int(match[1]) for match in (re.fullmatch("attempt_([0-9]{1,6})", name) for name in names) if match]
    number = max(done, default=0) + 1
    reader.note(ATTEMPT.value, str(number), join(reader.get(LOG_DIR), "attempt_*") if done else "default")
    return number
