"""Rank tables as platforms write them: unordered, half-written, damaged in several places, or of a version that is not known."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch import ranktable
from ranklaunch.env.settings import rank_table_file
from ranklaunch.errors import ConfigError
from ranklaunch.ranktable import NotReadyError, Server
from ranklaunch.system.disk import DiskFiles

PATH = "/user/config/jobstart_hccl.json"
SMALL = helpers.group_table([("j-worker-1", "192.0.2.2", "45"), ("j-worker-0", "192.0.2.1", "01")])
SERVERS = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2")])], own_key={"deep": [None]})


def parse(data: Any) -> ranktable.RankTable:
    return ranktable.parse(data if isinstance(data, str) else json.dumps(data), PATH)


def changed(text: str, change: Any) -> Any:
    data = copy.deepcopy(json.loads(text))
    change(data)
    return data


def problems(data: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(data)
    start = f"rank table {PATH}: "
    assert all(problem.startswith(start) for problem in caught.value.problems)
    return [problem[len(start) :] for problem in caught.value.problems]


def test_pods_are_ranked_by_the_number_that_ends_their_name() -> None:
    names = [f"j-worker-{i}" for i in (10, 2, 0, 9, 1, 11, 3, 4, 8, 5, 7, 6)]
    table = parse(helpers.group_table([(name, f"192.0.2.{i}", "7") for i, name in enumerate(names)]))
    assert [pod.pod_name for pod in table.servers] == [f"j-worker-{i}" for i in range(12)]
    assert [pod.ranks for pod in table.servers] == [(i,) for i in range(12)]
    assert table.version == "0.1"
    assert table.size == 12


def test_devices_keep_their_order_and_physical_ids() -> None:
    table = parse(helpers.group_table([("w-1", "s1", "74"), ("w-0", "s0", "4567")]))
    assert table.servers[0].device_ids == ("4", "5", "6", "7")
    assert (table.servers[1].device_ids, table.servers[1].ranks) == (("7", "4"), (4, 5))


def test_groups_keep_their_order_and_empty_ones_do_not_count() -> None:
    one = json.loads(helpers.group_table([("a-1", "s1", "0"), ("a-0", "s0", "0")]))
    two = json.loads(helpers.group_table([("b-0", "s2", "1")]))
    none = json.loads(helpers.group_table([]))
    one["group_count"] = "3"
    one["group_list"] = [*two["group_list"], *none["group_list"], *one["group_list"]]
    assert [pod.pod_name for pod in parse(one).servers] == ["b-0", "a-0", "a-1"]


def test_two_pods_on_one_host_are_two_pods_and_one_server() -> None:
    table = parse(helpers.group_table([("w-1", "s0", "4567"), ("w-0", "s0", "0123"), ("w-2", "s1", "0")]))
    assert [(pod.pod_name, pod.size) for pod in table.servers] == [("w-0", 4), ("w-1", 4), ("w-2", 1)]
    written = json.loads(ranktable.for_hccl(table))
    assert [(server["server_id"], len(server["device"])) for server in written["server_list"]] == [("s0", 8), ("s1", 1)]
    assert [device["rank_id"] for device in written["server_list"][0]["device"]] == list("01234567")
    assert written["server_count"] == "2"


def test_version_1_is_written_from_groups() -> None:
    assert json.loads(ranktable.for_hccl(parse(SMALL))) == {
        "status": "completed",
        "version": "1.0",
        "server_count": "2",
        "server_list": [
            {
                "server_id": "192.0.2.1",
                "device": [
                    {"device_id": "0", "device_ip": "192.0.2.10", "rank_id": "0"},
                    {"device_id": "1", "device_ip": "192.0.2.11", "rank_id": "1"},
                ],
            },
            {
                "server_id": "192.0.2.2",
                "device": [
                    {"device_id": "4", "device_ip": "192.0.2.4", "rank_id": "2"},
                    {"device_id": "5", "device_ip": "192.0.2.5", "rank_id": "3"},
                ],
            },
        ],
    }


def test_what_is_written_can_be_read_again() -> None:
    table = parse(SMALL)
    again = parse(ranktable.for_hccl(table))
    assert [server[:4] for server in again.servers] == [pod[:4] for pod in table.servers]


def test_a_device_without_an_address_is_written_without() -> None:
    table = parse(changed(SMALL, lambda data: data["group_list"][0]["instance_list"][0]["devices"][0].pop("device_ip")))
    assert {"device_id": "4", "rank_id": "2"} in json.loads(ranktable.for_hccl(table))["server_list"][1]["device"]


def test_version_1_passes_through_byte_by_byte() -> None:
    text = SERVERS.replace(", ", ",\n\t") + "  \n"
    table = parse(text)
    assert table.version == "1.0"
    assert table.servers == (
        Server("192.0.2.1", ("0", "1"), ("198.51.100.1", "198.51.100.2"), (0, 1)),
        Server("192.0.2.2", ("0",), ("198.51.100.3",), (2,)),
    )
    assert ranktable.for_hccl(table) == text


@pytest.mark.parametrize("version", ["1.0", 1.0])
def test_version_1_may_be_a_number(version: object) -> None:
    assert parse(changed(SERVERS, lambda data: data.update(version=version))).version == "1.0"


def test_numbers_may_be_numbers() -> None:
    def change(data: dict[str, Any]) -> None:
        data["server_count"] = 2
        for server in data["server_list"]:
            for device in server["device"]:
                device.update(device_id=int(device["device_id"]), rank_id=int(device["rank_id"]))

    assert parse(changed(SERVERS, change)).size == 3


# Not ready: look again later


@helpers.for_each(
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("{", "not JSON"),
        (SMALL[:100], "not JSON"),
        ("\0" * 100, "not JSON"),  # a network's file system has the length before the text
        ("{}", "status is null, not 'completed'"),
        ('{"status":"initializing"}', 'status is "initializing"'),
        ('{"status":"Completed"}', 'status is "Completed"'),
        ('{"status":"token=hunter2"}', 'status is "token=***"'),
        (SMALL.replace("completed", "unknown"), 'status is "unknown"'),
    ]
)
def test_not_ready(text: str, seen: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        parse(text)
    assert seen in str(caught.value)


def test_what_is_not_there_or_not_readable() -> None:
    with pytest.raises(NotReadyError, match="no such file"):
        ranktable.load(PATH, helpers.MemoryFiles())
    with pytest.raises(NotReadyError, match="no permission to read the file"):
        ranktable.load(PATH, helpers.MemoryFiles({PATH: None}))
    with pytest.raises(ConfigError, match=f"rank table {PATH}: not a regular file"):
        ranktable.load(PATH, helpers.MemoryFiles({PATH: ValueError("not a regular file")}))


@helpers.numbers_have_a_limit
def test_a_number_of_thousands_of_digits_is_not_waited_for() -> None:
    with pytest.raises(ConfigError, match=f"rank table {PATH}: a number in it has thousands of digits$"):
        parse('{"status":"completed","server_count":' + "9" * 5000 + "}")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_table_in_utf_16_is_not_waited_for(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(f"\ufeff{SMALL}".encode(encoding))
    with pytest.raises(ConfigError, match="a text in UTF-16, expected UTF-8"):
        ranktable.load(str(path), DiskFiles())


@pytest.mark.parametrize("whole", [SMALL, SERVERS])
def test_a_truncated_table_is_never_anything_but_not_ready(whole: str) -> None:
    for end in range(len(whole)):
        with pytest.raises(NotReadyError):
            parse(whole[:end])


def test_a_truncated_file_is_never_anything_but_not_ready(tmp_path: Path) -> None:
    whole = SMALL.replace('"worker"', '"训练"').encode()
    path = tmp_path / "table.json"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(NotReadyError):
            ranktable.load(str(path), DiskFiles())


# Damaged: waiting would not help


@helpers.for_each(
    [
        ([], "expected a JSON object, found list"),
        ('"completed"', "expected a JSON object, found str"),
        ("1", "expected a JSON object, found int"),
        ("null", "expected a JSON object, found NoneType"),
        ("garbage", "expected a JSON object, found text that begins with 'g'"),
        ("\ufeff" + SMALL, "expected a JSON object, found text that begins with '\\ufeff'"),
        ({"status": ["completed"]}, 'status is ["completed"], expected a text'),
        ({"status": 0}, "status is 0, expected a text"),
        ({"status": "completed"}, "version is null, expected one of 0.1, 1.0, 1.2, 2.0"),
        ({"status": "completed", "version": "1.1"}, 'version is "1.1", expected one of'),
        ({"status": "completed", "version": "3.0"}, 'version is "3.0", expected one of'),
        ({"status": "completed", "version": []}, "version is [], expected one of"),
        ({"status": "completed", "group_list": None}, "group_list must be a list of objects, found null"),
        ({"status": "completed", "group_list": [1]}, "group_list must be a list of objects, found [1]"),
        ({"status": "completed", "group_list": []}, "no device is listed"),
        ({"status": "completed", "version": "1.0"}, "server_list must be a list of objects, found null"),
        ({"status": "completed", "version": "1.0", "server_list": []}, "no device is listed"),
        ({"status": "completed", "version": "1.2", "server_list": []}, "super_pod_list must be a list of objects, found null"),
        *(
            ({"status": "completed", "version": "1.0", "server_list": [], "group_list": groups}, "group_list must be a list of objects")
            for groups in (["x"], [1], [None], {"a": 1}, "completed")
        ),
        ({"status": "completed", "version": "2.0"}, "rank_list must be a list of objects, found null"),
    ]
)
def test_refused(data: Any, expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(data))


def test_every_defect_of_a_group_table_at_once() -> None:
    def damage(data: dict[str, Any]) -> None:
        group = data["group_list"][0]
        first, second = group["instance_list"]
        group["instance_count"] = "3"
        first["pod_name"] = second["pod_name"]
        first["server_id"] = second["server_id"]
        first["devices"][0] = {"device_id": "0", "device_ip": "192.0.2.300.x"}
        first["devices"][1] = {"device_id": None, "device_ip": ["192.0.2.1"]}
        data["group_list"].append({"instance_list": [{"pod_name": "a b", "server_id": True, "devices": "0,1"}]})

    assert problems(changed(SMALL, damage)) == [
        'group_count is "1", but 2 groups are listed',
        'group_list[0]: instance_count is "3", but 2 instances are listed',
        'group_list[1] pod a b: devices must be a list of objects, found "0,1"',
        'a pod\'s pod_name: must be a name or an address, found "a b"',
        "pod a b server_id: must be a name or an address, found true",
        "pod j-worker-0 devices[1].device_id: must be a device's number, found null",
        'pod j-worker-0 devices[0].device_ip: must be an IP address, found "192.0.2.300.x"',
        'pod j-worker-0 devices[1].device_ip: must be an IP address, found ["192.0.2.1"]',
        "server '192.0.2.1' lists devices more than once: 0",
        "server '' has no devices",
        "pod 'j-worker-0' is listed 2 times",
    ]


def test_every_defect_of_a_server_table_at_once() -> None:
    def damage(data: dict[str, Any]) -> None:
        one, two = data["server_list"]
        data["server_count"] = 7
        one["device"][0]["rank_id"] = "first"
        one["device"][1]["rank_id"] = "2"
        two["device"].append({"device_id": "0", "rank_id": -1})
        two["server_id"] = {}

    assert problems(changed(SERVERS, damage)) == [
        "server_count is 7, but 2 servers are listed",
        "server_list[1].server_id: must be a name or an address, found {}",
        'server_list[0].device[0].rank_id: must be a whole number, found "first"',
        "server_list[1].device[1].rank_id: must be a whole number, found -1",
        "rank 2 is listed 2 times",
        "ranks are not 0 to 3, each once: 0, 1, 3 missing",
        "server 'node 1' lists devices more than once: 0",
    ]


@pytest.mark.parametrize("ranks", [("0", "0", "1"), ("1", "2", "3"), ("0", "1", "3"), ("0", "1", "")])
def test_ranks_that_are_not_0_to_n(ranks: tuple[str, str, str]) -> None:
    table = helpers.server_table([("a", [("0", ranks[0]), ("1", ranks[1])]), ("b", [("0", ranks[2])])])
    assert any(problem.startswith("ranks are not 0 to 2, each once: ") for problem in problems(table))


def test_a_server_with_more_devices_than_a_node_has_processes() -> None:
    table = helpers.server_table([("a", [(str(n), str(n)) for n in range(4097)])])
    assert problems(table) == ["server 'a' has 4097 devices, more than 4096"]


STRANGE = [0, 1.5, True, None, [], {}, [[]], "", "x" * 1000, "a b", "$(x)", "é", "\0", 10**30, 1e400, -1]
KEYS = ("pod_name", "server_id", "devices", "instance_list", "instance_count", "device_id", "device_ip", "group_list")


@helpers.for_each([(key, value) for key in KEYS for value in STRANGE])
def test_values_of_the_wrong_kind(key: str, value: Any) -> None:
    """Wherever it stands, such a value is taken, refused with a short word, or not ready: it never surprises."""

    def replaced(data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value if name == key else replaced(each) for name, each in data.items()}
        return [replaced(each) for each in data] if isinstance(data, list) else data

    check(json.dumps(replaced(json.loads(SMALL))))


@helpers.for_each(
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"status":"completed","version":"1.0","server_list":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"status":"completed","a":' * 50_000 + "1" + "}" * 50_000,
        '{"status":"completed","version":"1.0","server_count":' + "9" * 5000 + ',"server_list":[]}',
        '{"status":"completed","version":' + "1" * 4000 + ',"server_list":[]}',
        '{"status":"completed","version":NaN}',
        '{"status":"completed","version":"1.0","server_count":1e999,"server_list":[{"server_id":"a","device":[]}]}',
        '{"status":"completed","version":"1.0","server_list":[{"server_id":"\\ud800","device":[]}]}',
        '{"status":"completed","version":"' + "v" * 100_000 + '"}',
        '{"status":"' + "s" * 100_000 + '"}',
        '{"status":"completed","status":"initializing"}',
    ]
)
def test_texts_that_are_meant_to_break_something(text: str) -> None:
    check(text)


def check(text: str) -> None:
    problems: tuple[str, ...] = ()
    try:
        table = parse(text)
        assert parse(ranktable.for_hccl(table)).size == table.size
    except NotReadyError:
        pass
    except ConfigError as error:
        problems = error.problems
    assert all(problem.startswith(f"rank table {PATH}: ") for problem in problems)


@pytest.mark.parametrize("key", ["version", "status"])
def test_messages_stay_short(key: str) -> None:
    with pytest.raises((ConfigError, NotReadyError)) as caught:
        parse({"status": "completed", key: "x" * 100_000})
    assert len(str(caught.value)) < 1000


def test_messages_about_a_pod_stay_short() -> None:
    def damage(data: dict[str, Any]) -> None:
        data["group_list"][0]["instance_list"][0].update(pod_name="x" * 50_000, server_id="?", devices=[{}] * 8)
        data["group_list"][0]["instance_list"][1].update(pod_name=["x" * 50_000], server_id="?", devices=5)

    assert max(map(len, problems(changed(SMALL, damage)))) < 300


@pytest.mark.one_python
def test_a_large_table_is_read_in_no_time() -> None:
    """10,000 nodes with 8 devices each, listed backwards."""
    pods = [(f"j-worker-{i}", f"10.{i >> 8}.{i & 255}.1", "01234567") for i in reversed(range(10_000))]
    data = json.loads(helpers.group_table(pods))
    for n, instance in enumerate(data["group_list"][0]["instance_list"]):
        for device in instance["devices"]:
            device["device_ip"] = f"29.{n >> 8}.{n & 255}.{device['device_id']}"
    table = parse(data)
    assert table.size == 80_000
    assert table.servers[9_999].ranks[7] == 79_999


# Where the table is


@pytest.mark.parametrize(
    ("value", "files", "expected"),
    [
        ("/user/config", {"/user/config/jobstart_hccl.json": ""}, "/user/config/jobstart_hccl.json"),
        ("/user/config/", {"/user/config/jobstart_hccl.json": ""}, "/user/config/jobstart_hccl.json"),
        ("/user/config", {}, "/user/config/jobstart_hccl.json"),
        ("/a/hccl.json", {"/a/hccl.json": ""}, "/a/hccl.json"),
        ("/a/hccl.json", {}, "/a/hccl.json"),
        ("/a/folder.json", {"/a/folder.json/jobstart_hccl.json": ""}, "/a/folder.json/jobstart_hccl.json"),
    ],
)
def test_path(value: str, files: dict[str, str], expected: str) -> None:
    assert rank_table_file(value, helpers.MemoryFiles(files)) == expected


def test_path_of_a_file_with_another_suffix() -> None:
    assert rank_table_file("/a/hccl.table", helpers.MemoryFiles({"/a/hccl.table": ""})) == "/a/hccl.table"
