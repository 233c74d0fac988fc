"""Jobs of parameter servers (ps) and workers: by lists of both, else by a TF_CONFIG with ps in it."""

from __future__ import annotations

from dataclasses import replace

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.env import tasks
from ranklaunch.env.parse import Endpoint
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, NODE_INDEX, NODES
from ranklaunch.env.tasks import PS, PS_HOSTS, STAND_IN, TASK, WORKER_HOSTS, Tasks


def find(reader: Reader) -> Tasks | None:
    """Return the workers and ps of a job, None without ps. A platform has offered its values; node_index counts within a task."""
    found = _tasks(reader)
    if found:
        tasks.refuse_duplicates(reader, found)
        if reader.given(NODES) and reader.get(NODES) != len(found.workers):
            reader.problem(f"{len(found.workers)} workers are named, but {reader.told(NODES)}: expected the number of workers")
    return found


def _tasks(reader: Reader) -> Tasks | None:
    if not tasks.given(reader, PS_HOSTS):
        return tasks.by_config(reader, TASK, NODE_INDEX)
    workers = reader.get(WORKER_HOSTS) or tuple(map(Endpoint, reader.get(HOSTS)))
    if not workers:
        reader.problem(f"{reader.source(PS_HOSTS)} names ps, but neither {WORKER_HOSTS.both} nor {HOSTS.both} names workers")
    found = Tasks(workers or (STAND_IN,), reader.get(PS_HOSTS) or (STAND_IN,), tasks.own_task(reader, TASK))
    return replace(found, index=base.index(reader, found.size, NODE_INDEX, PS if found.task == PS else "workers"))
