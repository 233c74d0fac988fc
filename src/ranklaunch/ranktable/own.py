"""Which part of a rank table is this container's."""

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
    """Return the index of this container's entry in table.servers. Every way with an answer must give the same one: a wrong slice means
    two processes with one rank. Raises ConfigError naming the ways and their answers, NotReadyError if the table names containers
    without this one: then the table is another job's, or of an earlier place."""
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
        msg = f"this container ({_told(me)}) is none of the table's {len(table.servers)}{_remedy(table, me)}"
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
    """Return the entries that a name or an address leads to. Pods on one host share its address, which then says nothing."""
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
    """An index counts the job's nodes: where the table has more, each of them may take itself for node 0."""
    if 0 < me.nodes < len(table.servers):
        entries = f"it has {len(table.servers)} entries for {counted(me.nodes, 'node')}"
        why = f"nothing but the node index, {me.node}, says which of them is this container's ({_told(me)})"
        msg = f"{entries}, and {why}: RANKLAUNCH_HOSTS and RANKLAUNCH_NODE say it"
        raise ConfigError(msg)


def _public(pod: str) -> str:
    """ModelArts calls one pod ma-job-... in the cluster and modelarts-job-... in its tables, or the other way round."""
    return re.sub(r"^ma-job(?=-)", "modelarts-job", pod)


def _can_tell(table: RankTable, me: Container) -> bool:
    """Return True if both sides name something comparable: one address alone may be the host's or the container's."""
    if me.pod_name and any(server.pod_name for server in table.servers):
        return True
    if not any(map(_host_addresses, table.servers)):
        return False
    return bool(me.host_ip or (me.addresses and any(server.container_ip for server in table.servers)))


def _host_addresses(server: Server) -> list[str]:
    """A server_id need not be an address."""
    named = dict.fromkeys((server.server_id, server.host_ip))
    return [name for name in named if re.fullmatch(r"[0-9]+(\.[0-9]+){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+", name)]


def _not_ours(table: RankTable, me: Container) -> str:
    there = table.servers[min(me.node, len(table.servers) - 1)]
    names = {"pod name": there.pod_name, "container": there.container_ip, "host": there.host_ip or there.server_id}
    names_there = ", ".join(f"{what} {name}" for what, name in names.items() if name)
    return (
        f"it is another job's or was made before this container was: of its {len(table.servers)} entries none is this container's "
        f"({_told(me)}); the one in this place has {names_there}"
    )


def _told(me: Container) -> str:
    return f"pod name {me.pod_name or 'unknown'}, addresses {', '.join(me.addresses) or 'unknown'}, node {me.node}"


def _counts_nodes(table: RankTable, me: Container) -> bool:
    return not _several_groups(table) and (me.in_order or len(table.servers) == 1 or not _has_addresses(table))


def _has_addresses(table: RankTable) -> bool:
    return any(server.container_ip for server in table.servers)


def _remedy(table: RankTable, me: Container) -> str:
    if me.in_order or not _has_addresses(table):
        return ""
    return ", whose order is not that of the nodes: set POD_IP by a fieldRef to status.podIP"


def _several_groups(table: RankTable) -> bool:
    """A node's index counts the pods of its own group: with several groups it is no position in the table."""
    return sum(1 for group in table.source.get("group_list") or () if group.get("instance_list")) > 1


def _by_position(table: RankTable, me: Container) -> int:
    """2.0 has no names: the node's ranks follow from its index, and local ids must bear that out."""
    if me.node < len(table.servers) and table.servers[me.node].size == max(1, me.slots):
        return me.node
    sizes = ", ".join(str(server.size) for server in table.servers[:8])
    msg = f"this is node {me.node} with {me.slots} devices, but the table's nodes (each starting at local_id 0) have {sizes} devices"
    raise ConfigError(msg)
