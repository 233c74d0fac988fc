"""Rows of platforms.toml: each plans its recorded case, needs all of its sign, and is read the same from a user's own file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import helpers
import pytest
from recorded_places import recorded_cases

from ranklaunch.adapters import platforms
from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.adapters.platforms.shared.base import Row, names_in
from ranklaunch.entrypoints import check
from ranklaunch.errors import ConfigError
from ranklaunch.fields import as_dict, names

CASES = recorded_cases()
TONY = {"TASK_INDEX": "1", "TASK_NUM": "2", "RANK": "1", "WORLD": "2"}
PJM = {"PJM_JOBID": "1", "PJM_NODE": "2", "PJM_O_NODEINF": "/f"}


def planned(env: dict[str, str], files: dict[str, str]) -> str:
    job = helpers.plan(env, files=files, method="spawn").job
    node = f"node {job.node_index} of {len(job.nodes)}, first {job.nodes[0].host}, {job.node.slots} slots on each"
    return f"{job.name}, attempt {job.attempt}: {node}"


def recognised(env: dict[str, str], files: dict[str, str]) -> str:
    return platforms.choose(helpers.reader(env, files)).NAME


@helpers.for_each(CASES)
def test_the_recorded_case_is_planned_as_it_says(case: dict[str, Any]) -> None:
    assert recognised(case["env"], case["files"]) == case["platform"]
    assert planned(case["env"], case["files"]) == case["plan"]


@helpers.for_each(CASES)
def test_all_of_the_sign_is_needed(case: dict[str, Any]) -> None:
    for condition in PLATFORMS.rows[case["platform"]].sign:
        if not condition.startswith(("!", "/")):
            left = {name: value for name, value in case["env"].items() if name not in names_in(condition)}
            assert recognised(left, case["files"]) != case["platform"], condition


def test_rows_that_count_have_a_case() -> None:
    golden = {path.name for path in (helpers.TESTS / "golden").iterdir()}
    rows = PLATFORMS.rows.keys() - {"modelarts", "local"}
    helpers.listed_in("tests/environments/places.toml", {case["platform"] for case in CASES} | (golden & rows), rows)


def test_a_list_of_hosts_may_have_gaps() -> None:
    """dstack leaves the line of a node empty that has no private address."""
    env = {"DSTACK_NODES_NUM": "3", "DSTACK_NODE_RANK": "1", "DSTACK_NODES_IPS": "10.0.0.4\n\n10.0.0.6", "DSTACK_RUN_NAME": "r"}
    assert planned(env, {}) == "r, attempt 1: node 1 of 3, first 10.0.0.4, 1 slots on each"


def test_the_user_may_say_that_a_place_has_one_node() -> None:
    env = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b", "RANKLAUNCH_NODES": "1"}
    assert planned(env, {}) == "tpu, attempt 1: node 0 of 1, first localhost, 1 slots on each"


def test_a_host_of_a_file_counts_once_with_its_slots() -> None:
    env = {"DSTACK_NODES_NUM": "2", "DSTACK_NODE_RANK": "1", "DSTACK_RUN_NAME": "r", "DSTACK_MPI_HOSTFILE": "/f"}
    assert planned(env, {"/f": "a slots=4\nb slots=2\na slots=4\n"}) == "r, attempt 1: node 1 of 2, first a, 2 slots on each"


# Refused


@pytest.mark.parametrize(
    ("env", "files", "words"),
    [
        ({"IRIS_TASK_ID": "/a/b/0", "IRIS_NUM_TASKS": "2"}, {}, "IRIS_ADVERTISE_HOST of task 0"),
        ({"_CONDOR_NPROCS": "2", "_CONDOR_PROCNO": "0"}, {}, "HTCondor names no other machine"),
        ({"DLROVER_MASTER_ADDR": "m:1", "NODE_NUM": "2", "NODE_RANK": "0"}, {}, "DLRover's own master"),
        ({"PE_HOSTFILE": "/f", "NHOSTS": "2", "JOB_ID": "1"}, {"/f": "a 8 q U\nb 8 q U\n", "/etc/hostname": "a"}, "qrsh -inherit -V $h"),
        ({"OAR_NODEFILE": "/f", "OAR_JOB_ID": "1"}, {"/f": "a\nb\n", "/etc/hostname": "a"}, "oarsh $h ranklaunch run"),
        ({"PJM_JOBID": "1", "PJM_NODE": "2", "PJM_O_NODEINF": "/f"}, {"/f": "a\nb\n", "/etc/hostname": "a"}, "mpiexec --map-by ppr:1:node"),
        ({**PJM, "PMIX_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, {"/f": "a\nb\n"}, "mpiexec has started several"),
        ({**TONY, "INIT_METHOD": "tcp://a b:1"}, {}, "first host in INIT_METHOD"),
        ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a,b", "MEGASCALE_NUM_SLICES": "2"}, {}, "MEGASCALE_NUM_SLICES=2"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1", "NODE_RANK": "1", "WORLD_SIZE": "2", "RANKLAUNCH_SLOTS": "8"}, {}, "RANKLAUNCH_NODES"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1", "NODE_RANK": "1", "WORLD_SIZE": "8"}, {}, "no device is seen here"),
        ({"OAR_NODEFILE": "/none", "OAR_JOB_ID": "1"}, {}, "OAR_NODEFILE=/none: there is no such file, or no host in it"),
        ({"PE_HOSTFILE": "/none", "NHOSTS": "2", "JOB_ID": "1", "RANKLAUNCH_NODE": "0"}, {}, "PE_HOSTFILE=/none (there is no such file"),
        ({"OAR_NODEFILE": "/f", "OAR_JOB_ID": "1"}, {"/f": "# hosts\na\n!\n"}, "/f, line 3: expected a host first"),
        ({"DET_ALLOCATION_ID": "1"}, {"/run/determined/info/rendezvous.json": ""}, "is not understood"),
        ({"BEAKER_JOB_ID": "j", "BEAKER_NODE_ID": "n", "BEAKER_REPLICA_RANK": "0"}, {}, "BEAKER_REPLICA_RANK numbers nodes"),
        ({"BT_GROUP_SIZE": "2", "BT_NODE_RANK": "1", "BT_LEADER_ADDR": "tcp://a:1"}, {}, "expected one host, HOST or HOST:PORT"),
        ({"NSML_RANK": "0", "NSML_WORLD_SIZE": "2", "NSML_HOST_RANK0": "a"}, {}, "NSML_HOST_RANK1"),
        ({"NSML_RANK": "0", "NSML_WORLD_SIZE": "2"}, {}, "NSML_HOST_RANK0"),
        ({"BT_GROUP_SIZE": "2", "BT_NODE_RANK": "2", "BT_LEADER_ADDR": "a"}, {}, "BT_NODE_RANK=2: expected 0 to 1"),
        ({}, {"/opt/ml/input/config/pod_resourceconfig.json": '{"ips": ["10'}, "is not understood"),
        ({}, {"/opt/ml/input/config/pod_resourceconfig.json": '{"ips": ["10.0.0.1", "10.0.0.2"]}'}, "none of RANKLAUNCH_NODE"),
    ],
)  # fmt: skip
def test_one_message_says_what_is_missing(env: dict[str, str], files: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        helpers.plan(env, files=files, method="spawn")
    (problem,) = caught.value.problems
    assert words in problem


# Rows of users' own

OWN = """
[[platform]]
name = "inhouse"
sign = ["ACME_JOB"]
nodes = ["ACME_NODES"]
node_index = ["ACME_INDEX"]
master = ["ACME_HEAD"]
"""
NODE = {"ACME_JOB": "j", "ACME_NODES": "2", "ACME_INDEX": "1", "ACME_HEAD": "h0:9000"}


def own(text: str, name: str = "/p.toml", **env: str) -> Any:
    return helpers.plan({**NODE, **env, "RANKLAUNCH_PLATFORM_FILE": name}, files={name: text}, method="spawn").job


def test_a_row_of_the_users_own_is_a_platform() -> None:
    if sys.version_info < (3, 11):
        with pytest.raises(ConfigError, match="does not read TOML"):
            own(OWN)
        return
    job = own(OWN)
    assert (job.platform, job.node_index, [node.host for node in job.nodes]) == ("inhouse", 1, ["h0", ""])
    assert own(OWN, RANKLAUNCH_PLATFORM="inhouse").platform == "inhouse"


def test_the_same_as_json_comes_before_what_is_shipped() -> None:
    row = {
        "name": "inhouse",
        "sign": ["ACME_JOB", "MA_NUM_HOSTS"],
        "nodes": ["ACME_NODES"],
        "node_index": ["ACME_INDEX"],
        "master": ["ACME_HEAD"],
    }
    assert own(json.dumps({"platform": [row]}), "/p.json", MA_NUM_HOSTS="2").platform == "inhouse"


def test_every_shipped_row_without_a_module_may_stand_in_a_file_of_a_users() -> None:
    rows = [row for row in PLATFORMS.rows.values() if not row.kind and not row.begins]
    plain = ({name: value for name, value in as_dict(row).items() if name in names(Row) and value} for row in rows)
    fields = [{**each, "name": f"own_{each['name']}"} for each in plain]
    assert len(rows) > 25
    assert (
        own(json.dumps({"platform": fields}), "/p.json", BT_GROUP_SIZE="2", BT_NODE_RANK="1", BT_LEADER_ADDR="a").platform == "own_baseten"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "RANKLAUNCH_PLATFORM_FILE=/p.json: "),
        ("{}", "expected a list of rows"),
        ("[[]]", "row 1: expected name"),
        ('{"platform": [1]}', 'row 1: expected name = "small_letters_and_digits" and sign = ["VARIABLE"]'),
        ('{"platform": [{"name": "x"}]}', "row 1: expected name"),
        ('{"platform": [{"name": "X Y", "sign": ["A"]}]}', "row 1: expected name"),
        ('{"platform": [{"name": "x", "sign": ["A"], "node": ["B"]}]}', "row 1 (x): unknown field 'node'"),
        ('{"platform": [{"name": "x", "sign": ["A"], "module": "whole"}]}', "row 1 (x): unknown field 'module'"),
        ('{"platform": [{"name": "x", "sign": ["A"], "nodes": "B"}]}', "row 1 (x): nodes: expected a list of texts"),
        ('{"platform": [{"name": "x", "sign": ["A ~ ("]}]}', "row 1 (x): 'A ~ (': "),
        ('{"platform": [{"name": "x", "sign": ["A"], "kills_after_s": true}]}', "row 1 (x): kills_after_s: expected a number"),
        ('{"platform": [{"name": "x", "sign": ["A"], "refuse": [{"when": ["B"]}]}]}', "row 1 (x): refuse: expected tables with when"),
        ('{"platform": [{"name": "x", "sign": ["A"], "refuse": [{"when": ["B"], "text": "t", "unless": ["b"]}]}]}', "refuse: unless:"),
        ('{"platform": [{"name": "slurm", "sign": ["A"]}]}', "slurm is the name of another platform"),
        ('{"platform": [{"name": "x", "sign": ["A"]}, {"name": "x", "sign": ["B"]}]}', "x is the name of another"),
        ('{"platform": [{"name": "x", "sign": [{"a": "b"}]}]}', "row 1 (x): sign: expected a list of texts"),
        ('{"platform": [{"name": "x", "sign": ["A"], "refuse": ["text"]}]}', "row 1 (x): refuse: expected tables"),
        ('{"platform": [{"name": "x", "sign": ["A"], "refuse": [{"when": [{}], "text": "t"}]}]}', "refuse: when: expected a list of texts"),
        ('{"platform": [{"name": "x", "sign": ["A ="]}]}', "row 1 (x): 'A =': expected NAME, A|B"),
        ('{"platform": [{"name": "x", "sign": ["!"]}]}', "row 1 (x): '!': expected NAME, A|B"),
        ('{"platform": [{"name": "x", "sign": ["A"], "nodes": ["A B"]}]}', "row 1 (x): nodes: 'A B': expected the name of a variable"),
        ('{"platform": [{"name": "x", "sign": ["A"], "nodes_like": ["B ~ [0-9]+"]}]}', "with the value in parentheses"),
        ('{"platform": [{"name": "x", "sign": ["A"], "nodes_like": ["B"]}]}', "'B': expected NAMES ~ REGEX"),
        ('{"platform": [{"name": "x", "sign": ["A"], "json_file": "/x"}]}', "json_file: expected a path from /"),
        ('{"platform": [{"name": "x", "sign": ["A"], "kills_after_s": -1}]}', "kills_after_s: expected seconds from 0"),
        ("[" * 100_000, "RANKLAUNCH_PLATFORM_FILE=/p.json: "),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        own(text, "/p.json")
    assert said in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        helpers.plan({"RANKLAUNCH_PLATFORM_FILE": "/nothing.json"})


def test_check_says_how_rows_read_the_environment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"name": "inhouse", "sign": ["ACME_JOB"], "nodes": ["ACME_NODES"], "node_index": ["ACME_INDEX"], "master": ["ACME_HEAD"]},
        {"name": "elsewhere", "sign": ["ACME_JOB", "ACME_SITE=2"]},
        {"name": "second", "sign": ["ACME_JOB"]},
    ]
    (tmp_path / "p.json").write_text(json.dumps({"platform": rows}), encoding="utf-8")
    env = {**NODE, "PATH": os.environ["PATH"], "RANKLAUNCH_PLATFORM_FILE": str(tmp_path / "p.json")}
    check.main(["--log-dir", str(tmp_path), "--method", "spawn", "--wait-s", "1", "--", "true"], env)
    printed = capfd.readouterr().out
    assert "note: place inhouse: nodes=2 [ACME_NODES], first_host=h0:9000 [ACME_HEAD], node_index=1 [ACME_INDEX]," in printed
    assert "note: place elsewhere is not recognised: sign 'ACME_SITE=2' does not hold" in printed
    assert "note: place second is recognised, but platform inhouse is set, or is tried before" in printed
