"""The job's rank table, and this container's place in it, for the launchers that give it to their ranks."""

from __future__ import annotations

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared.base import attempt_dir
from ranklaunch.errors import ConfigError
from ranklaunch.files import join
from ranklaunch.plan.model import RENEWED
from ranklaunch.ranktable import RankTable, Server
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader
from ranklaunch.verdict import folders


def own_entry(job: Job, reader: Reader) -> tuple[RankTable, int]:
    """The table, and which of its entries this container is."""
    table = ranktable.load(job.rank_table, reader.files)
    try:
        index = ranktable.find(table, _me(job, table))
        _refuse_fewer(job, table)
        _refuse_other_host(job, table.servers[index])
    except ConfigError as error:
        # The platform makes the table anew when it has replaced a node; until then the old one is there.
        if is_later(job):
            start = f"restart {job.restart}; {RENEWED}" if job.restart else f"attempt {job.attempt}"
            msg = f"{error} (a table of an earlier {'start' if job.restart else 'attempt'}; this is {start})"
            raise ranktable.NotReadyError(msg) from None
        msg = f"rank table {job.rank_table}: {error}"
        raise ConfigError(msg) from None
    return table, index


def _me(job: Job, table: RankTable) -> ranktable.Container:
    """What is known of this container; also by what the job calls its node, where the table calls one of its own so."""
    named = {name for server in table.servers for name in (server.server_id, server.host_ip, server.container_ip)}
    host = (job.node.host,) if job.node.host and job.node.host in named else ()
    addresses, nodes = (*job.host_ips, *host), len(job.nodes)
    return ranktable.Container(job.instance_name, addresses, job.node_index, job.node.slots, job.table_in_order, job.host_ip, nodes)


def is_later(job: Job) -> bool:
    """Whether there was a start before, whose table may still be there."""
    return job.attempt > 1 or job.restart > 0


def _refuse_fewer(job: Job, table: RankTable) -> None:
    """Tables but ModelArts' know no pods: several on one host may be one entry there, which says nothing of whose devices are whose."""
    entries, nodes = len(table.servers), len(job.nodes)
    if entries < nodes:
        msg = (
            f"it has {entries} {'entry' if entries == 1 else 'entries'} for {nodes} nodes, expected one for each; where several of the "
            "job's containers share a host, only a table that names pods (group_list) can tell their devices apart"
        )
        raise ConfigError(msg)


def _refuse_other_host(job: Job, server: Server) -> None:
    """A replaced node keeps its pod's name and index: only the host tells that the table is still that of the attempt before."""
    if is_later(job) and job.host_ip and server.server_id and job.host_ip not in (server.server_id, server.host_ip):
        msg = f"it has this container on host {server.server_id}, but the host is {job.host_ip}"
        raise ConfigError(msg)


def own_path(job: Job) -> str:
    """Where a table is written that HCCL reads."""
    return join(attempt_dir(job), folders.RANK_TABLE)
