"""From text to a checked table. Every defect is found in one reading, each with its place, its value and what was expected."""

from __future__ import annotations

import collections
import ipaddress
import itertools
import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from ranklaunch.errors import ConfigError
from ranklaunch.files import Files
from ranklaunch.ranktable.model import VERSIONS, NotReadyError, RankTable, Server, SuperPod

MOST_BYTES = 256 * 1024 * 1024
MOST_RANKS = 4_000_000
SHOWN = 20  # problems of one kind that are listed one by one

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


class _Kind:
    """What a scalar must look like. few: the same few values come again and again."""

    def __init__(self, pattern: str, expected: str, few: bool = False) -> None:
        self.few = few
        self.match = re.compile(pattern).fullmatch
        self.match_or_none = re.compile(rf"(?:{pattern})?").fullmatch
        self.expected = expected


_NUMBER = _Kind(r"[0-9]{1,9}", "a whole number")
_DEVICE = _Kind(r"0|[1-9][0-9]{0,8}", "a device's number", few=True)
_LARGE = _Kind(r"[0-9]{1,19}", "a whole number")
_NAME = _Kind(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251}[A-Za-z0-9_])?", "a name or an address")
_ADDRESS = _Kind(rf"{_OCTET}(?:\.{_OCTET}){{3}}", "an IP address")

Json = dict[str, Any]
T = TypeVar("T")


def load(path: str, files: Files) -> RankTable:
    """Raises NotReadyError while waiting may help, ConfigError (every defect at once) when it cannot."""
    try:
        text = files.text(path, MOST_BYTES)
    except UnicodeDecodeError as error:
        msg = f"not UTF-8 text (half-written?): {error.reason} at byte {error.start}"
        raise NotReadyError(msg) from None
    except ValueError as error:
        msg = f"rank table {path}: {error}"
        raise ConfigError(msg) from None
    if text is None:
        msg = "no such file"
        raise NotReadyError(msg)
    return parse(text, path)


def parse(text: str, path: str) -> RankTable:
    """Raises NotReadyError while waiting may help, ConfigError (every defect at once) when it cannot."""
    data = _json(text, path)
    status = data.get("status")
    if status != "completed":
        raise NotReadyError(_progress(data, status))
    version = _version(data)
    if version not in _READERS:
        msg = f"rank table {path}: version is {_shown(data.get('version'))}, expected one of {', '.join(VERSIONS)}"
        raise ConfigError(msg)
    return _READERS[version](_Reading(path, version, data, text))


def _json(text: str, path: str) -> Json:
    if not text.strip():
        msg = "the file is empty"
        raise NotReadyError(msg)
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        msg = f"rank table {path}: nested too deeply to be a rank table"
        raise ConfigError(msg) from None
    except ValueError as error:  # a half-written file looks like this; only the deadline tells it from a damaged one
        msg = f"not JSON (half-written?): {error}"
        raise NotReadyError(msg) from None
    if not isinstance(data, dict):
        msg = f"rank table {path}: expected a JSON object, found {type(data).__name__}"
        raise ConfigError(msg)
    return data


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a value of JSON"
    raise ValueError(msg)


def _progress(data: Json, status: object) -> str:
    """What has been filled in so far: group_list tables grow while pods are placed."""
    groups = data.get("group_list")
    if not isinstance(groups, list):
        return f"status is {_shown(status)}, not 'completed'"
    seen = wanted = 0
    for group in groups:
        if isinstance(group, dict):
            listed = group.get("instance_list")
            seen += len(listed) if isinstance(listed, list) else 0
            number = str(group.get("instance_count", "0"))
            wanted += int(number) if _NUMBER.match(number) else 0
    return f"status is {_shown(status)}, not 'completed'; {seen} of {wanted} instances are in it"


def _version(data: Json) -> str:
    if "version" not in data and "group_list" in data:
        return "0.1"
    version = data.get("version")
    return str(version) if isinstance(version, (str, int, float)) else ""


class _Reading:
    """One reading of one table; collects defects and oddities."""

    def __init__(self, path: str, version: str, data: Json, text: str) -> None:
        self.path = path
        self.version = version
        self.data = data
        self.text = text
        self.warnings: list[str] = []
        self._problems: list[str] = []
        self._kinds: collections.Counter[str] = collections.Counter()

    def problem(self, where: str, what: str) -> None:
        """One defect. Of one kind (the same `what` up to its first value) only the first few are listed."""
        kind = re.split(r"[0-9'\"\[{]", what)[0]
        self._kinds[kind] += 1
        if self._kinds[kind] <= SHOWN:
            self._problems.append(f"rank table {self.path}: {where}{': ' if where else ''}{what}")

    def finish(self, servers: list[Server], super_pods: Sequence[SuperPod] = ()) -> RankTable:
        _check(self, servers)
        more = sum(max(0, number - SHOWN) for number in self._kinds.values())
        if more:
            self._problems.append(f"rank table {self.path}: and {more} more of these")
        if self._problems:
            raise ConfigError(self._problems)
        return RankTable(self.version, tuple(servers), tuple(super_pods), self.data, self.text, tuple(self.warnings))

    def objects(self, holder: Json, key: str, where: str) -> list[Json]:
        value = holder.get(key)
        if isinstance(value, list) and set(map(type, value)) <= {dict}:
            return value
        self.problem(where, f"{key} must be a list of objects, found {_shown(value)}")
        return []

    def lists(self, holders: Sequence[Json], key: str, where: Callable[[int], str]) -> list[list[Json]]:
        """objects() of every holder, checked at once."""
        found = [holder.get(key) for holder in holders]
        if set(map(type, found)) <= {list} and set(map(type, itertools.chain.from_iterable(found))) <= {dict}:  # type: ignore[arg-type]
            return found  # type: ignore[return-value]
        return [self.objects(holder, key, where(n)) for n, holder in enumerate(holders)]

    def columns(
        self, devices: Sequence[list[Json]], where: Callable[[int], str], key: str, kind: _Kind, optional: bool = False
    ) -> list[tuple[str, ...]]:
        """One key of every device of every server, as text. The whole column is checked at once; only when that fails is each value
        looked at, to say which is wrong. where: place of the n-th server's devices."""
        get = operator.methodcaller("get", key, "") if optional else operator.itemgetter(key)
        match = kind.match_or_none if optional else kind.match
        try:
            values = list(map(get, itertools.chain.from_iterable(devices)))
            if all(map(match, set(values) if kind.few else values)):
                return _split(values, devices)
        except (KeyError, TypeError):  # one lacks the key, or is not text
            pass
        return [
            tuple(self.scalar(item.get(key), f"{where(n)}[{i}].{key}", kind, optional) for i, item in enumerate(own))
            for n, own in enumerate(devices)
        ]

    def names(self, items: Sequence[Json], key: str, where: Callable[[int], str]) -> list[str]:
        """One key of every server or pod."""
        values = [item.get(key) for item in items]
        try:
            if all(map(_NAME.match, values)):  # type: ignore[arg-type]
                return values  # type: ignore[return-value]
        except TypeError:
            pass
        return [self.scalar(value, where(n), _NAME) for n, value in enumerate(values)]

    def scalar(self, value: object, where: str, kind: _Kind, optional: bool = False) -> str:
        """A scalar as text: platforms write numbers as text, people write them as numbers."""
        if optional and value in ("", None):
            return ""
        text = str(value) if type(value) in (str, int) else ""
        if kind.match(text) or (kind is _ADDRESS and _is_ipv6(text)):
            return text
        self.problem(where, f"must be {kind.expected}, found {_shown(value)}")
        return ""

    def count(self, holder: Json, key: str, found: int, where: str, what: str) -> None:
        stated = holder.get(key)
        if stated is not None and str(stated) != str(found):
            self.problem(where, f"{key} is {_shown(stated)}, but {found} {what} are listed")


def _groups(reading: _Reading) -> RankTable:
    """group_list: pods in no order, ranks by the number that ends the pod's name, groups as they stand."""
    groups = reading.objects(reading.data, "group_list", "")
    reading.count(reading.data, "group_count", len(groups), "", "groups")
    pods: list[Json] = []
    devices: list[list[Json]] = []
    for g, group in enumerate(groups):
        if str(group.get("device_count")) == "0" and not group.get("instance_list"):
            continue
        where = f"group_list[{g}]"
        instances = reading.objects(group, "instance_list", where)
        reading.count(group, "instance_count", len(instances), where, "instances")
        own = sorted(instances, key=lambda i: _ordinal(str(i.get("pod_name", ""))))
        lists = reading.lists(own, "devices", lambda n, own=own, where=where: f"{where} pod {own[n].get('pod_name')}")  # type: ignore[misc]
        reading.count(group, "device_count", sum(map(len, lists)), where, "devices")
        pods += own
        devices += lists

    def place(n: int) -> str:
        return f"pod {pods[n].get('pod_name')} devices"

    names = reading.names(pods, "pod_name", lambda n: "a pod's pod_name")
    servers = reading.names(pods, "server_id", lambda n: f"pod {pods[n].get('pod_name')} server_id")
    ids = reading.columns(devices, place, "device_id", _DEVICE)
    ips = reading.columns(devices, place, "device_ip", _ADDRESS, optional=True)
    ranks = _split(range(sum(map(len, devices))), devices)
    return reading.finish([Server(*row) for row in zip(servers, ids, ips, ranks, names)])


def _ordinal(name: str) -> tuple[int, str]:
    """Sort key: the number that ends a pod's name, so that worker-10 comes after worker-9."""
    number = re.search(r"([0-9]{1,18})$", name)
    return (int(number[1]) if number else -1, name)


def _servers(reading: _Reading) -> RankTable:
    """server_list of 1.0 and 1.2: ranks are stated."""
    listed = reading.objects(reading.data, "server_list", "")
    reading.count(reading.data, "server_count", len(listed), "", "servers")
    devices = reading.lists(listed, "device", lambda n: f"server_list[{n}]")

    def place(n: int) -> str:
        return f"server_list[{n}].device"

    servers = [
        Server(*row)
        for row in zip(
            reading.names(listed, "server_id", lambda n: f"server_list[{n}].server_id"),
            reading.columns(devices, place, "device_id", _DEVICE),
            reading.columns(devices, place, "device_ip", _ADDRESS, optional=True),
            _stated_ranks(reading, devices, place),
            itertools.repeat(""),
            [_plain(server.get("container_ip")) for server in listed],
            [_plain(server.get("host_ip")) for server in listed],
            reading.columns(devices, place, "super_device_id", _LARGE) if reading.version == "1.2" else itertools.repeat(()),
        )
    ]
    servers.sort(key=lambda server: server.ranks[:1])
    super_pods = _super_pods(reading, servers) if reading.version == "1.2" else ()
    return reading.finish(servers, super_pods)


def _stated_ranks(reading: _Reading, devices: Sequence[list[Json]], place: Callable[[int], str]) -> list[tuple[int, ...]]:
    """Usually they count up through the table; then nothing needs to be looked at one by one."""
    counted = range(sum(map(len, devices)))
    try:
        if list(map(operator.itemgetter("rank_id"), itertools.chain.from_iterable(devices))) == list(map(str, counted)):
            return _split(counted, devices)
    except KeyError:
        pass
    return [tuple(int(rank) if rank else -1 for rank in ranks) for ranks in reading.columns(devices, place, "rank_id", _NUMBER)]


def _split(values: Sequence[T], lists: Sequence[Sequence[object]]) -> list[tuple[T, ...]]:
    """A flat column in pieces as long as the lists."""
    ends = list(itertools.accumulate(map(len, lists)))
    return [tuple(values[start:end]) for start, end in zip([0, *ends], ends)]


def _super_pods(reading: _Reading, servers: list[Server]) -> list[SuperPod]:
    pods = []
    places: collections.Counter[str] = collections.Counter()
    known = {server.server_id for server in servers}
    for p, pod in enumerate(reading.objects(reading.data, "super_pod_list", "")):
        where = f"super_pod_list[{p}]"
        members = reading.objects(pod, "server_list", where)
        ids = tuple(
            reading.scalar(member.get("server_id"), f"{where}.server_list[{i}].server_id", _NAME) for i, member in enumerate(members)
        )
        for server_id in ids:
            places[server_id] += 1
            if server_id and server_id not in known:
                reading.problem(where, f"names server '{server_id}', which is not in server_list")
        pods.append(SuperPod(reading.scalar(pod.get("super_pod_id"), f"{where}.super_pod_id", _NAME), ids))
    for server_id in sorted(known):
        if places[server_id] != 1:
            reading.problem("", f"server '{server_id}' is in {places[server_id] or 'no'} super pods, expected exactly one")
    return pods


def _ranks(reading: _Reading) -> RankTable:
    """rank_list of 2.0: no servers; which ranks are whose follows from local_id, which starts at 0 on every node."""
    listed = reading.objects(reading.data, "rank_list", "")
    reading.count(reading.data, "rank_count", len(listed), "", "ranks")
    rows = [_row(reading, entry, f"rank_list[{i}]") for i, entry in enumerate(listed)]
    nodes: list[list[tuple[int, int, str]]] = []
    for row in sorted(rows):
        if row[1] == 0 or not nodes:
            nodes.append([])
        nodes[-1].append(row)
        if row[1] != len(nodes[-1]) - 1:
            reading.problem(
                "", f"rank {row[0]} has local_id {row[1]}, expected {len(nodes[-1]) - 1}: local ids count up from 0 on each node"
            )
    return reading.finish([_node_of(node) for node in nodes])


def _row(reading: _Reading, entry: Json, where: str) -> tuple[int, int, str]:
    rank = reading.scalar(entry.get("rank_id"), f"{where}.rank_id", _NUMBER)
    local = reading.scalar(entry.get("local_id"), f"{where}.local_id", _NUMBER)
    device = reading.scalar(entry.get("device_id"), f"{where}.device_id", _DEVICE)
    return (int(rank or -1), int(local or -1), device)


def _node_of(rows: list[tuple[int, int, str]]) -> Server:
    return Server(
        server_id="",
        device_ids=tuple(device for _, _, device in rows),
        device_ips=("",) * len(rows),
        ranks=tuple(rank for rank, _, _ in rows),
    )


_READERS: dict[str, Callable[[_Reading], RankTable]] = {"0.1": _groups, "1.0": _servers, "1.2": _servers, "2.0": _ranks}


def _check(reading: _Reading, servers: list[Server]) -> None:
    """What must hold in every version."""
    ranks = list(itertools.chain.from_iterable(server.ranks for server in servers))
    if not ranks:
        reading.problem("", "no device is in it")
    if len(ranks) > MOST_RANKS:
        reading.problem("", f"{len(ranks)} ranks, more than {MOST_RANKS}")
    if ranks != list(range(len(ranks))) and sorted(ranks) != list(range(len(ranks))):
        _check_ranks(reading, ranks)
    _check_devices(reading, servers)
    for server in servers:
        if not server.ranks and ranks:
            reading.problem("", f"server '{server.server_id}' has no devices")
    names = collections.Counter(server.pod_name for server in servers if server.pod_name)
    for name in sorted(name for name, number in names.items() if number > 1):
        reading.problem("", f"pod '{name}' is in it {names[name]} times")
    if reading.version in ("1.0", "1.2"):  # where pods are listed, two of them may share a server
        listed = collections.Counter(server.server_id for server in servers if server.server_id)
        for name in sorted(name for name, number in listed.items() if number > 1):
            reading.problem("", f"server '{name}' is in it {listed[name]} times")
    _warn_of_addresses(reading, servers)


def _check_ranks(reading: _Reading, ranks: list[int]) -> None:
    counted = collections.Counter(rank for rank in ranks if rank >= 0)
    for rank in sorted(rank for rank, number in counted.items() if number > 1):
        reading.problem("", f"rank {rank} is given {counted[rank]} times")
    missing = sorted(set(range(len(ranks))) - counted.keys())
    if missing:
        named = ", ".join(map(str, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
        reading.problem("", f"ranks are not 0 to {len(ranks) - 1}, each once: {named} missing")


def _check_devices(reading: _Reading, servers: list[Server]) -> None:
    of_server: dict[str, list[str]] = {}
    for n, server in enumerate(servers):
        of_server.setdefault(server.server_id or f"node {n}", []).extend(server.device_ids)
    for name, devices in of_server.items():
        if len(set(devices)) < len(devices):
            counted = collections.Counter(devices)
            twice = ", ".join(sorted(device for device, number in counted.items() if number > 1)[:SHOWN])
            reading.problem("", f"server '{name}' has devices more than once: {twice}")


def _warn_of_addresses(reading: _Reading, servers: list[Server]) -> None:
    """HCCL reaches devices of other servers by device_ip; on one server, and inside a super pod, it does without."""
    if reading.version not in ("0.1", "1.0") or len({server.server_id for server in servers}) < 2:
        return
    bare = sorted({server.server_id for server in servers if "" in server.device_ips})
    if bare:
        named = ", ".join(bare[:SHOWN])
        reading.warnings.append(f"no device_ip for some devices of {named}: devices of several servers reach each other by it")


def _is_ipv6(text: str) -> bool:
    try:
        return ":" in text and ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _plain(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, default=str)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."
