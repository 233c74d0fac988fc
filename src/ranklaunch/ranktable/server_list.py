"""Versions 1.0 and 1.2, with stated ranks. Version 1.2 also has super pods: servers that one super node joins."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Sequence

from ranklaunch.ranktable import check
from ranklaunch.ranktable.document import ADDRESS, DEVICE, LARGE, NAME, NUMBER, Document, Json, split
from ranklaunch.ranktable.model import RankTable, Server, SuperPod


def read(document: Document) -> RankTable:
    servers = _servers(document)
    _check(document, servers)
    check.addresses(document, servers, (server.server_id for server in servers))
    return document.finish(servers)


def read_with_super_pods(document: Document) -> RankTable:
    servers = _servers(document, super_devices=True)
    super_pods = _super_pods(document, servers)
    _check(document, servers)
    _check_super_devices(document, servers, super_pods)
    check.addresses(document, servers, (pod.super_pod_id for pod in super_pods), "super pods")
    return document.finish(servers, super_pods)


def _check(document: Document, servers: list[Server]) -> None:
    check.every_version(document, servers)
    check.once(document, "server", (server.server_id for server in servers))


def _servers(document: Document, super_devices: bool = False) -> list[Server]:
    listed = document.objects(document.data, "server_list", "")
    if document.data.get("group_list") is not None:  # some tables have both; own.py counts the groups later
        document.objects(document.data, "group_list", "")
    document.count(document.data, "server_count", len(listed), "", "servers")
    devices = document.lists(listed, "device", lambda n: f"server_list[{n}]")

    def place(n: int) -> str:
        return f"server_list[{n}].device"

    servers = [
        Server(*row)
        for row in zip(
            document.names(listed, "server_id", lambda n: f"server_list[{n}].server_id"),
            document.columns(devices, place, "device_id", DEVICE),
            document.columns(devices, place, "device_ip", ADDRESS, optional=True),
            _stated_ranks(document, devices, place),
            itertools.repeat(""),
            [_plain(server.get("container_ip")) for server in listed],
            [_plain(server.get("host_ip")) for server in listed],
            document.columns(devices, place, "super_device_id", LARGE) if super_devices else itertools.repeat(()),
        )
    ]
    servers.sort(key=lambda server: server.ranks[:1])
    return servers


def _stated_ranks(document: Document, devices: Sequence[list[Json]], place: Callable[[int], str]) -> list[tuple[int, ...]]:
    """Return the rank_id of every device. Ranks mostly count up through the table, so this case is checked first, in one step."""
    counted = range(sum(map(len, devices)))
    try:
        if list(map(operator.itemgetter("rank_id"), itertools.chain.from_iterable(devices))) == list(map(str, counted)):
            return split(counted, devices)
    except KeyError:
        pass
    return [tuple(int(rank) if rank else -1 for rank in ranks) for ranks in document.columns(devices, place, "rank_id", NUMBER)]


def _super_pods(document: Document, servers: list[Server]) -> list[SuperPod]:
    pods = []
    places: collections.Counter[str] = collections.Counter()
    known = {server.server_id for server in servers}
    for p, pod in enumerate(document.objects(document.data, "super_pod_list", "")):
        where = f"super_pod_list[{p}]"
        members = document.objects(pod, "server_list", where)
        ids = tuple(
            document.scalar(member.get("server_id"), f"{where}.server_list[{i}].server_id", NAME) for i, member in enumerate(members)
        )
        for server_id in ids:
            places[server_id] += 1
            if server_id and server_id not in known:
                document.problem(where, f"names server '{server_id}', which is not in server_list")
        pods.append(SuperPod(document.scalar(pod.get("super_pod_id"), f"{where}.super_pod_id", NAME), ids))
    for server_id in sorted(known):
        if places[server_id] != 1:
            document.problem("", f"server '{server_id}' is in {places[server_id] or 'no'} super pods, expected exactly one")
    return pods


def _check_super_devices(document: Document, servers: list[Server], super_pods: list[SuperPod]) -> None:
    """Report each super_device_id that two devices of one super pod have."""
    ids_by_server = {server.server_id: server.super_device_ids for server in servers}
    for pod in super_pods:
        ids = itertools.chain.from_iterable(ids_by_server.get(server_id, ()) for server_id in dict.fromkeys(pod.server_ids))
        check.once(document, "super_device_id", ids, f"super pod '{pod.super_pod_id}'")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else ""
