"""Jobs of the Ascend Operator: three frameworks' names for the same facts."""

from __future__ import annotations

import json

import helpers
import pytest

from ranklaunch.adapters.platforms import PLATFORMS
from ranklaunch.env.job import Program
from ranklaunch.errors import ConfigError
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.plan.planning import Request

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
    ],
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    message = refused(**{**PYTORCH, **env})
    assert all(word in message for word in words), message


SCHEDULER = {**MINDSPORE, "MS_ROLE": "MS_SCHED", "NPU_POD": "false", "MS_NODE_RANK": "0", "MS_SCHED_HOST": "10.244.0.5"}


def beside(number: int, method: str = "", **env: str) -> Plan:
    """Of a Worker whose Scheduler has no NPUs: the operator numbers the Workers alone."""
    return plan(method=method, **{**MINDSPORE, "HOSTNAME": f"job-worker-{number}", "MS_NODE_RANK": str(number), **env})


def test_a_scheduler_without_npus_is_a_node_without_ranks() -> None:
    plans = [plan(method="", **{**SCHEDULER, "HOSTNAME": "job-scheduler-0"}), beside(0), beside(1)]
    assert [found.job.node_index for found in plans] == [0, 1, 2]
    assert [[node.slots for node in found.job.nodes] for found in plans] == [[0, 8, 8]] * 3
    assert [(found.method, found.job.name, found.followers) for found in plans] == [("msrun", "job", 1)] * 3
    assert len({tuple(helpers.of_all(found.muster.facts).items()) for found in plans if found.muster}) == 1
    for number, found in enumerate(plans[1:]):
        assert {"--worker_num=16", "--local_worker_num=8", "--master_addr=10.96.0.7", f"--node_rank={number}"} <= set(
            found.processes[0].argv
        )


@pytest.mark.parametrize("muster", ["on", "off"])
def test_it_runs_the_program_as_msruns_scheduler(muster: str) -> None:
    found = plan(method="", **SCHEDULER, RANKLAUNCH_MUSTER=muster, MSRUN_CLUSTER_TIME_OUT="-1", POD_IP="10.244.0.5")
    (scheduler,) = found.services or found.processes
    assert bool(found.services) == (muster == "on")
    assert scheduler.argv[-1] == "train.py"
    given = {"MS_SCHED_HOST": "10.244.0.5", "MS_SCHED_PORT": "2222", "MS_WORKER_NUM": "16", "MS_TOPO_TIMEOUT": "-1", "RANK_SIZE": "16"}
    assert {**given, "MS_ROLE": "MS_SCHED", "RANK_ID": "0"}.items() <= dict(scheduler.env).items()
    assert (scheduler.name, scheduler.rank, scheduler.tag) == ("scheduler", None, "[scheduler] ")


def test_one_worker_beside_a_scheduler() -> None:
    one = {"MS_WORKER_NUM": "8"}
    assert [node.slots for node in beside(0, **one).job.nodes] == [0, 8]
    assert plan(method="", **{**SCHEDULER, **one}).job.node_index == 0


@pytest.mark.parametrize(("pod", "rank", "has_ranks"), [("npu-host-7", "1", True), ("npu-host-7", "0", False), ("job-worker-0", "1", True)])
def test_what_a_worker_sees_of_its_scheduler(pod: str, rank: str, has_ranks: bool) -> None:
    """By its pod's name where it has one; on the host's network it must be told, unless it is the first."""
    env = {**MINDSPORE, "HOSTNAME": pod, "MS_NODE_RANK": rank}
    assert bool(plan(method="msrun", **env).job.nodes[0].slots) == has_ranks
    machine = {"/etc/hosts": "10.0.0.7 npu-worker-1\n"}
    assert plan(machine, "msrun", **{**env, "HOSTNAME": "npu-worker-1", "HostNetwork": "true"}).job.nodes[0].slots == (
        8 if rank == "1" else 0
    )
    told = plan(method="msrun", **env, RANKLAUNCH_LAUNCHER_AS_WORKER="false").job
    assert (told.node_index, [node.slots for node in told.nodes]) == (int(rank) + 1, [0, 8, 8])


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_worker_plans_the_other_nodes_too(node: int) -> None:
    env = {"MINDX_TASK_ID": "6f1f0c52", **MINDSPORE, "HOSTNAME": "job-worker-1"}
    files = helpers.MemoryFiles({"/etc/hosts": "127.0.0.1\tlocalhost\n10.244.0.9\tjob-worker-1\n"})
    found = planning.make_plan(planning.for_node(Request(Program("train.py"), env, files, {}, "/"), node))
    assert (found.job.node_index, [each.slots for each in found.job.nodes]) == (node, [0, 8, 8])
    assert bool(found.services) == (node == 0)


def test_counts_of_a_scheduler_that_is_told_none() -> None:
    none = {**SCHEDULER, "MS_LOCAL_WORKER": "0", "MS_WORKER_NUM": "0"}
    assert "RANKLAUNCH_NODES" in refused("msrun", **none)
    found = plan(method="msrun", **none, RANKLAUNCH_NODES="3", RANKLAUNCH_SLOTS="8")
    assert [node.slots for node in found.job.nodes] == [0, 8, 8]


def test_msruns_rank_table_knows_no_scheduler() -> None:
    table = helpers.server_table([("192.0.2.1", [("0", "0"), ("1", "1")]), ("192.0.2.2", [("0", "2"), ("1", "3")])])
    env = {"MS_WORKER_NUM": "4", "MS_LOCAL_WORKER": "2", "MS_RANKTABLE_ENABLE": "true"}
    worker = {**MINDSPORE, **env, "HOSTNAME": "job-worker-1", "XDL_IP": "192.0.2.2"}
    assert f"--rank_table_file={HCCL}" in plan({HCCL: table}, "", **worker).processes[0].argv
    assert plan({HCCL: table}, "", **{**SCHEDULER, **env}).services
    assert plan(method="", **{**SCHEDULER, **env}).services


@pytest.mark.parametrize(
    ("method", "env", "words"),
    [
        ("torchrun", {}, ["only the methods mpirun and msrun"]),
        ("", {"RANKLAUNCH_LAUNCHER_AS_WORKER": "true"}, ["RANKLAUNCH_LAUNCHER_AS_WORKER=true", "NPU_POD=false"]),
        ("", {"NPU_POD": "true", "RANKLAUNCH_LAUNCHER_AS_WORKER": "false"}, ["RANKLAUNCH_LAUNCHER_AS_WORKER=false", "NPU_POD=true"]),
    ],
)
def test_what_a_scheduler_without_npus_cannot_have(method: str, env: dict[str, str], words: list[str]) -> None:
    message = refused(method, **{**SCHEDULER, **env})
    assert all(word in message for word in words), message


@pytest.mark.parametrize("leader", [{"MS_SCHED_HOST": "10.244.0.5", "MS_NODE_RANK": "0"}, {"CM_CHIEF_IP": "10.244.0.5", "CM_RANK": "0"}])
def test_a_leader_may_be_told_its_pods_address(leader: dict[str, str]) -> None:
    """The operator tells the Workers that of its Service."""
    env = {**(MINDSPORE if "MS_NODE_RANK" in leader else TENSORFLOW), "HOSTNAME": "job-worker-0"}
    role = {"MS_ROLE": "MS_SCHED"} if "MS_NODE_RANK" in leader else {"REPLICA_TYPE": "Chief"}
    plans = [plan(method="msrun", **{**env, **leader, **role, "HOSTNAME": "job-chief-0"}), plan(method="msrun", **env)]
    first, second = (helpers.of_all(found.muster.facts) for found in plans if found.muster)
    assert first == second


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


# Operators before 6.0.RC3 set the variables of a framework, and no sign of their own.
OLDER = {
    "torch": {**PYTORCH, "LOCAL_RANK": "0,1,2,3,4,5,6,7"},
    "mindspore": {name: value for name, value in MINDSPORE.items() if name != "NPU_POD"},
    "tf": {**TENSORFLOW, "CM_WORKER_IP": "10.1.0.7", "CM_CHIEF_DEVICE": "0"},
}


@helpers.for_each({name: (env,) for name, env in OLDER.items()})
def test_an_older_operator_is_known_by_all_variables_of_a_framework(env: dict[str, str]) -> None:
    env = {**env, "HOSTNAME": "llm-worker-0"}
    job = helpers.plan(env, method="torchrun").job
    assert (job.platform, job.name, job.master, job.node_index) == ("ascend_operator", "llm", "10.96.0.7", 1)
    assert [node.slots for node in job.nodes] == [8, 8]


RANK_OF_TORCHRUN = {**PYTORCH, "RANK": "9", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}
RANK_OF_MSRUN = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "2", "MS_SCHED_HOST": "10.96.0.7", "MS_SCHED_PORT": "8118", "MS_NODE_ID": "1"}


@helpers.for_each(
    {
        "a rank of torchrun": (RANK_OF_TORCHRUN,),
        "a rank of msrun": (RANK_OF_MSRUN,),
        "a rank that numbers itself": ({**PYTORCH, "LOCAL_RANK": "3"},),
        "a shell with a list": ({"LOCAL_RANK": "0,1,2,3,4,5,6,7"},),
        "one machine": ({**OLDER["torch"], "MASTER_ADDR": "127.0.0.1"},),
        "one machine with MindSpore": ({**OLDER["mindspore"], "MS_SCHED_HOST": "localhost"},),
    }
)
def test_ranks_of_launchers_and_machines_alone_are_none_of_an_older_operator(env: dict[str, str]) -> None:
    assert not PLATFORMS["ascend_operator"].detect(helpers.reader(env))
