"""Jobs of parameter servers (ps) and workers: by lists of both, else by a TF_CONFIG with ps in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.env import tasks
from ranklaunch.env.job import Job, Program
from ranklaunch.env.parse import Endpoint
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, JOB_NAME, NODE_INDEX, NODES, SLOTS, devices, make_job, spread
from ranklaunch.env.tasks import PS, PS_HOSTS, STAND_IN, TASK, WORKER_HOSTS, Tasks


def job(reader: Reader, program: Program, platform: str, attempt: Callable[[Reader, int, int], int], pod: str = "") -> Job | None:
    """Return the job of workers and ps, None without ps. The values of a platform stand in the reader: node_index counts within a task."""
    found = _tasks(reader)
    if not found:
        return None
    tasks.refuse_duplicates(reader, found)
    count = len(found.workers)
    if reader.given(NODES) and reader.get(NODES) != count:
        reader.problem(f"{count} workers are named, but {reader.told(NODES)}: expected the number of workers")
    slots = reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),)
    return make_job(
        reader,
        program,
        platform=platform,
        name=reader.get(JOB_NAME) or platform,
        attempt=attempt(reader, found.size, found.node_index),
        hosts=found.hosts,
        slots=found.slots(spread(reader, SLOTS, slots, count)),
        node_index=found.node_index,
        tasks=found,
        instance_name=pod,
    )


def _tasks(reader: Reader) -> Tasks | None:
    if not tasks.given(reader, PS_HOSTS):
        return tasks.by_config(reader, TASK, NODE_INDEX)
    workers = reader.get(WORKER_HOSTS) or tuple(map(Endpoint, reader.get(HOSTS)))
    if not workers:
        reader.problem(f"{reader.source(PS_HOSTS)} names ps, but neither {WORKER_HOSTS.both} nor {HOSTS.both} names workers")
    found = Tasks(workers or (STAND_IN,), reader.get(PS_HOSTS) or (STAND_IN,), tasks.own_task(reader, TASK))
    return replace(found, index=base.index(reader, found.size, NODE_INDEX, PS if found.task == PS else "workers"))
