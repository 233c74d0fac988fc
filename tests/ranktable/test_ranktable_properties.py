"""What holds for every rank table: nothing is lost on the way to HCCL, and nothing damaged is taken for a table."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import helpers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranklaunch import ranktable
from ranklaunch.adapters.launchers.shared import route
from ranklaunch.errors import ConfigError
from ranklaunch.ranktable import Container, NotReadyError, RankTable, make
from ranklaunch.system.disk import DiskFiles

PATH = "/user/config/jobstart_hccl.json"


def parse(data: Any) -> RankTable:
    return ranktable.parse(data if isinstance(data, str) else json.dumps(data), PATH)


def by_rank(table: RankTable) -> dict[int, tuple[str, str, str]]:
    return {
        rank: (server.server_id, server.device_ids[i], server.device_ips[i])
        for server in table.servers
        for i, rank in enumerate(server.ranks)
    }


# Conversion


@st.composite
def group_tables(draw: st.DrawFn) -> dict[str, Any]:
    """As a platform writes them: pods in any order, sometimes two on a host, some without addresses, some with keys of their own."""
    hosts = draw(st.integers(1, 6))
    pods: list[dict[str, Any]] = []
    for host in range(hosts):
        devices = draw(st.permutations(range(16)))[: draw(st.integers(1, 16))]
        cut = draw(st.integers(1, len(devices)))
        for own in (devices[:cut], devices[cut:]):
            if own:
                extra = draw(st.dictionaries(st.sampled_from(["device_port", "backup_device_ip", "x"]), st.text(max_size=5)))
                listed = [{**extra, "device_id": str(d)} for d in own]
                if draw(st.booleans()):
                    for device in listed:
                        device["device_ip"] = f"10.{host}.0.{device['device_id']}"
                pods.append({"pod_name": f"job-worker-{len(pods)}", "server_id": f"192.0.2.{host}", "devices": listed})
    pods = draw(st.permutations(pods))
    group = {"group_name": "worker", "device_count": str(sum(len(p["devices"]) for p in pods)), "instance_count": str(len(pods))}
    return {"status": "completed", "group_count": "1", "group_list": [{**group, "instance_list": pods}]}


@settings(derandomize=True, max_examples=50, deadline=None)
@given(group_tables())
def test_every_rank_keeps_its_device_in_version_1(data: dict[str, Any]) -> None:
    table = parse(data)
    again = parse(ranktable.to_text(table, "1.0"))
    assert again.version == "1.0"
    assert by_rank(again) == by_rank(table)
    assert sorted(by_rank(table)) == list(range(table.size))
    check(again)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(group_tables())
def test_keys_that_are_not_known_are_kept(data: dict[str, Any]) -> None:
    written = json.loads(ranktable.for_hccl(parse(data)))
    devices = {(s["server_id"], d["device_id"]): d for s in written["server_list"] for d in s["device"]}
    for pod in data["group_list"][0]["instance_list"]:
        for device in pod["devices"]:
            now = dict(devices[pod["server_id"], device["device_id"]])
            now.pop("rank_id")
            assert now == device


# Damage

LEVELS = [{"net_layer": 0, "net_instance_id": "sp0", "rank_addr_list": [{"addr_type": "EID", "addr": "00df00c001", "ports": ["0/1"]}]}]
SERVERS = [("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2"), ("1", "3")])]


def version_12() -> str:
    data = json.loads(helpers.server_table(SERVERS))
    for server in data["server_list"]:
        for device in server["device"]:
            device["super_device_id"] = str(16777216 + int(device["rank_id"]))
    pods = [{"super_pod_id": "0", "server_list": [{"server_id": "192.0.2.1"}, {"server_id": "192.0.2.2"}]}]
    return json.dumps({**data, "version": "1.2", "super_pod_list": pods})


def version_20() -> str:
    ranks = [{"rank_id": r, "local_id": r % 2, "device_id": r % 2, "level_list": LEVELS} for r in range(4)]
    return json.dumps({"status": "completed", "version": "2.0", "rank_count": 4, "rank_list": ranks})


WHOLE = {
    "0.1": helpers.group_table([("j-worker-1", "192.0.2.2", "45"), ("j-worker-0", "192.0.2.1", "01")]),
    "1.0": helpers.server_table(SERVERS),
    "1.2": version_12(),
    "2.0": version_20(),
}


def check(table: RankTable) -> None:
    """Is it a table? Decided without a line of what read it."""
    ranks = [rank for server in table.servers for rank in server.ranks]
    assert sorted(ranks) == list(range(len(ranks)))
    assert ranks
    on_host: dict[object, list[int]] = {}
    blocks: dict[object, list[int]] = {}
    for n, server in enumerate(table.servers):
        blocks.setdefault(server.server_id or n, []).extend(server.ranks)
        assert len(server.device_ids) == len(server.device_ips) == len(server.ranks) > 0
        on_host.setdefault(server.server_id or n, []).extend(map(int, server.device_ids))
    assert all(len(set(devices)) == len(devices) for devices in on_host.values())
    assert all(sorted(ranks) == list(range(min(ranks), max(ranks) + 1)) for ranks in blocks.values())


def survives(text: str) -> None:
    try:
        table = parse(text)
    except (NotReadyError, ConfigError):
        return
    check(table)
    ranktable.for_hccl(table)


@pytest.mark.parametrize("version", WHOLE)
def test_whole_tables_are_tables(version: str) -> None:
    table = parse(WHOLE[version])
    assert (table.version, table.size) == (version, 4)
    check(table)


@pytest.mark.parametrize("version", WHOLE)
def test_a_truncated_table_is_never_taken(version: str) -> None:
    for end in range(len(WHOLE[version])):
        with pytest.raises(NotReadyError):
            parse(WHOLE[version][:end])


@pytest.mark.parametrize("version", WHOLE)
def test_no_single_bit_makes_a_wrong_table_or_a_surprise(version: str, tmp_path: Path) -> None:
    data = WHOLE[version].encode()
    path = tmp_path / "table.json"
    files = DiskFiles()
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            try:
                survives(flipped.decode())
            except UnicodeDecodeError:
                if at % 50 == 0:  # the same for each: a file is written for some
                    path.write_bytes(flipped)
                    with pytest.raises(NotReadyError, match="not UTF-8"):
                        ranktable.load(str(path), files)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(WHOLE)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.data(),
)
def test_any_value_anywhere_is_taken_or_refused(version: str, value: Any, data: st.DataObject) -> None:
    table = json.loads(WHOLE[version])
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, each in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(each, (dict, list)):
                walk(each)

    walk(table)
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    holder[key] = value
    survives(json.dumps(table))


# Defects, each with its place and its value


def changed(version: str, change: Any) -> Any:
    data = json.loads(WHOLE[version])
    change(data)
    return data


def device(data: Any, server: int, i: int) -> Any:
    return data["server_list"][server]["device"][i]


@helpers.for_each(
    [
        ("0.1", lambda d: d.update(group_count="2"), 'group_count is "2", but 1 groups are listed'),
        ("0.1", lambda d: d["group_list"][0].update(device_count="5"), 'group_list[0]: device_count is "5", but 4 devices are listed'),
        ("1.0", lambda d: d.update(server_count="3"), 'server_count is "3", but 2 servers are listed'),
        ("1.0", lambda d: device(d, 0, 1).update(device_id="0"), "server '192.0.2.1' lists devices more than once: 0"),
        (
            "1.0",
            lambda d: device(d, 1, 1).update(device_id="01"),
            'server_list[1].device[1].device_id: must be a device\'s number, found "01"',
        ),
        (
            "1.0",
            lambda d: (device(d, 0, 1).update(rank_id="3"), device(d, 1, 1).update(rank_id="1")),
            "server '192.0.2.1' has ranks 0, 3: HCCL takes only consecutive ranks of one server",
        ),
        (
            "0.1",
            lambda d: d["group_list"].append(
                {"instance_list": [{**d["group_list"][0]["instance_list"][1], "devices": [{"device_id": "2"}]}]}
            ),
            "server '192.0.2.1' has ranks 0, 1, 4: HCCL takes only consecutive ranks of one server",
        ),
        ("1.0", lambda d: device(d, 1, 1).update(rank_id="7"), "ranks are not 0 to 3, each once: 3 missing"),
        (
            "1.0",
            lambda d: device(d, 1, 0).update(device_ip="1.2.3"),
            'server_list[1].device[0].device_ip: must be an IP address, found "1.2.3"',
        ),
        ("1.0", lambda d: device(d, 1, 0).pop("device_id"), "server_list[1].device[0].device_id: must be a device's number, found null"),
        (
            "1.2",
            lambda d: device(d, 0, 0).pop("super_device_id"),
            "server_list[0].device[0].super_device_id: must be a whole number, found null",
        ),
        ("1.2", lambda d: d["super_pod_list"][0]["server_list"].pop(), "server '192.0.2.2' is in no super pods, expected exactly one"),
        (
            "1.2",
            lambda d: d["super_pod_list"].append(d["super_pod_list"][0]),
            "server '192.0.2.1' is in 2 super pods, expected exactly one",
        ),
        (
            "1.2",
            lambda d: d["super_pod_list"][0]["server_list"].append({"server_id": "x"}),
            "super_pod_list[0]: names server 'x', which is not in server_list",
        ),
        (
            "1.2",
            lambda d: device(d, 1, 0).update(super_device_id="16777216"),
            "super pod '0': super_device_id '16777216' is listed 2 times",
        ),
        ("1.0", lambda d: device(d, 1, 0).update(device_ip="198.51.100.1"), "device_ip '198.51.100.1' is listed 2 times"),
        (
            "0.1",
            lambda d: d["group_list"][0]["instance_list"][0]["devices"][0].update(device_ip="192.0.2.5"),
            "device_ip '192.0.2.5' is listed 2 times",
        ),
        ("2.0", lambda d: d.update(rank_count=5), "rank_count is 5, but 4 ranks are listed"),
        (
            "2.0",
            lambda d: d["rank_list"][1].update(local_id=2),
            "rank 1 has local_id 2, expected 1: local ids count up from 0 on each node",
        ),
        ("2.0", lambda d: d["rank_list"][1].update(device_id=0), "server 'node 0' lists devices more than once: 0"),
    ]
)
def test_a_defect_names_its_place_and_value(version: str, change: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(changed(version, change))
    assert f"rank table {PATH}: {expected}" in caught.value.problems


def two_super_pods(data: Any) -> None:
    """With the same super_device_ids in each."""
    data["super_pod_list"] = [{"super_pod_id": str(i), "server_list": [{"server_id": f"192.0.2.{i + 1}"}]} for i in (0, 1)]
    for i in (0, 1):
        device(data, 1, i)["super_device_id"] = device(data, 0, i)["super_device_id"]


def test_super_pods_number_their_devices_by_themselves() -> None:
    table = parse(changed("1.2", two_super_pods))
    assert [server.super_device_ids for server in table.servers] == [("16777216", "16777217")] * 2
    assert table.warnings == ()


def test_devices_of_several_super_pods_need_addresses() -> None:
    def without_addresses(data: Any) -> None:
        for i in (0, 1):
            device(data, 1, i).pop("device_ip")

    table = parse(changed("1.2", lambda d: (two_super_pods(d), without_addresses(d))))
    assert table.warnings == ("no device_ip for some devices of 192.0.2.2: HCCL needs it between super pods",)
    assert parse(changed("1.2", without_addresses)).warnings == ()


def test_ranks_within_a_servers_block_are_in_any_order() -> None:
    table = parse(changed("1.0", lambda d: (device(d, 0, 0).update(rank_id="1"), device(d, 0, 1).update(rank_id="0"))))
    assert [server.ranks for server in table.servers] == [(1, 0), (2, 3)]


def test_many_defects_of_one_kind_are_counted() -> None:
    def change(data: Any) -> None:
        data["group_list"][0]["instance_list"][0]["devices"] = [{"device_id": str(i), "device_ip": "x"} for i in range(100)]

    with pytest.raises(ConfigError) as caught:
        parse(changed("0.1", change))
    assert len(caught.value.problems) < 30
    assert caught.value.problems[-1] == f"rank table {PATH}: 80 more problems of these kinds"


@pytest.mark.parametrize(("old", "new"), [("1.0", "1.2"), ("1.2", "1.0"), ("2.0", "1.0"), ("0.1", "1.2"), ("0.1", "2.0"), ("1.0", "0.1")])
def test_conversions_that_would_lose_or_invent_are_refused(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"of version {old} cannot be written as {new}: "):
        ranktable.to_text(parse(WHOLE[old]), new)


@pytest.mark.parametrize("version", ["1.0", "1.2", "2.0"])
def test_what_hccl_reads_passes_through(version: str) -> None:
    text = WHOLE[version].replace(", ", ",\n ")
    assert ranktable.for_hccl(parse(text)) == text


# Which entry is this container's

PODS = WHOLE["0.1"]
SHARED = helpers.group_table([("j-worker-0", "192.0.2.1", "01"), ("j-worker-1", "192.0.2.1", "23")])
CONTAINERS = WHOLE["1.0"].replace('"server_id": "192.0.2.2"', '"server_id": "b", "container_ip": "10.0.0.2", "host_ip": "192.0.2.2"')
GROUPS = json.dumps(
    {
        "status": "completed",
        "group_list": [
            json.loads(helpers.group_table([("j-ps-0", "192.0.2.9", "0")]))["group_list"][0],
            json.loads(PODS)["group_list"][0],
        ],
    }
)


@helpers.for_each(
    [
        (PODS, Container("j-worker-1", (), 1, 2), 1),
        (PODS, Container("j-worker-1", ("192.0.2.2",), 1, 2), 1),
        (PODS, Container("other", ("192.0.2.2",), 1, 2), 1),
        (PODS, Container("", (), 1, 2), 1),
        (PODS, Container("j-worker-1", (), 7, 2), 1),
        (SHARED, Container("j-worker-1", ("192.0.2.1",), 1, 2), 1),
        (SHARED, Container("", ("192.0.2.1",), 1, 2), 1),
        (CONTAINERS, Container("", ("10.0.0.2",), 1, 2), 1),
        (CONTAINERS, Container("", ("192.0.2.2",), 1, 2), 1),
        (GROUPS, Container("j-worker-1", ("192.0.2.2",), 1, 2), 2),
        (GROUPS, Container("j-ps-0", (), 0, 1), 0),
        (WHOLE["2.0"], Container("", (), 1, 2), 1),
        (PODS, Container("j-worker-1", (), 0, 2), "pod name j-worker-1 is entry 1; node index 0 is entry 0"),
        (PODS, Container("j-worker-1", ("192.0.2.1",), 1, 2), "host address 192.0.2.1 is entry 0"),
        (CONTAINERS, Container("", ("10.0.0.2",), 0, 2), "container address 10.0.0.2 is entry 1"),
        (PODS, Container("", (), 5, 2), "(pod name unknown, addresses unknown, node 5) is none of the table's 2"),
        (GROUPS, Container("", (), 1, 2), "is none of the table's 3"),
        (CONTAINERS, Container("", ("10.0.0.2",), 0, 2, in_order=False), 1),
        (CONTAINERS, Container("", ("192.0.2.2",), 0, 2, in_order=False), 1),
        (PODS, Container("", (), 1, 2, in_order=False), 1),
        (PODS, Container("j-worker-1", (), 0, 2, in_order=False), "pod name j-worker-1 is entry 1; node index 0 is entry 0"),
        (CONTAINERS, Container("", (), 0, 2, in_order=False), "POD_IP"),
        (WHOLE["2.0"], Container("", (), 1, 8), "this is node 1 with 8 devices"),
        (WHOLE["2.0"], Container("", (), 2, 2), "this is node 2 with 2 devices"),
        (PODS, Container("j-worker-1", (), 0, 2, in_order=False, nodes=1), "pod name j-worker-1 is entry 1; node index 0 is entry 0"),
        (PODS, Container("", (), 0, 2, nodes=1), "it has 2 entries for 1 node, and only the node index, 0, tells which"),
        (WHOLE["2.0"], Container("", (), 0, 2, nodes=1), "it has 2 entries for 1 node, and only"),
        (PODS, Container("j-worker-0", (), 0, 2, nodes=1), 0),
    ]
)
def test_own_entry(text: str, me: Container, expected: int | str) -> None:
    if isinstance(expected, int):
        assert ranktable.find(parse(text), me) == expected
        return
    with pytest.raises(ConfigError) as caught:
        ranktable.find(parse(text), me)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "me", "said"),
    [
        (PODS, Container("k-worker-1", ("192.0.2.7",), 1, 2, host_ip="192.0.2.7"), "pod name j-worker-1, host 192.0.2.2"),
        (PODS, Container("k-worker-1", (), 1, 2), "(pod name k-worker-1, addresses unknown, node 1)"),
        (PODS, Container("", ("192.0.2.7",), 1, 2, host_ip="192.0.2.7"), "addresses 192.0.2.7, node 1"),
        (PODS, Container("k-worker-7", (), 7, 2), "pod name j-worker-1"),
        (GROUPS, Container("x", (), 1, 2), "of its 3 entries none is this container's"),
        (CONTAINERS, Container("", ("10.0.0.7",), 1, 2), "container 10.0.0.2, host 192.0.2.2"),
        (WHOLE["1.0"], Container("x-1", ("192.0.2.7",), 1, 2, host_ip="192.0.2.7"), "host 192.0.2.2"),
    ],
)
def test_a_table_of_others_is_not_ready(text: str, me: Container, said: str) -> None:
    """The index alone is no proof where the table names its containers, and this one is none of them."""
    with pytest.raises(NotReadyError) as caught:
        ranktable.find(parse(text), me)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "me"),
    [
        (PODS.replace("j-worker", "modelarts-job-5d-worker"), Container("ma-job-5d-worker-1", (), 1, 2)),
        (PODS.replace("j-worker", "ma-job-5d-worker"), Container("modelarts-job-5d-worker-1", ("192.0.2.7",), 1, 2)),
        (PODS.replace('"server_id": "192.0.2.', '"server_id": "host'), Container("", ("192.0.2.7",), 1, 2, host_ip="192.0.2.7")),
        (WHOLE["1.0"], Container("x-1", ("10.0.0.7",), 1, 2)),  # the container's address, where the table has those of hosts
    ],
    ids=["public", "within the cluster", "hosts by name", "another kind of address"],
)
def test_what_is_no_contradiction(text: str, me: Container) -> None:
    assert ranktable.find(parse(text), me) == 1


# Making


def test_hccn_conf() -> None:
    text = (
        "\ufeff# made by hccn_tool\naddress_1=29.1.0.2\nnetmask_1=255.255.0.0\n\n address_0 = 29.1.0.1 \naddress_10=29.1.0.3\nsend_arp=x\n"
    )
    assert make.read_hccn(text, "f") == [("0", "29.1.0.1"), ("1", "29.1.0.2"), ("10", "29.1.0.3")]
    with pytest.raises(ConfigError, match="no line address_N=IP"):
        make.read_hccn("netmask_0=1\n", "f")
    with pytest.raises(ConfigError, match=r"f: 'address_0=29.1.0': "):
        make.read_hccn("address_0=29.1.0\n", "f")


@pytest.mark.parametrize(
    ("block", "most", "expected"),
    [
        ("10.0.0.0/30", None, ["10.0.0.1", "10.0.0.2"]),
        ("10.0.0.4/31", None, ["10.0.0.4", "10.0.0.5"]),
        ("10.0.0.0/8", 2, ["10.0.0.1", "10.0.0.2"]),
        ("2001:db8::/126", None, ["2001:db8::1", "2001:db8::2", "2001:db8::3"]),
    ],
)
def test_addresses(block: str, most: int | None, expected: list[str]) -> None:
    assert list(make.addresses(block, most)) == expected


@pytest.mark.parametrize("block", ["10.0.0.1/24", "10.0.0.0/33", "x/24", "10.0.0.0/8"])
def test_blocks_that_are_none(block: str) -> None:
    with pytest.raises(ValueError, match="addresses"):
        make.addresses(block)


# The topology of route planning

TOPOLOGY = json.dumps({"status": "completed", "topology": {"ToR": ["训练", 1]}})


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def topology(text: str | ValueError | None) -> str:
    files: dict[str, Any] = {} if text is None else {"/t": text}
    return route.topology_text("/t", helpers.reader(files=files))


@pytest.mark.parametrize("text", [TOPOLOGY, f"\n {TOPOLOGY}", packed(TOPOLOGY), f"{packed(TOPOLOGY)}\n"])
def test_topology(text: str) -> None:
    assert json.loads(topology(text)) == json.loads(TOPOLOGY)


NOT_UTF_8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, "no such file"),
        ("", "half-written"),
        (TOPOLOGY[:20], "half-written"),
        ("[]", "half-written"),
        (packed("[]"), "half-written"),
        ("garbage!", "half-written"),
        (packed(TOPOLOGY).replace("H4sI", "AAAA"), "half-written"),
        (TOPOLOGY.replace("completed", "initializing"), "status is 'initializing'"),
        (packed("{}"), "status is None"),
        (NOT_UTF_8, "not UTF-8"),
        (ValueError("not a regular file"), "not a regular file"),
        *((packed(TOPOLOGY)[:end], "half-written") for end in range(1, len(packed(TOPOLOGY)) - 4, 7)),
    ],
)
def test_topology_that_is_not_there_yet(text: str | ValueError | None, seen: str) -> None:
    with pytest.raises(NotReadyError, match=seen):
        topology(text)


def test_a_server_stands_in_server_list_once() -> None:
    """Two pods on one host are one server to HCCL, with the devices of both."""
    entry = {"server_id": "10.0.0.1", "device": [{"device_id": "0", "device_ip": "192.0.2.1", "rank_id": "0"}]}
    other = {"server_id": "10.0.0.1", "device": [{"device_id": "1", "device_ip": "192.0.2.2", "rank_id": "1"}]}
    text = json.dumps({"status": "completed", "version": "1.0", "server_count": "2", "server_list": [entry, other]})
    with pytest.raises(ConfigError, match=r"server '10\.0\.0\.1' is listed 2 times"):
        ranktable.parse(text, "table")
