"""Volcengine, PAI DLC, OpenPAI and Vertex AI, and which platform an environment is taken for where several could claim it."""

from __future__ import annotations

import json
from typing import Any

import helpers
import pytest

from ranklaunch.adapters.platforms import PLATFORMS, choose
from ranklaunch.env.job import Job
from ranklaunch.errors import ConfigError

VOLCENGINE = {
    "MLP_TASK_ID": "t-1", "MLP_ROLE": "WORKER", "MLP_ROLE_INDEX": "1", "MLP_WORKER_NUM": "2", "MLP_WORKER_GPU": "8",
    "MLP_WORKER_ALL_HOSTS": "a,b", "MLP_WORKER_0_HOST": "a",
}  # fmt: skip
PAI_DLC = {"MASTER_ADDR": "dlc18is-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1", "NPROC_PER_NODE": "8"}
OPENPAI = {
    "PAI_JOB_NAME": "j", "PAI_TASK_ROLE_LIST": "worker", "PAI_CURRENT_TASK_ROLE_NAME": "worker", "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1", "PAI_HOST_IP_worker_0": "a", "PAI_HOST_IP_worker_1": "b",
    "PAI_RESOURCE_worker": "8,16,1024,64",
}  # fmt: skip
SLURM = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "a,b", "SLURM_NNODES": "2", "SLURM_NODEID": "1"}


def spec(kind: str = "workerpool1", index: Any = 0, primary: Any = ("a:2222",), others: Any = ("b:2222",), **more: Any) -> str:
    cluster = {"workerpool0": primary, "workerpool1": others, **more}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"})


VERTEXAI = {"CLUSTER_SPEC": spec(), "CLOUD_ML_JOB_ID": "4711", "RANKLAUNCH_SLOTS": "8"}
RECORDED = {"volcengine": VOLCENGINE, "pai_dlc": PAI_DLC, "openpai": OPENPAI, "vertexai": VERTEXAI}


def job(env: dict[str, str], without: str = "", **more: str) -> Job:
    whole = {name: value for name, value in {**env, **more}.items() if name != without}
    return helpers.plan(whole, method="spawn").job


@pytest.mark.parametrize("name", RECORDED)
def test_node_1_of_2(name: str) -> None:
    found = job(RECORDED[name])
    assert (found.platform, found.node_index, found.master in ("a", "dlc18is-master-0")) == (name, 1, True)
    assert [node.slots for node in found.nodes] == [8, 8]
    assert found.name == {"volcengine": "t-1", "pai_dlc": "dlc18is", "openpai": "j", "vertexai": "4711"}[name]


@pytest.mark.parametrize("name", RECORDED)
def test_ranklaunch_variables_come_first(name: str) -> None:
    own = {
        "RANKLAUNCH_HOSTS": "x,y",
        "RANKLAUNCH_NODE": "0",
        "RANKLAUNCH_SLOTS": "3",
        "RANKLAUNCH_JOB_NAME": "own",
        "RANKLAUNCH_ATTEMPT": "4",
    }
    found = job(RECORDED[name], **own)
    assert ([node.host for node in found.nodes], found.node_index, found.node.slots) == (["x", "y"], 0, 3)
    assert (found.name, found.attempt) == ("own", 4)


@pytest.mark.parametrize("value", ["7", "0"])
def test_values_of_the_platform_do_not_reach_the_ranks_as_they_are(value: str) -> None:
    plan = helpers.plan({**PAI_DLC, "RANK": "0", "LOCAL_RANK": value}, method="torchrun")
    assert set(plan.processes[0].unset) == {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}


@helpers.for_each(
    [
        (VOLCENGINE, {"MLP_WORKER_NUM": "3"}, ["MLP_WORKER_ALL_HOSTS names 2 hosts", "MLP_WORKER_NUM=3"]),
        (VOLCENGINE, {"MLP_WORKER_0_HOST": "c"}, ["MLP_WORKER_ALL_HOSTS begins with a", "MLP_WORKER_0_HOST=c"]),
        (VOLCENGINE, {"MLP_ROLE_INDEX": "2"}, ["MLP_ROLE_INDEX=2", "0 to 1"]),
        (VOLCENGINE, {"MLP_ROLE": "PS"}, ["MLP_ROLE=PS", "WORKER"]),
        (VOLCENGINE, {"MLP_ROLE_INDEX": ""}, ["2 nodes", "MLP_ROLE_INDEX", "RANKLAUNCH_NODE"]),
        (VOLCENGINE, {"MLP_WORKER_ALL_HOSTS": "", "MLP_WORKER_0_HOST": ""}, ["2 nodes", "MLP_WORKER_0_HOST", "RANKLAUNCH_MASTER_ADDR"]),
        (PAI_DLC, {"RANK": "2"}, ["RANK=2", "0 to 1"]),
        (PAI_DLC, {"NPROC_PER_NODE": "x"}, ["NPROC_PER_NODE='x'"]),
        (OPENPAI, {"PAI_TASK_INDEX": "0"}, ["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX='1' contradicts PAI_TASK_INDEX='0'"]),
        (OPENPAI, {"PAI_TASK_ROLE_LIST": "ps,worker"}, ["PAI_TASK_ROLE_LIST=ps,worker", "RANKLAUNCH_HOSTS"]),
        (OPENPAI, {"PAI_HOST_IP_worker_0": ""}, ["PAI_HOST_IP_worker_0", "where node 0 is"]),
        (OPENPAI, {"PAI_RESOURCE_worker": "x,1"}, ["slots in PAI_RESOURCE_worker='x'"]),
        (OPENPAI, {"PAI_TASK_ROLE_TASK_COUNT_worker": "0"}, ["PAI_TASK_ROLE_TASK_COUNT_worker='0'"]),
        (VERTEXAI, {"CLUSTER_SPEC": spec("workerpool3", 0, workerpool3=["e:1"])}, ["task workerpool3 0", "other pools"]),
        (VERTEXAI, {"CLUSTER_SPEC": spec("workerpool1", 1)}, ["task workerpool1 1"]),
        (VERTEXAI, {"CLUSTER_SPEC": spec(index="x")}, ["CLUSTER_SPEC=", "not understood"]),
        (VERTEXAI, {"CLUSTER_SPEC": '{"workerpool0"'}, ["CLUSTER_SPEC=", "not understood"]),
        (VERTEXAI, {"RANKLAUNCH_NODES": "3"}, ["RANKLAUNCH_NODES=3", "2 hosts"]),
    ]
)
def test_refused(env: dict[str, str], more: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        job(env, **more)
    assert len(caught.value.problems) == 1, caught.value.problems
    assert all(word in caught.value.problems[0] for word in words), caught.value.problems


def recognised(env: dict[str, str]) -> str:
    return next(name for name, platform in PLATFORMS.items() if platform.detect(helpers.reader(env)))


@pytest.mark.parametrize(
    ("name", "missing"),
    [("volcengine", "MLP_WORKER_NUM"), ("pai_dlc", "WORLD_SIZE"), ("openpai", "PAI_TASK_ROLE_LIST"), ("vertexai", "CLUSTER_SPEC")],
)
def test_half_an_environment_is_nobodys(name: str, missing: str) -> None:
    assert recognised({key: value for key, value in RECORDED[name].items() if key != missing}) == "local"


def test_a_platform_is_asked_by_the_least_that_it_sets() -> None:
    """Nothing that it sets besides may be needed for asking it at all."""
    assert choose(helpers.reader({"CLUSTER_SPEC": VERTEXAI["CLUSTER_SPEC"]})).NAME == "vertexai"
    assert choose(helpers.reader({"MINDX_TASK_ID": "1"})).NAME == "ascend_operator"
    assert choose(helpers.reader({"K_MPI_JOB_ROLE": "worker"})).NAME == "mpijob"


def test_variables_that_any_operator_sets_are_not_pai_dlcs() -> None:
    assert recognised({**PAI_DLC, "MASTER_ADDR": "job-master-0"}) == "local"


@pytest.mark.parametrize("name", [*RECORDED, "slurm"])
def test_whatever_is_below_modelarts_is_modelarts(name: str) -> None:
    assert recognised({**helpers.modelarts(2, 8), **{**RECORDED, "slurm": SLURM}[name]}) == "modelarts"


@pytest.mark.parametrize("name", RECORDED)
def test_slurm_in_containers_is_slurm(name: str) -> None:
    assert recognised({**RECORDED[name], **SLURM}) == "slurm"
