"""TrainJobs with and without the torch policy's variables."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan import Plan

PET = {
    "PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "t-node-0-0.t", "PET_MASTER_PORT": "29511",
    "HOSTNAME": "t-node-0-1", "JOB_COMPLETION_INDEX": "1",
}  # fmt: skip
PLAIN = {"HOSTNAME": "t-node-0-1", "JOB_COMPLETION_INDEX": "1", "RANKLAUNCH_NODES": "2"}
NAMES = {"/etc/hosts": "127.0.0.1 localhost\n10.244.0.9\tt-node-0-1.t.ns.svc.cluster.local\tt-node-0-1\n"}


def plan(env: dict[str, str], files: dict[str, str] | None = None, **more: str) -> Plan:
    given = {name: value for name, value in {**env, **more}.items() if value}
    return helpers.plan(given, files=files or {}, method="torchrun", platform="kubeflow_trainer")


def test_torch_policy() -> None:
    found = plan(PET)
    assert (found.job.name, found.job.node_index) == ("t", 1)
    assert [(node.host, node.slots) for node in found.job.nodes] == [("t-node-0-0.t", 4), ("t-node-0-1.t", 4)]
    process = found.processes[0]
    assert {"--master_addr=t-node-0-0.t", "--master_port=29511", "--nproc_per_node=4"} <= set(process.argv)
    assert {name for name in PET if name.startswith("PET_")} <= set(process.unset)


def test_plain_runtime() -> None:
    found = plan(PLAIN, NAMES, RANKLAUNCH_SLOTS="8")
    assert (found.job.name, found.job.node_index) == ("t", 1)
    assert [(node.host, node.slots) for node in found.job.nodes] == [("t-node-0-0.t", 8), ("t-node-0-1.t", 8)]


def test_a_job_of_the_training_operator() -> None:
    found = plan(PET, PET_MASTER_ADDR="x-master-0", HOSTNAME="x-worker-0", JOB_COMPLETION_INDEX="")
    assert [node.host for node in found.job.nodes] == ["x-master-0", ""]


@pytest.mark.parametrize(
    ("given", "devices", "slots"),
    [("auto", 2, 2), ("gpu", 2, 2), ("CPU", 0, 1), ("", 3, 3), ("2", 0, 2)],
)
def test_slots(given: str, devices: int, slots: int) -> None:
    found = plan(PET, {f"/dev/nvidia{i}": "" for i in range(devices)}, PET_NPROC_PER_NODE=given)
    assert [node.slots for node in found.job.nodes] == [slots, slots]
    assert found.warnings == ()


def test_processors_in_place_of_devices_are_a_warning() -> None:
    files = {f"/dev/davinci{i}": "" for i in range(8)}
    (warning,) = plan(PET, files, PET_NPROC_PER_NODE="96").warnings
    assert all(word in warning for word in ("PET_NPROC_PER_NODE=96", "8 devices", "numProcPerNode"))
    assert plan(PET, files, PET_NPROC_PER_NODE="96", RANKLAUNCH_SLOTS="8").warnings == ()


def test_the_users_word_comes_first() -> None:
    told = {
        "RANKLAUNCH_NODES": "3",
        "RANKLAUNCH_SLOTS": "1",
        "RANKLAUNCH_NODE": "2",
        "RANKLAUNCH_MASTER_ADDR": "m",
        "RANKLAUNCH_MASTER_PORT": "7",
    }
    found = plan(PET, **told)
    assert (len(found.job.nodes), found.job.node_index, found.job.master, found.job.node.slots) == (3, 2, "m", 1)
    assert "--master_port=7" in found.processes[0].argv


def test_one_node_is_not_told_of_a_port() -> None:
    assert plan(PET, PET_NNODES="1", PET_NODE_RANK="0", JOB_COMPLETION_INDEX="0", HOSTNAME="t-node-0-0").warnings == ()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"PET_NNODES": "1:4"}, ["PET_NNODES='1:4'"]),
        ({"PET_NODE_RANK": "2", "JOB_COMPLETION_INDEX": ""}, ["PET_NODE_RANK=2", "0 to 1"]),
        ({"PET_NODE_RANK": "0"}, ["PET_NODE_RANK='0'", "JOB_COMPLETION_INDEX='1'"]),
        ({"PET_NPROC_PER_NODE": "some"}, ["PET_NPROC_PER_NODE='some'"]),
        ({"PET_MASTER_ADDR": "a b"}, ["PET_MASTER_ADDR='a b'"]),
        ({"PET_MASTER_PORT": "x"}, ["PET_MASTER_PORT='x'"]),
        ({"PET_NNODES": ""}, ["PET_NNODES", "RANKLAUNCH_NODES", "numNodes"]),
    ],
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(PET, **env)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("without", ["PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"])
def test_one_variable_of_an_image_is_no_sign(without: str) -> None:
    env = {name: value for name, value in PET.items() if name.startswith("PET_") and name != without}
    assert helpers.plan(env).job.platform == "local"
