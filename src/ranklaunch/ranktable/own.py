"""Entry of this container in a rank table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.errors import ConfigError, counted
from ranklaunch.ranktable.model import NotReadyError, RankTable, Server


@dataclass(frozen=True)
class Container:
    """This container by the platform's description. addresses: its own and its host's, in this order; node: its index in the job.
    in_order: the platform's tables have the nodes in the job's order, so the index is a place in them. host_ip: the host's address
    among them; "" if unknown. nodes: of the job; 0 if unknown."""

    pod_name: str
    addresses: tuple[str, ...]
    node: int
    slots: int
    in_order: bool = True
    host_ip: str = ""
    nodes: int = 0


def find(table: RankTable, me: Container) -> int:
    """Return the index of this container's entry in table.servers.

    There are several ways to find the entry. All ways with an answer must agree, since a wrong entry means two processes with one rank.
    Raises ConfigError with the ways and their answers if they disagree. Raises NotReadyError if the table has names of containers, but
    not of this one: then the table is another job's, or from before a move of this container.
    """
    if table.version == "2.0":
        _refuse_more(table, me)
        return _by_position(table, me)
    ways = _ways(table, me)
    if not any(ways.values()) and _can_tell(table, me):
        raise NotReadyError(_not_ours(table, me))
    by_index = f"node index {me.node}"
    if me.node < len(table.servers) and _counts_nodes(table, me):
        ways[by_index] = [me.node]
    answers = {way: entries[0] for way, entries in ways.items() if len(entries) == 1}
    if [*answers] == [by_index]:
        _refuse_more(table, me)
    if not answers:
        msg = f"this container ({_described(me)}) is none of the table's {len(table.servers)} entries{_remedy(table, me)}"
        raise ConfigError(msg)
    if len(table.servers) > 1:
        _refuse_disagreement(answers)
    return next(iter(answers.values()))


def _refuse_disagreement(answers: Mapping[str, int]) -> None:
    if len(set(answers.values())) > 1:
        each = "; ".join(f"{way} is entry {i}" for way, i in answers.items())
        msg = f"the ways to find this container disagree: {each} (a table of an earlier attempt?)"
        raise ConfigError(msg)


def _ways(table: RankTable, me: Container) -> dict[str, list[int]]:
    """Return the entries that match this container, by name of the way. Pods on one host share its address: then no entry is certain."""
    addresses, pod = ", ".join(me.addresses), _public(me.pod_name)
    servers = list(enumerate(table.servers))
    return {
        f"pod name {me.pod_name}": [i for i, server in servers if server.pod_name and _public(server.pod_name) == pod],
        f"container address {addresses}": [i for i, server in servers if _is_of(me, server.container_ip)],
        f"host address {addresses}": [i for i, server in servers if _is_of(me, server.server_id) or _is_of(me, server.host_ip)],
    }


def _is_of(me: Container, address: str) -> bool:
    return bool(address) and address in me.addresses


def _refuse_more(table: RankTable, me: Container) -> None:
    """Raise ConfigError if the table has more entries than the job has nodes: then the node index is no position in the table."""
    if 0 < me.nodes < len(table.servers):
        entries = f"it has {len(table.servers)} entries for {counted(me.nodes, 'node')}"
        why = f"only the node index, {me.node}, tells which one is this container's ({_described(me)})"
        msg = f"{entries}, and {why}; set RANKLAUNCH_HOSTS and RANKLAUNCH_NODE"
        raise ConfigError(msg)


def _public(pod: str) -> str:
    """Return a pod's name in one form: ModelArts writes ma-job-... in the cluster and modelarts-job-... in its tables, or the reverse."""
    return re.sub(r"^ma-job(?=-)", "modelarts-job", pod)


def _can_tell(table: RankTable, me: Container) -> bool:
    """Return True if the table and the container have comparable names. A single address may be the host's or the container's."""
    if me.pod_name and any(server.pod_name for server in table.servers):
        return True
    if not any(map(_host_addresses, table.servers)):
        return False
    return bool(me.host_ip or (me.addresses and any(server.container_ip for server in table.servers)))


def _host_addresses(server: Server) -> list[str]:
    """Return the host's addresses in an entry. A server_id may be a name instead."""
    names = dict.fromkeys((server.server_id, server.host_ip))
    return [name for name in names if re.fullmatch(r"[0-9]+(\.[0-9]+){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+", name)]


def _not_ours(table: RankTable, me: Container) -> str:
    there = table.servers[min(me.node, len(table.servers) - 1)]
    names = {"pod name": there.pod_name, "container": there.container_ip, "host": there.host_ip or there.server_id}
    names_there = ", ".join(f"{what} {name}" for what, name in names.items() if name)
    return (
        f"the table is another job's, or older than this container: of its {len(table.servers)} entries none is this container's "
        f"({_described(me)}); the entry at this place has {names_there}"
    )


def _described(me: Container) -> str:
    return f"pod name {me.pod_name or 'unknown'}, addresses {', '.join(me.addresses) or 'unknown'}, node {me.node}"


def _counts_nodes(table: RankTable, me: Container) -> bool:
    """Return True if the index of a node is a position in the table."""
    return not _several_groups(table) and (me.in_order or len(table.servers) == 1 or not _has_addresses(table))


def _has_addresses(table: RankTable) -> bool:
    return any(server.container_ip for server in table.servers)


def _remedy(table: RankTable, me: Container) -> str:
    if me.in_order or not _has_addresses(table):
        return ""
    return ", and their order is not that of the nodes; set POD_IP by a fieldRef to status.podIP"


def _several_groups(table: RankTable) -> bool:
    """Return True for several groups with pods: then a node's index counts the pods of its group, and is no position in the table."""
    return sum(1 for group in table.source.get("group_list") or () if group.get("instance_list")) > 1


def _by_position(table: RankTable, me: Container) -> int:
    """Return the entry by the node index, for version 2.0 without names. Raises ConfigError unless the entry has as many devices."""
    if me.node < len(table.servers) and table.servers[me.node].size == max(1, me.slots):
        return me.node
    sizes = ", ".join(str(server.size) for server in table.servers[:8])
    msg = f"this is node {me.node} with {me.slots} devices, but the table's nodes (each starting at local_id 0) have {sizes} devices"
    raise ConfigError(msg)
