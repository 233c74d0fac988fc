"""The job's rank table, and this container's place there, for launchers that pass the table to their ranks."""

from __future__ import annotations

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared.base import in_attempt
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import RENEWED
from ranklaunch.verdict import folders

_SHARED = "where several of the job's containers share a host, only a table that names pods (group_list) can tell their devices apart"


def own_entry(job: Job, reader: Reader) -> tuple[ranktable.RankTable, int]:
    """Return the table, and which of its entries this container is. Raises NotReadyError for a table of an earlier start."""
    nodes = len(job.nodes)
    is_later = job.attempt > 1 or job.restart > 0  # the table of the start before may still be there
    table = ranktable.load(job.rank_table, reader.files)
    named = {name for server in table.servers for name in (server.server_id, server.host_ip, server.container_ip) if name}
    addresses = (*job.host_ips, *named.intersection((job.node.host,)))  # the job's name of its node, if the table has it too
    me = ranktable.Container(job.instance_name, addresses, job.node_index, job.node.slots, job.table_in_order, job.host_ip, nodes)
    try:
        index = ranktable.find(table, me)
        server = table.servers[index]
        if len(table.servers) < nodes:  # tables but ModelArts' know no pods: an entry for several does not say whose devices are whose
            entries = "1 entry" if len(table.servers) == 1 else f"{len(table.servers)} entries"
            msg = f"it has {entries} for {nodes} nodes, expected one for each; {_SHARED}"
            raise ConfigError(msg)
        # A replaced node keeps its pod's name and index: only the host tells that the table is still that of the attempt before.
        if is_later and job.host_ip and server.server_id and job.host_ip not in (server.server_id, server.host_ip):
            msg = f"it has this container on host {server.server_id}, but the host is {job.host_ip}"
            raise ConfigError(msg)
    except ConfigError as error:
        if not is_later:
            msg = f"rank table {job.rank_table}: {error}"
            raise ConfigError(msg) from None
        # The platform makes the table anew when it has replaced a node; until then the old one is there.
        when = f"start; this is restart {job.restart}; {RENEWED}" if job.restart else f"attempt; this is attempt {job.attempt}"
        msg = f"{error} (a table of an earlier {when})"
        raise ranktable.NotReadyError(msg) from None
    return table, index


def own_path(job: Job) -> str:
    """Return the path of the table that is written for HCCL."""
    return in_attempt(job, folders.RANK_TABLE)
