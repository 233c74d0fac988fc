"""ranklaunch ranktable: what each action prints, refuses and ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helpers
import pytest

from testbench.judges import formats

GROUPS = helpers.group_table([("j-worker-1", "192.0.2.2", "45"), ("j-worker-0", "192.0.2.1", "01")])


def call(action: str, *words: object) -> helpers.Result:
    return helpers.call("ranktable", action, *map(str, words))


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.json"
    path.write_text(GROUPS, encoding="utf-8")
    return path


def made(path: Path, *words: object) -> Path:
    result = call("make", *words, "--output", path)
    assert (result.code, result.out, result.err) == (0, "", "")
    return path


# Usage


def test_help_names_every_action() -> None:
    for words in ([], ["-h"], ["--help"]):
        result = helpers.call("ranktable", *words)
        assert result.code == 0
        assert all(f"\n  {action} " in result.out for action in ("show", "validate", "convert", "make", "diff"))
    assert call("show", "--help").code == 0


@helpers.for_each(
    [
        (["shaw"], "unknown action 'shaw': expected one of show, validate, convert, make, diff, did you mean 'show'?"),
        (["show"], "the following arguments are required: file"),
        (["show", "a", "b"], "unrecognized arguments: b"),
        (["diff", "a"], "the following arguments are required: new"),
        (["validate", "a", "--nodes", "0"], "argument --nodes"),
        (["convert", "a", "--to", "1.1"], "argument --to: invalid choice: '1.1'"),
        (["make", "--devices", "2"], "the following arguments are required: --hosts"),
        (["make", "--hosts", "a,b"], "no devices given: expected --devices or --hccn"),
        (["make", "--hosts", "a,b", "--devices", "x"], "--devices 'x': "),
        (["make", "--hosts", "a,b", "--devices", "1,2,3"], "--devices has 3 numbers for 2 hosts: expected one, or one for each"),
        (["make", "--hosts", "10.0.0.0/22", "--devices", "4096"], "4186112 devices of all hosts, more than the 4000000"),
        (["make", "--hosts", "a", "--devices", "1", "--hccn", "f"], "leave --devices and --device-ips out"),
        (["make", "--hosts", "a,b", "--hccn", "f"], "--hccn names 1 files for 2 hosts: expected one for each"),
        (["make", "--hosts", "a", "--hccn", "/no/such/file"], "--hccn /no/such/file: no such file, or it cannot be read"),
        (["make", "--hosts", "a,b", "--devices", "2", "--device-ips", "10.0.0.0/31"], "has too few addresses for 4 devices"),
        (["make", "--hosts", "a", "--devices", "1", "--output", "/dev/null/x"], "--output /dev/null/x: "),
        (["make", "--hosts", "../x", "--devices", "2"], "--hosts '../x': expected host names or IP addresses with commas between them"),
        (["make", "--hosts", "10.0.0.0/33", "--devices", "2"], "--hosts '10.0.0.0/33': expected a block of addresses"),
        (["make", "--hosts", "a", "--devices", "2", "--device-ips", "x"], "--device-ips 'x': expected a block of addresses"),
        (["make", "--hosts", "a", "--devices", "2", "--device-ips", "29.1.0.255/24"], "'29.1.0.255/24': expected a block of addresses"),
        (["make", "--hosts", "a", "--devices", "2", "--device-ips", "::/0"], "--device-ips '::/0': expected at most 1000000 addresses"),
        (["make", "--hosts", "a,a", "--devices", "2"], "rank table of these options: server 'a' lists devices more than once: 0, 1"),
        (["make", "--hosts", "10.0.0.1,10.0.0.1", "--devices", "2", "--device-ips", "29.1.0.0/24"], "lists devices more than once: 0, 1"),
        (["make", "--hosts", "a,a", "--devices", "2", "--to", "0.1"], "server 'a' lists devices more than once: 0, 1"),
        (["make", "--hosts", "a", "--devices", "0"], "rank table of these options: no device is listed"),
        (["make", "--hosts", "a,b", "--devices", "2,0"], "rank table of these options: server 'b' has no devices"),
    ]
)
def test_wrong_command_lines(words: list[str], expected: str) -> None:
    result = helpers.call("ranktable", *words)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "no such file"),
        ("", "the file is empty"),
        ("{", "not JSON (half-written?)"),
        ('{"status": "initializing"}', "status is \"initializing\", not 'completed'"),
        ('{"status": "completed", "version": "9"}', 'version is "9", expected one of 0.1, 1.0, 1.2, 2.0'),
        (GROUPS.replace('"5"', '"4"'), "server '192.0.2.2' lists devices more than once: 4"),
    ],
)
@pytest.mark.parametrize("action", ["show", "validate", "convert", "diff"])
def test_what_is_no_table(action: str, text: str | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    result = call(action, path, path) if action == "diff" else call(action, path)
    assert (result.code, result.out) == (78, "")
    assert f"rank table {path}: " in result.err
    assert expected in result.err


# Each action


def test_show(groups: Path) -> None:
    assert call("show", groups).out.splitlines() == [
        "version 0.1, 2 pods, 4 ranks",
        "rank  node  server     pod         device  device ip",
        "   0  0     192.0.2.1  j-worker-0  0       192.0.2.10",
        "   1  0     192.0.2.1  j-worker-0  1       192.0.2.11",
        "   2  1     192.0.2.2  j-worker-1  4       192.0.2.4",
        "   3  1     192.0.2.2  j-worker-1  5       192.0.2.5",
    ]


def test_show_says_what_is_odd(tmp_path: Path) -> None:
    path = made(tmp_path / "t.json", "--hosts", "a,b", "--devices", "1")
    warning = "warning: no device_ip for some devices of a, b: HCCL needs it between servers"
    assert call("show", path).out.splitlines()[-1] == warning
    assert call("validate", path).out.splitlines() == [f"{path}: version 1.0, 2 nodes, 2 ranks: valid", warning]


def test_validate(groups: Path) -> None:
    result = call("validate", groups, "--nodes", 2, "--devices", 2)
    assert (result.code, result.out, result.err) == (0, f"{groups}: version 0.1, 2 nodes, 4 ranks: valid\n", "")


def test_a_name_of_a_file_does_not_move_the_cursor(groups: Path) -> None:
    odd = groups.rename(groups.parent / "a\nb\x1b[2J.json")
    shown = f"{groups.parent}/a; b\\x1b[2J.json"
    assert call("validate", odd).out == f"{shown}: version 0.1, 2 nodes, 4 ranks: valid\n"
    refused = call("validate", f"{odd}.no")
    assert refused.err == f"ranklaunch: rank table {shown}.no: no such file\n"
    odd.write_text("1", encoding="utf-8")
    for refused in (call("validate", odd), call("make", "--hosts", "a", "--hccn", odd)):
        assert f"{shown}: " in refused.err
        assert refused.err.count("\n") == 1
    made(groups, "--hosts", "a", "--devices", 1)
    lost = call("convert", groups, "--output", f"{groups}/{odd.name}")
    assert lost.err.startswith(f"ranklaunch: --output {groups}/a; b\\x1b[2J.json: ")


def test_validate_says_everything_at_once(groups: Path) -> None:
    result = call("validate", groups, "--nodes", 3, "--devices", 8)
    assert result.code == 78
    assert "the table has 2 nodes, expected 3" in result.err
    assert "expected 8 devices on each node, but node 0 has 2, node 1 has 2" in result.err


def test_convert(groups: Path, tmp_path: Path) -> None:
    result = call("convert", groups)
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    assert data["version"] == "1.0"
    assert [[d["rank_id"] for d in server["device"]] for server in data["server_list"]] == [["0", "1"], ["2", "3"]]
    output = tmp_path / "out.json"
    assert call("convert", groups, "--to", "1.0", "--output", output).out == ""
    assert output.read_text(encoding="utf-8") == result.out
    assert output.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("source", "to"), [("groups", "1.2"), ("groups", "2.0"), ("1.0", "1.2"), ("1.0", "0.1")])
def test_convert_refuses_what_would_be_lost_or_invented(source: str, to: str, groups: Path, tmp_path: Path) -> None:
    path = groups if source == "groups" else made(tmp_path / "t.json", "--hosts", "a", "--devices", "1")
    result = call("convert", path, "--to", to)
    assert (result.code, result.out) == (78, "")
    assert f"cannot be written as {to}: " in result.err


def test_diff(groups: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.json"
    moved.write_text(GROUPS.replace("192.0.2.2", "192.0.2.3").replace('"5"', '"7"'), encoding="utf-8")
    assert call("diff", groups, groups) == helpers.Result(0, "", "")
    result = call("diff", groups, moved)
    assert (result.code, result.err) == (1, "")
    assert result.out.splitlines() == [
        "~ rank 2: 192.0.2.2 device 4 (192.0.2.4) -> 192.0.2.3 device 4 (192.0.2.4)",
        "~ rank 3: 192.0.2.2 device 5 (192.0.2.5) -> 192.0.2.3 device 7 (192.0.2.5)",
    ]


def test_diff_of_another_size_and_version(groups: Path, tmp_path: Path) -> None:
    smaller = made(tmp_path / "t.json", "--hosts", "192.0.2.1", "--devices", "1")
    lines = call("diff", groups, smaller).out.splitlines()
    assert lines[0] == "~ version 0.1 -> 1.0"
    assert [line[:8] for line in lines[1:]] == ["~ rank 0", "- rank 1", "- rank 2", "- rank 3"]
    assert [line[:8] for line in call("diff", smaller, groups).out.splitlines()[1:]] == ["~ rank 0", "+ rank 1", "+ rank 2", "+ rank 3"]


def test_make_from_the_servers_own_files(tmp_path: Path) -> None:
    files = [tmp_path / f"hccn{i}.conf" for i in range(2)]
    for i, file in enumerate(files):
        file.write_text("".join(f"address_{d}=29.1.{i}.{d + 1}\nnetmask_{d}=255.255.0.0\n" for d in (4, 5)), encoding="utf-8")
    result = call("make", "--hosts", "10.0.3.1,10.0.3.2", "--hccn", *files)
    assert json.loads(result.out)["server_list"][1] == {
        "server_id": "10.0.3.2",
        "device": [
            {"device_id": "4", "device_ip": "29.1.1.5", "rank_id": "2"},
            {"device_id": "5", "device_ip": "29.1.1.6", "rank_id": "3"},
        ],
    }
    files[1].write_text("nothing\n", encoding="utf-8")
    result = call("make", "--hosts", "10.0.3.1,10.0.3.2", "--hccn", *files)
    assert result.code == 78
    assert f"{files[1]}: no line address_N=IP; expected" in result.err


@pytest.mark.parametrize("version", ["1.0", "0.1"])
def test_made_is_valid_shown_and_the_same(version: str, tmp_path: Path) -> None:
    words = ("--hosts", "10.0.3.0/29", "--devices", "2,1,3,2,1,1", "--device-ips", "29.0.0.0/24", "--to", version)
    one, two = made(tmp_path / "one.json", *words), made(tmp_path / "two.json", *words)
    assert call("validate", one, "--nodes", 6).out == f"{one}: version {version}, 6 nodes, 10 ranks: valid\n"
    shown = call("show", one).out.splitlines()
    assert len(shown) == 12
    assert shown[-1].split()[-1] == "29.0.0.10"
    assert call("diff", one, two).code == 0
    converted = tmp_path / "converted.json"
    assert call("convert", one, "--output", converted).code == 0
    assert call("diff", one, converted).out == ("~ version 0.1 -> 1.0\n" if version == "0.1" else "")


# As JSON


def test_show_as_json_has_what_the_table_for_people_has(groups: Path) -> None:
    told = call("show", groups, "--format", "json").json
    assert judged(told, "ranktable") == {
        "schema": "ranklaunch.ranktable/1",
        "file": str(groups),
        "version": "0.1",
        "ranks": [
            {"rank": rank, "node": node, "server": server, "pod": f"j-worker-{node}", "device": device, "device_ip": address}
            for rank, node, server, device, address in (
                (0, 0, "192.0.2.1", "0", "192.0.2.10"), (1, 0, "192.0.2.1", "1", "192.0.2.11"),
                (2, 1, "192.0.2.2", "4", "192.0.2.4"), (3, 1, "192.0.2.2", "5", "192.0.2.5"),
            )
        ],
        "super_pods": [],
        "warnings": [],
        "problems": [],
    }  # fmt: skip


def test_an_hccn_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """Nor waited for."""
    for path, why in helpers.no_texts(tmp_path):
        result = call("make", "--hosts", "a", "--hccn", path)
        assert (result.code, result.out, result.err) == (2, "", f"ranklaunch: --hccn {path}: {why}\n")


def test_validate_as_json_has_every_problem_and_the_same_exit_code(groups: Path) -> None:
    result = call("validate", groups, "--nodes", "3", "--devices", "8", "--format", "json")
    told = judged(json.loads(result.out), "ranktable")
    assert (result.code, result.err, told["version"], told["ranks"]) == (78, "", None, [])
    assert told["problems"] == call("validate", groups, "--nodes", "3", "--devices", "8").err.replace("ranklaunch: ", "").splitlines()
    assert judged(call("validate", groups, "--format", "json").json, "ranktable")["problems"] == []


def test_diff_as_json_has_both_places(groups: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(helpers.group_table([("j-worker-1", "192.0.2.9", "45"), ("j-worker-0", "192.0.2.1", "0")]), encoding="utf-8")
    result = call("diff", groups, other, "--format", "json")
    told = judged(json.loads(result.out), "ranktable-diff")
    assert (result.code, told["versions"]) == (1, ["0.1", "0.1"])
    assert [change["rank"] for change in told["changes"]] == [1, 2, 3]
    assert told["changes"][2] == {"rank": 3, "before": place(groups, 3), "after": None}
    assert judged(call("diff", groups, groups, "--format", "json").json, "ranktable-diff")["changes"] == []


def place(table: Path, rank: int) -> object:
    return call("show", table, "--format", "json").json["ranks"][rank]


def judged(document: Any, name: str) -> Any:
    """What its schema allows."""
    formats.check(name, document)
    return document
