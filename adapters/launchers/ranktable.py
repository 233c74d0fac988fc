"""The program once per own device, each with the whole job's rank table: how ModelArts starts its Ascend engines by default."""

from __future__ import annotations

import dataclasses
import re

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.base import attempt_dir, limits, nothing_to_explain, rank_process
from ranklaunch.files import join
from ranklaunch.job import Job, make_nodes
from ranklaunch.plan import File, Plan, Process, Wait
from ranklaunch.ranktable import RankTable
from ranklaunch.reading import WAIT_S
from ranklaunch.render import Templates
from ranklaunch.settings import Reader, Variable

NAME = "ranktable"

VARIABLES: tuple[Variable[object], ...] = ()

explain = nothing_to_explain


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    if not job.rank_table:
        reader.problem(
            "method ranktable needs a rank table: RANK_TABLE_FILE is not set (on ModelArts the platform makes the table only when "
            f"the job sets RANK_TABLE_FILE) and {ranktable.DEFAULT_PATH} does not exist; choose another --method, or set it"
        )
        return Plan(job=job, method=NAME, why="", processes=(), limits=limits(reader))
    try:
        table = ranktable.load(job.rank_table, reader.files)
    except ranktable.NotReadyError as seen:
        reader.warn(f"rank table {job.rank_table}: {seen}; the ranks shown follow from the node and device counts")
        waits = (Wait("rank table", job.rank_table, reader.get(WAIT_S), seen=str(seen)),)
        return _plan(job, reader, templates, files=(), waits=waits)
    placed = _placed(job, reader, table)
    file = File(_own_path(job), ranktable.to_version_1(table))
    return _plan(placed, reader, templates, files=(file,), waits=())


def _plan(job: Job, reader: Reader, templates: Templates, files: tuple[File, ...], waits: tuple[Wait, ...]) -> Plan:
    argv = templates.command("ranktable/command.j2", job=job)

    def rank(local_rank: int) -> Process:
        env = {
            "RANK_TABLE_FILE": _own_path(job),
            "ASCEND_DEVICE_ID": str(local_rank),  # the logical id: the index among the container's own devices
            "DEVICE_ID": str(local_rank),
            "RANK_ID": str(job.node.first_rank + local_rank),
            "RANK_SIZE": str(job.world_size),
        }
        process = rank_process(job, reader, templates, argv, local_rank, env)
        return dataclasses.replace(process, copies=_copies(job, process, local_rank))

    ranks = tuple(rank(i) for i in range(job.node.slots))
    return Plan(job=job, method=NAME, why="", processes=ranks, limits=limits(reader), files=files, waits=waits)


def _own_path(job: Job) -> str:
    return join(attempt_dir(job), "ranktable.json")


def _copies(job: Job, process: Process, local_rank: int) -> tuple[str, ...]:
    """ModelArts collects the log of each device under a name of its own."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", job.name)[:128]
    return (join(job.log_dir, f"{name}-proc-rank-{process.rank}-device-{local_rank}.txt"),) if job.platform == "modelarts" else ()


def _placed(job: Job, reader: Reader, table: RankTable) -> Job:
    """The job as the table says it: a node per pod, in rank order, with as many slots as the pod has devices."""
    if _ranks_out_of_order(table):
        reader.problem(f"rank table {job.rank_table}: the ranks of a server are not consecutive in the order of the table")
        return job
    index = _own_index(job, reader, table)
    pods = table.pods
    hosts = [job.nodes[i].host if len(job.nodes) == len(pods) else pod.server_id for i, pod in enumerate(pods)]
    placed = dataclasses.replace(job, nodes=make_nodes(hosts, [len(pod.devices) for pod in pods]), node_index=index)
    if table.size != job.world_size:
        reader.warn(f"the rank table has {table.size} devices, the node and device counts say {job.world_size}: the table counts")
    return placed


def _ranks_out_of_order(table: RankTable) -> bool:
    ranks = [device.rank for pod in table.pods for device in pod.devices]
    return ranks != list(range(len(ranks)))


def _own_index(job: Job, reader: Reader, table: RankTable) -> int:
    """Which pod of the table is this container: by pod name, else by host address, else by node index. Ways that disagree are a
    problem, because a wrong slice means two processes with one rank."""
    names = [i for i, pod in enumerate(table.pods) if pod.name and pod.name == job.instance_name]
    servers = [i for i, pod in enumerate(table.pods) if pod.server_id in job.host_ips]
    position = job.node_index if job.node_index < len(table.pods) else None
    if names:
        found, how = names[0], f"pod name {job.instance_name}"
    elif len(servers) == 1:
        found, how = servers[0], f"host address {table.pods[servers[0]].server_id}"
    elif position is not None:
        return position
    else:
        reader.problem(f"rank table {job.rank_table} has {len(table.pods)} servers or pods; this is node {job.node_index} and none of them")
        return 0
    if found != position and len(table.pods) > 1:
        reader.problem(
            f"rank table {job.rank_table}: {how} is entry {found}, but the platform says that this is node {job.node_index}; "
            "one of them is wrong (a table of an earlier attempt?)"
        )
    return found
