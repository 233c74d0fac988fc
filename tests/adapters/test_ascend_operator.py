"""Jobs of the Ascend Operator: three frameworks' names for the same facts."""

from __future__ import annotations

import json

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

PYTORCH = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "RANK": "1", "MASTER_ADDR": "10.96.0.7", "MASTER_PORT": "2222"}
MINDSPORE = {
    "MS_WORKER_NUM": "16", "MS_LOCAL_WORKER": "8", "MS_NODE_RANK": "1", "MS_SCHED_HOST": "10.96.0.7", "MS_SCHED_PORT": "2222",
    "MS_ROLE": "MS_WORKER", "NPU_POD": "true",
}  # fmt: skip
TENSORFLOW = {"CM_WORKER_SIZE": "16", "CM_LOCAL_WORKER": "8", "CM_RANK": "1", "CM_CHIEF_IP": "10.96.0.7", "CM_CHIEF_PORT": "2222"}
HCCL = "/user/serverid/devindex/config/hccl.json"


def plan(files: dict[str, str] | None = None, method: str = "torchrun", **env: str) -> Plan:
    given = {"MINDX_TASK_ID": "6f1f0c52", "HOSTNAME": "job-worker-0", **env}
    return helpers.plan({name: value for name, value in given.items() if value}, files=files, method=method)


def refused(method: str = "torchrun", **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(method=method, **env)
    return str(caught.value)


@pytest.mark.parametrize("env", [PYTORCH, MINDSPORE, TENSORFLOW, {**MINDSPORE, "RANK": "7"}], ids=["torch", "mindspore", "tf", "stale"])
def test_facts(env: dict[str, str]) -> None:
    found = plan(**env)
    job = found.job
    assert (job.platform, job.name, job.master, job.node_index) == ("ascend_operator", "job", "10.96.0.7", 1)
    assert [node.slots for node in job.nodes] == [8, 8]
    assert job.accelerator == "npu"
    words = found.processes[0].argv
    assert {"--master_addr=10.96.0.7", "--master_port=2222", "--node_rank=1"} <= set(words)


@pytest.mark.parametrize(
    ("env", "nodes", "slots"),
    [
        ({"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "RANK": "0"}, 1, 1),
        ({"RANKLAUNCH_NODES": "3"}, 3, 8),
        ({"RANKLAUNCH_SLOTS": "4"}, 2, 4),
        ({"WORLD_SIZE": "", "LOCAL_WORLD_SIZE": "", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_SLOTS": "2"}, 2, 2),
        ({"WORLD_SIZE": "0", "LOCAL_WORLD_SIZE": "0", "RANKLAUNCH_NODES": "2"}, 2, 1),
    ],
)
def test_counts(env: dict[str, str], nodes: int, slots: int) -> None:
    found = plan(**{**PYTORCH, **env}).job
    assert [node.slots for node in found.nodes] == [slots] * nodes


@pytest.mark.parametrize("method", ["torchrun", "msrun", "ranktable"])
def test_a_mindspore_worker_alone(method: str) -> None:
    table = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")])])
    found = plan({HCCL: table, "/dev/davinci0": "", "/dev/davinci1": "", "/dev/davinci_manager": ""}, method, MINDX_SERVER_IP="10.0.0.2")
    assert [(node.host, node.slots) for node in found.job.nodes] == [("localhost", 2)]
    assert plan(method="torchrun", RANKLAUNCH_HOSTS="a,b", RANKLAUNCH_NODE="1").job.node.host == "b"


def test_the_users_word_comes_first() -> None:
    found = plan(**PYTORCH, RANKLAUNCH_MASTER_ADDR="m", RANKLAUNCH_MASTER_PORT="99", RANKLAUNCH_NODE="0", RANKLAUNCH_JOB_NAME="mine")
    assert (found.job.master, found.job.node_index, found.job.name) == ("m", 0, "mine")
    assert "--master_port=99" in found.processes[0].argv


@pytest.mark.parametrize(("pod", "name"), [("llm-x-scheduler-0", "llm-x"), ("host17", "6f1f0c52"), ("", "6f1f0c52")])
def test_name(pod: str, name: str) -> None:
    assert plan(**{**PYTORCH, "HOSTNAME": pod}).job.name == name


@pytest.mark.parametrize(
    ("env", "files"),
    [({"HostNetwork": "true"}, {}), ({}, {"/etc/hosts": "# Kubernetes-managed hosts file (host network).\n10.0.0.7 npu-a-worker-1\n"})],
)
def test_a_machine_may_be_called_like_a_pod(env: dict[str, str], files: dict[str, str]) -> None:
    job = plan(files, **{**PYTORCH, **env, "HOSTNAME": "npu-a-worker-1"}).job
    assert (job.name, job.instance_name) == ("6f1f0c52", "")


@pytest.mark.parametrize(
    ("env", "files", "address"),
    [
        ({"RANK": "0", "POD_IP": "10.1.0.5"}, {}, "10.1.0.5"),
        ({"RANK": "0", "HOSTNAME": "llm-master-0"}, {"/etc/hosts": "127.0.0.1 localhost\n10.1.0.6\tllm-master-0\n"}, "10.1.0.6"),
        ({"RANK": "0"}, {}, PYTORCH["MASTER_ADDR"]),
        ({"RANK": "0", "POD_IP": "10.1.0.5", "RANKLAUNCH_MASTER_ADDR": "m"}, {}, "m"),
        ({"RANK": "1", "POD_IP": "10.1.0.7"}, {}, PYTORCH["MASTER_ADDR"]),
    ],
)
def test_msrun_of_node_0_is_told_its_own_address(env: dict[str, str], files: dict[str, str], address: str) -> None:
    """It starts its scheduler where it finds the address, and nobody finds that of a Service."""
    found = helpers.plan({"MINDX_TASK_ID": "6f1f0c52", **PYTORCH, **env}, files=files, method="msrun")
    assert f"--master_addr={address}" in found.processes[0].argv


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"WORLD_SIZE": "12"}, ["WORLD_SIZE=12", "LOCAL_WORLD_SIZE=8", "multiple"]),
        ({"WORLD_SIZE": "many"}, ["WORLD_SIZE='many'"]),
        ({"RANK": "2"}, ["RANK=2", "0 to 1"]),
        ({"RANK": ""}, ["RANK", "RANKLAUNCH_NODE"]),
        ({"MASTER_ADDR": ""}, ["RANKLAUNCH_MASTER_ADDR", "MASTER_ADDR"]),
        ({"MASTER_ADDR": "a b"}, ["MASTER_ADDR='a b'"]),
        ({"MASTER_PORT": "0"}, ["MASTER_PORT='0'"]),
        ({"WORLD_SIZE": "", "LOCAL_WORLD_SIZE": ""}, ["RANKLAUNCH_NODES", "WORLD_SIZE"]),
        ({"REPLICA_TYPE": "Master"}, ["RANK=1", "REPLICA_TYPE=Master"]),
    ],
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    message = refused(**{**PYTORCH, **env})
    assert all(word in message for word in words), message


def test_a_scheduler_without_npus_is_refused_on_every_pod() -> None:
    scheduler = {"MS_ROLE": "MS_SCHED", "NPU_POD": "false", "MS_NODE_RANK": "0", "MS_LOCAL_WORKER": "0", "MS_WORKER_NUM": "0"}
    assert "NPU_POD=false" in refused("msrun", **{**MINDSPORE, **scheduler})
    assert "MS_NODE_RANK=0" in refused("msrun", **{**MINDSPORE, "MS_NODE_RANK": "0"})


def test_a_scheduler_with_npus_is_node_0() -> None:
    found = plan(method="msrun", **{**MINDSPORE, "MS_ROLE": "MS_SCHED", "MS_NODE_RANK": "0", "MS_SCHED_HOST": "10.244.0.5"})
    assert found.job.node_index == 0
    assert "--master_port=2222" in found.processes[0].argv


@pytest.mark.parametrize("index", [0, 1])
def test_place_in_the_rank_table(index: int) -> None:
    table = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2"), ("1", "3")])])
    counts = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": str(index), "XDL_IP": f"192.0.2.{index + 1}"}
    found = plan({HCCL: table}, "ranktable", **{**PYTORCH, **counts})
    assert [process.rank for process in found.processes] == [2 * index, 2 * index + 1]
    assert json.loads(table)["status"] == "completed"
