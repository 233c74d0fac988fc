"""TrainJobs with and without the torch policy's variables."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.adapters import platforms
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

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


def of_operator(*pods: str, leader: str = "", **more: str) -> list[Plan]:
    """Every pod of a PyTorchJob of the training operator, planned from its own environment."""
    leader = leader or pods[0]
    common = {"PET_MASTER_ADDR": leader, "MASTER_ADDR": leader, "PET_MASTER_PORT": "23456", "MASTER_PORT": "23456", **more}
    counts = {"PET_NNODES": str(len(pods)), "WORLD_SIZE": str(len(pods)), "PET_NPROC_PER_NODE": "auto", **common}
    places = [{"HOSTNAME": pod, "PET_NODE_RANK": str(i), "RANK": str(i)} for i, pod in enumerate(pods)]
    return [helpers.plan({**counts, **place}, files={"/dev/nvidia0": ""}) for place in places]


@pytest.mark.parametrize(
    ("pods", "leader", "name"),
    [
        (("x-master-0", "x-worker-0", "x-worker-1"), "", "x"),
        (("my-master-0-master-0", "my-master-0-worker-0"), "", "my-master-0"),
        (("x-master-0", "x-worker-0"), "x-master-0.ns.svc", "x"),
        # On the host's network the names are the machines'.
        (("gpu-a", "gpu-b"), "x-master-0", "x"),
        (("x-head", "x-other"), "x-head.ns", "x-head.ns"),
        (("gpu-a", "gpu-b"), "10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_job_of_the_training_operator(pods: tuple[str, ...], leader: str, name: str) -> None:
    plans = of_operator(*pods, leader=leader)
    assert {(found.job.platform, found.job.name) for found in plans} == {("kubeflow_trainer", name)}
    assert [found.job.node_index for found in plans] == list(range(len(pods)))
    assert {tuple(node.host for node in found.job.nodes) for found in plans} == {(leader or pods[0], *("",) * (len(pods) - 1))}
    assert all({f"--rdzv_id={name}", "--master_port=23456"} <= set(found.processes[0].argv) for found in plans)


@pytest.mark.parametrize(("written", "nodes"), [("2:2", 2), (" 2:2 ", 2), ("1:1", 1)])
def test_an_elastic_job_without_limits_of_its_own(written: str, nodes: int) -> None:
    assert len(plan(PET, PET_NNODES=written, PET_NODE_RANK="0", HOSTNAME="", JOB_COMPLETION_INDEX="").job.nodes) == nodes


@pytest.mark.parametrize(("each", "processes"), [("auto", "3"), ("4", "12")])
def test_an_elastic_job_whose_master_is_not_counted(each: str, processes: str) -> None:
    pods = ("x-master-0", "x-worker-0", "x-worker-1")
    counts = {"PET_NPROC_PER_NODE": each, "WORLD_SIZE": processes}
    with pytest.raises(ConfigError, match=r"PET_NNODES has 2 nodes, but by WORLD_SIZE=[0-9]+ the job has 3 pods: set RANKLAUNCH_NODES"):
        of_operator(*pods, PET_NNODES="2:2", **counts)
    assert len(of_operator(*pods, PET_NNODES="3:3", **counts)) == 3
    assert len(of_operator(*pods, PET_NNODES="2:2", RANKLAUNCH_NODES="3", **counts)) == 3


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
        ({"PET_NNODES": "1:4"}, ["PET_NNODES='1:4'", "elastic", "RANKLAUNCH_NODES", "pods"]),
        ({"PET_NNODES": "2:"}, ["PET_NNODES='2:'"]),
        ({"PET_NNODES": "x:x"}, ["PET_NNODES='x'", "whole number"]),
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


def test_one_node_of_torchtune_has_no_master() -> None:
    env = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "0", "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "t-node-0-0"}
    found = helpers.plan(env, method="torchrun")
    assert (found.job.platform, len(found.job.nodes), found.job.node.slots) == ("kubeflow_trainer", 1, 4)
    of_several = helpers.reader({**env, "PET_NNODES": "2"})
    assert platforms.choose(of_several).NAME == "indexed_job"


@pytest.mark.parametrize("without", ["PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"])
def test_one_variable_of_an_image_is_no_sign(without: str) -> None:
    env = {name: value for name, value in PET.items() if name.startswith("PET_") and name != without}
    assert platforms.choose(helpers.reader(env)).NAME == "local"
