"""Method ranktable: the program once per device of this node, with the rank table of the whole job. ModelArts starts its Ascend
engines in this way by default."""

from __future__ import annotations

import re
from dataclasses import replace

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared import route
from ranklaunch.adapters.launchers.shared.base import Launcher, in_attempt, planned, rank_process
from ranklaunch.adapters.launchers.shared.rank_table import entry_of_node, hccl_path
from ranklaunch.adapters.launchers.shared.variables import PROCESS_LOG_PATH, as_slurm_task
from ranklaunch.env.job import Job, Node
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import RANK_TABLE_PATHS, WAIT_S
from ranklaunch.files import join
from ranklaunch.plan.model import File, Plan, Process, Wait
from ranklaunch.render.templates import Templates

NAME = "ranktable"


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    if not job.rank_table:
        reader.problem(
            "method ranktable needs a rank table: RANK_TABLE_FILE is not set (on ModelArts the platform makes the table only when "
            f"the job sets RANK_TABLE_FILE) and none of {', '.join(RANK_TABLE_PATHS)} exists; set RANK_TABLE_FILE, or "
            "choose another --method"
        )
        return planned(job, reader, NAME, ())
    try:
        table, index = entry_of_node(job, reader)
    except ranktable.NotReadyError as state:
        reader.warn(f"rank table {job.rank_table}: {state}; the ranks shown follow from the node and device counts")
        wait = Wait("rank table", job.rank_table, reader.get(WAIT_S), seen=str(state))
        return replace(_plan(job, reader, templates, tuple(job.node.ranks)), waits=(wait,))
    way = route.plan_table(job, reader, table, index)
    placed = _placed(job, reader, way.table, way.index)
    result = _plan(placed, reader, templates, way.table.servers[way.index].ranks)
    file = File(hccl_path(job), ranktable.for_hccl(way.table))
    return replace(result, files=way.files or (file,), waits=way.waits, gather=way.gather)


def _plan(job: Job, reader: Reader, templates: Templates, ranks: tuple[int, ...]) -> Plan:
    argv = templates.command("ranktable/command.j2", job=job)
    processes = tuple(_rank(job, reader, templates, argv, i, rank) for i, rank in enumerate(ranks))
    return planned(job, reader, NAME, processes)


def _rank(job: Job, reader: Reader, templates: Templates, argv: tuple[str, ...], local_rank: int, rank: int) -> Process:
    env = {
        "RANK_TABLE_FILE": hccl_path(job),
        "ASCEND_DEVICE_ID": str(local_rank),  # logical id: index among the devices of the container
        "DEVICE_ID": str(local_rank),
        "RANK_ID": str(rank),
        "RANK_SIZE": str(job.world_size),
    }
    # Without the variable, CANN writes the logs of all ranks into one folder below HOME.
    if job.accelerator == "npu" and not reader.is_set(PROCESS_LOG_PATH):
        env["ASCEND_PROCESS_LOG_PATH"] = in_attempt(job, f"ascend/rank_{rank}")
    process = rank_process(job, reader, templates, argv, local_rank, env, rank=rank)
    if job.platform == "modelarts":  # collects the log of each device, by this name
        name = re.sub(r"[^A-Za-z0-9._-]", "_", job.name)[:128]
        process = replace(process, copies=(join(job.log_dir, f"{name}-proc-rank-{rank}-device-{local_rank}.txt"),))
    return as_slurm_task(process, job, reader)


def _placed(job: Job, reader: Reader, table: ranktable.RankTable, index: int) -> Job:
    """Return the job with the nodes of the rank table: one node for each entry, one slot for each device."""
    for warning in table.warnings:
        reader.warn(f"rank table {job.rank_table}: {warning}")
    if table.size != job.world_size:
        reader.warn(f"the rank table has {table.size} devices, but the node and device counts give {job.world_size}: the table is used")
    entries = enumerate(zip(_hosts(job, table), table.servers))
    nodes = tuple(Node(i, host, server.size, server.ranks[0]) for i, (host, server) in entries)
    return replace(job, nodes=nodes, node_index=index)


def _hosts(job: Job, table: ranktable.RankTable) -> list[str]:
    """Return the host of each entry: the container's address or the platform's host name if known, else the entry's server id."""
    addresses = [server.container_ip for server in table.servers]
    if not job.table_in_order and all(addresses):
        return addresses
    return [node.host for node in job.nodes] if len(job.nodes) == len(table.servers) else [server.server_id for server in table.servers]


class Ranktable(Launcher):
    """Launcher without a process of its own: ranklaunch starts the ranks, with the rank table."""

    NAME = NAME
    VARIABLES = route.VARIABLES
    plan = staticmethod(plan)
