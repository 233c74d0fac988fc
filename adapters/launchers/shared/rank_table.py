"""Rank table of the job, and this container's entry in the table, for launchers that pass the table to their ranks."""

from __future__ import annotations

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared.base import in_attempt
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import RENEWED
from ranklaunch.verdict import folders

_SHARED = "if several containers of the job share a host, only a table with pod names (group_list) assigns devices to containers"


def entry_of_node(job: Job, reader: Reader) -> tuple[ranktable.RankTable, int]:
    """Return the table, and the index of this container's entry. Raises NotReadyError for a table of an earlier start."""
    nodes = len(job.nodes)
    is_later = job.attempt > 1 or job.restart > 0  # the table may still be that of an earlier start
    table = ranktable.load(job.rank_table, reader.files)
    named = {name for server in table.servers for name in (server.server_id, server.host_ip, server.container_ip) if name}
    addresses = (*job.host_ips, *named.intersection((job.node.host,)))  # and the job's host name of this node, if the table has it
    container = ranktable.Container(job.instance_name, addresses, job.node_index, job.node.slots, job.table_in_order, job.host_ip, nodes)
    try:
        index = ranktable.find(table, container)
        server = table.servers[index]
        if len(table.servers) < nodes:  # only ModelArts' tables have pods: an entry for several containers does not divide the devices
            entries = "1 entry" if len(table.servers) == 1 else f"{len(table.servers)} entries"
            msg = f"it has {entries} for {nodes} nodes, expected one for each; {_SHARED}"
            raise ConfigError(msg)
        # A replaced node keeps the pod's name and index: only the host shows that the table is of an earlier attempt.
        if is_later and job.host_ip and server.server_id and job.host_ip not in (server.server_id, server.host_ip):
            msg = f"it has this container on host {server.server_id}, but the host is {job.host_ip}"
            raise ConfigError(msg)
    except ConfigError as error:
        if not is_later:
            msg = f"rank table {job.rank_table}: {error}"
            raise ConfigError(msg) from None
        # The platform writes a new table after it has replaced a node; until then the old table stays.
        when = f"start; this is restart {job.restart}; {RENEWED}" if job.restart else f"attempt; this is attempt {job.attempt}"
        msg = f"{error} (a table of an earlier {when})"
        raise ranktable.NotReadyError(msg) from None
    return table, index


def hccl_path(job: Job) -> str:
    """Return the path of the table that ranklaunch writes for HCCL."""
    return in_attempt(job, folders.RANK_TABLE)
