"""Which node this is, who the others are, which attempt it is: every source that ModelArts has had for it, in their order."""

from __future__ import annotations

from typing import Any

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

POD = "MA_CURRENT_INSTANCE_NAME"
IN_POD = f"the number in {POD}"
INDEX_VARIABLES = ("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "DLS_TASK_INDEX")


def plan(*without: str, nodes: int = 4, files: dict[str, str] | None = None, options: dict[str, str] | None = None, **env: str) -> Plan:
    """Of an environment that tells the index and the hosts in no way but those given."""
    given = helpers.modelarts(nodes, 2)
    for name in (POD, "VC_TASK_INDEX", *without):
        del given[name]
    return helpers.plan({**given, **env}, files=files, **{"method": "spawn", **(options or {})})


def refused(*without: str, **env: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*without, **env)
    return str(caught.value)


def source(found: Plan, name: str) -> str:
    return next(reading.source for reading in found.values if reading.name == name)


# Which node is this?


@pytest.mark.parametrize("name", INDEX_VARIABLES)
def test_each_index_variable_alone(name: str) -> None:
    found = plan(**{name: "3"})
    assert found.job.node_index == 3
    assert source(found, "node_index") == name


@pytest.mark.parametrize("position", range(4))
def test_order_of_index_variables(position: int) -> None:
    found = plan(**dict.fromkeys(INDEX_VARIABLES[position:], "2"))
    assert found.job.node_index == 2
    assert source(found, "node_index") == INDEX_VARIABLES[position]


@helpers.for_each(
    [
        ({POD: "ma-job-1-worker-3"}, 3, IN_POD),
        ({"BATCH_TASK_CURRENT_INSTANCE": "x-worker-2"}, 2, "the number in BATCH_TASK_CURRENT_INSTANCE"),
        ({POD: "j-worker-1", "BATCH_TASK_CURRENT_INSTANCE": "x-worker-1"}, 1, IN_POD),
        ({"HOSTNAME": "j-worker-2"}, 2, "the number in HOSTNAME"),
        ({POD: "j-worker-1", "HOSTNAME": "another-3"}, 1, IN_POD),
        ({POD: "no number", "HOSTNAME": "j-worker-2"}, 2, "the number in HOSTNAME"),
        ({"VC_TASK_INDEX": "1", "HOSTNAME": "notebook-3"}, 1, "VC_TASK_INDEX"),
        ({"VC_TASK_INDEX": "1", POD: "j-worker-1"}, 1, "VC_TASK_INDEX"),
        ({"VC_TASK_INDEX": "1", POD: "no number"}, 1, "VC_TASK_INDEX"),
        ({"VC_TASK_INDEX": "", "VK_TASK_INDEX": "0"}, 0, "VK_TASK_INDEX"),
        ({"RANKLAUNCH_NODE": "3", "VC_TASK_INDEX": "1", POD: "j-worker-2"}, 3, "RANKLAUNCH_NODE"),
    ]
)
def test_index(env: dict[str, str], index: int, expected: str) -> None:
    found = plan(**env)
    assert found.job.node_index == index
    assert source(found, "node_index") == expected


@helpers.for_each(
    [
        ({}, ["4 nodes", "RANKLAUNCH_NODE", "VC_TASK_INDEX"]),
        ({"HOSTNAME": "no-number-at-the-end-x"}, ["RANKLAUNCH_NODE"]),
        ({"MA_TASK_INDEX": "0", "VC_TASK_INDEX": "1"}, ["MA_TASK_INDEX='0'", "VC_TASK_INDEX='1'", "RANKLAUNCH_NODE"]),
        ({"VC_TASK_INDEX": "0", "VK_TASK_INDEX": "1"}, ["VC_TASK_INDEX='0'", "VK_TASK_INDEX='1'"]),
        ({"VK_TASK_INDEX": "0", "DLS_TASK_INDEX": "1"}, ["VK_TASK_INDEX='0'", "DLS_TASK_INDEX='1'"]),
        ({"VC_TASK_INDEX": "1", POD: "j-worker-2"}, ["VC_TASK_INDEX='1'", f"{IN_POD}='2'", "RANKLAUNCH_NODE"]),
        ({"VC_TASK_INDEX": "4"}, ["VC_TASK_INDEX=4", "0 to 3", "4 nodes"]),
        ({POD: "j-worker-4"}, [POD, "0 to 3"]),
        ({"VC_TASK_INDEX": "-1"}, ["VC_TASK_INDEX='-1'"]),
        ({"VC_TASK_INDEX": "first"}, ["VC_TASK_INDEX='first'", "whole number"]),
    ]
)
def test_index_is_refused(env: dict[str, str], words: list[str]) -> None:
    message = refused(**env)
    assert all(word in message for word in words), message


def test_a_malformed_index_is_one_problem() -> None:
    assert len(refused(VC_TASK_INDEX="first", **{POD: "j-worker-2"}).splitlines()) == 1


@pytest.mark.parametrize("env", [{"VC_TASK_INDEX": "3"}, {POD: "j-worker-7"}, {"VC_TASK_INDEX": "1", "VK_TASK_INDEX": "2"}, {}])
def test_the_only_node_has_index_0_whatever_the_cluster_says(env: dict[str, str]) -> None:
    assert plan(nodes=1, **env).job.node_index == 0


def test_an_index_that_the_user_gives_counts_on_one_node_too() -> None:
    message = refused(nodes=1, RANKLAUNCH_NODE="3")
    assert "RANKLAUNCH_NODE" in message


# Who are the others?

FILE = "/etc/volcano/worker.host"


@pytest.mark.parametrize(
    ("env", "files", "hosts", "expected"),
    [
        ({"VC_WORKER_HOSTS": "a,b,c,d"}, {FILE: "e\nf\ng\nh\n"}, "abcd", "VC_WORKER_HOSTS"),
        ({"VC_WORKER_HOSTS": ""}, {FILE: "e\nf\ng\nh\n"}, "efgh", FILE),
        ({"VC_WORKER_HOSTS": ""}, {FILE: " e f\r\n\ng\th"}, "efgh", FILE),
        ({"RANKLAUNCH_HOSTS": "p,q,r,s"}, {FILE: "e\nf\ng\nh\n"}, "pqrs", "RANKLAUNCH_HOSTS"),
        ({"MA_TASK_NAME": "learner", "VC_LEARNER_HOSTS": "i,j,k,l"}, {}, "ijkl", "VC_LEARNER_HOSTS"),
        ({"MA_TASK_NAME": "my-task.x", "VC_MY_TASK_X_HOSTS": "i,j,k,l"}, {}, "ijkl", "VC_MY_TASK_X_HOSTS"),
        ({"MA_TASK_NAME": "learner"}, {"/etc/volcano/learner.host": "m\nn\no\np"}, "mnop", "/etc/volcano/learner.host"),
    ],
)
def test_hosts(env: dict[str, str], files: dict[str, str], hosts: str, expected: str) -> None:
    found = plan(VC_TASK_INDEX="0", files=files, **env)
    assert [node.host for node in found.job.nodes] == list(hosts)
    assert source(found, "hosts") == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "ma-job-5d2e7c1a-worker-2.ma-job-5d2e7c1a"),
        ({"MA_TASK_NAME": ""}, "ma-job-5d2e7c1a-worker-2.ma-job-5d2e7c1a"),
        ({"MA_TASK_NAME": "learner"}, "ma-job-5d2e7c1a-learner-2.ma-job-5d2e7c1a"),
        # The user's name for the job is not the cluster's.
        ({"RANKLAUNCH_JOB_NAME": "mine"}, "ma-job-5d2e7c1a-worker-2.ma-job-5d2e7c1a"),
    ],
)
def test_hosts_are_named_as_volcano_names_them(env: dict[str, str], expected: str) -> None:
    found = plan("VC_WORKER_HOSTS", VC_TASK_INDEX="0", **env)
    assert found.job.nodes[2].host == expected


@pytest.mark.parametrize(
    ("env", "files", "words"),
    [
        ({"VC_WORKER_HOSTS": "a,b,c"}, {}, ["VC_WORKER_HOSTS names 3 hosts", "MA_NUM_HOSTS is 4"]),
        ({"VC_WORKER_HOSTS": "a"}, {}, ["names 1 hosts", "is 4"]),
        ({"RANKLAUNCH_HOSTS": "a,b"}, {}, ["RANKLAUNCH_HOSTS names 2 hosts"]),
        ({"VC_WORKER_HOSTS": ""}, {FILE: "a\nb\nc\nd\ne\n"}, [f"{FILE} names 5 hosts", "MA_NUM_HOSTS is 4"]),
        ({"VC_WORKER_HOSTS": "a b,c,d"}, {}, ["VC_WORKER_HOSTS='a b,c,d'"]),
        ({"VC_WORKER_HOSTS": ""}, {FILE: "a;b\nc\nd\ne"}, [FILE, "host names"]),
        ({"VC_WORKER_HOSTS": "", "MA_VJ_NAME": ""}, {}, ["VC_WORKER_HOSTS", FILE, "MA_VJ_NAME"]),
        ({"VC_WORKER_HOSTS": "", "MA_VJ_NAME": "a b"}, {}, ["MA_VJ_NAME", "'a b-worker-0.a b,"]),
    ],
)
def test_hosts_are_refused(env: dict[str, str], files: dict[str, str], words: list[str]) -> None:
    message = refused(VC_TASK_INDEX="0", files=files, **env)
    assert all(word in message for word in words), message


def test_hosts_of_another_task_are_named_by_its_variable() -> None:
    assert "VC_LEARNER_HOSTS" in refused("MA_VJ_NAME", VC_TASK_INDEX="0", MA_TASK_NAME="learner")


@pytest.mark.parametrize(
    ("env", "host"),
    [
        ({}, helpers.hosts(1)[0]),
        ({"VC_WORKER_HOSTS": ""}, "localhost"),
        ({"VC_WORKER_HOSTS": "a,b"}, "localhost"),
        ({"RANKLAUNCH_HOSTS": "me"}, "me"),
    ],
)
def test_the_host_of_the_only_node(env: dict[str, str], host: str) -> None:
    assert plan(nodes=1, **env).job.master == host


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"MA_NUM_HOSTS": "2", "VC_WORKER_NUM": "4"}, 2),
        ({"MA_NUM_HOSTS": "", "VC_WORKER_NUM": "3"}, 3),
        ({"MA_NUM_HOSTS": "", "VC_WORKER_NUM": "", "DLS_TASK_NUMBER": "2"}, 2),
        ({"MA_NUM_HOSTS": "", "VC_WORKER_NUM": ""}, 1),
        ({"RANKLAUNCH_NODES": "5"}, 5),
    ],
)
def test_number_of_nodes(env: dict[str, str], count: int) -> None:
    assert len(plan("VC_WORKER_HOSTS", VC_TASK_INDEX="0", **env).job.nodes) == count


# Slots, name, attempt


@helpers.for_each(
    [
        ({}, [2, 2, 2, 2], "npu"),
        ({"MA_NUM_GPUS": "0"}, [1, 1, 1, 1], "cpu"),
        ({"MA_NUM_GPUS": ""}, [1, 1, 1, 1], "cpu"),
        ({"MA_NUM_GPUS": "16"}, [16] * 4, "npu"),
        ({"RANKLAUNCH_SLOTS": "2,1,3,1"}, [2, 1, 3, 1], "npu"),
        ({"RANKLAUNCH_SLOTS": "1,0,1,1"}, [1, 1, 1, 1], "npu"),
        ({"NCCL_VERSION": "2.7.8"}, [2] * 4, "gpu"),
        ({"ASCEND_VISIBLE_DEVICES": "0,1", "CUDA_VERSION": "12"}, [2] * 4, "npu"),
        ({"RANKLAUNCH_ACCELERATOR": "GPU"}, [2] * 4, "gpu"),
        ({"MA_NUM_GPUS": "0", "RANKLAUNCH_ACCELERATOR": "gpu"}, [1] * 4, "gpu"),
    ]
)
def test_slots_and_accelerator(env: dict[str, str], slots: list[int], accelerator: str) -> None:
    found = plan(VC_TASK_INDEX="0", **env).job
    assert [node.slots for node in found.nodes] == slots
    assert [node.first_rank for node in found.nodes] == [sum(slots[:i]) for i in range(4)]
    assert found.world_size == sum(slots)
    assert found.accelerator == accelerator


@pytest.mark.parametrize(
    ("env", "devices", "said"),
    [
        ({}, "davinci0 davinci1 davinci_manager", "MA_NUM_GPUS=8: 8 ranks on this node, which has 2 NPUs (device files)"),
        ({"RANKLAUNCH_SLOTS": "2"}, "davinci0 davinci1 davinci_manager", ""),
        ({"RANKLAUNCH_SLOTS": "8,2,2,2"}, "davinci0 davinci1", "RANKLAUNCH_SLOTS=8,2,2,2: 8 ranks on this node"),
        ({"RANKLAUNCH_SLOTS": "2,8,8,8"}, "davinci0 davinci1", ""),
        ({"CUDA_VISIBLE_DEVICES": "3"}, " ".join(f"nvidia{i}" for i in range(8)), "which has 1 GPU (CUDA_VISIBLE_DEVICES)"),
        ({"RANKLAUNCH_ACCELERATOR": "cpu"}, "davinci0", ""),
        ({}, "davinci_manager", ""),
        ({}, "", ""),
    ],
)
def test_more_ranks_than_devices_are_said(env: dict[str, str], devices: str, said: str) -> None:
    files = {f"/dev/{name}": "" for name in devices.split()}
    warnings = helpers.plan({**helpers.modelarts(4, 8), **env}, files=files, method="spawn").warnings
    assert any(said in warning for warning in warnings) if said else not any("ranks on this node" in warning for warning in warnings)


@pytest.mark.parametrize("given", ["1,2", "1,2,3,4,5", "-1", "x", "1;2"])
def test_slots_are_refused(given: str) -> None:
    assert f"RANKLAUNCH_SLOTS='{given}'" in refused(VC_TASK_INDEX="0", RANKLAUNCH_SLOTS=given)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"MA_VJ_NAME": "ma-job-12ab"}, "modelarts-job-12ab"),
        ({"MA_VJ_NAME": "modelarts-job-12ab"}, "modelarts-job-12ab"),
        ({"MA_VJ_NAME": "my-ma-job-12ab"}, "my-ma-job-12ab"),
        ({"MA_VJ_NAME": "ma-jobs"}, "ma-jobs"),
        ({"MA_VJ_NAME": "", "BATCH_JOB_ID": "job1"}, "job1"),
        ({"MA_VJ_NAME": "", POD: "modelarts-job-12ab-worker-0"}, "modelarts-job-12ab"),
        ({"MA_VJ_NAME": ""}, "modelarts"),
        ({"RANKLAUNCH_JOB_NAME": "mine"}, "mine"),
    ],
)
def test_job_name(env: dict[str, str], name: str) -> None:
    assert plan(VC_TASK_INDEX="0", **env).job.name == name


@pytest.mark.parametrize(
    ("env", "attempt"),
    [
        ({}, 1),
        ({"MA_PROC_START_CNT": "1", "MA_SCHEDULE_CNT": "1"}, 1),
        # After a pod was replaced: a survivor, whose process started again, and the new pod.
        ({"MA_PROC_START_CNT": "2", "MA_SCHEDULE_CNT": "1"}, 2),
        ({"MA_PROC_START_CNT": "1", "MA_SCHEDULE_CNT": "2"}, 2),
        ({"MA_PROC_START_CNT": "3", "MA_SCHEDULE_CNT": "2"}, 4),
        ({"RANKLAUNCH_ATTEMPT": "9", "MA_PROC_START_CNT": "3", "MA_SCHEDULE_CNT": "2"}, 9),
    ],
)
def test_attempt(env: dict[str, str], attempt: int) -> None:
    found = plan(VC_TASK_INDEX="0", **env)
    assert found.job.attempt == attempt
    assert all(process.env["RANKLAUNCH_ATTEMPT"] == str(attempt) for process in found.processes)
    assert all(process.log.startswith(f"/logs/attempt_{attempt}/") for process in found.processes)


@helpers.for_each(
    {
        "the platform's, each container's own": ({"MA_LOG_DIR": "/logs"}, {}, 4, "/logs"),
        "a variable of the user's": ({"RANKLAUNCH_LOG_DIR": "/logs"}, {}, 4, "/logs/node_3"),
        "an option": ({"MA_LOG_DIR": "/own"}, {"log_dir": "/logs"}, 4, "/logs/node_3"),
        "one node": ({"RANKLAUNCH_LOG_DIR": "/logs"}, {}, 1, "/logs"),
        "said by nobody: where it starts, which may be a volume of all": ({}, {}, 4, f"{helpers.CWD}/ranklaunch-logs/node_3"),
        "a ps that its task numbers like a worker": (
            {"RANKLAUNCH_LOG_DIR": "/logs", "VC_PS_NUM": "4", "MA_TASK_NAME": "ps", "VC_TASK_INDEX": "0"}, {}, 4, "/logs/node_4"
        ),
    }
)  # fmt: skip
def test_nodes_that_may_share_a_log_folder_have_one_each(env: dict[str, str], options: dict[str, str], nodes: int, folder: str) -> None:
    method = "tensorflow" if "VC_PS_NUM" in env else "spawn"
    found = plan("MA_LOG_DIR", nodes=nodes, options={**options, "method": method}, **{"VC_TASK_INDEX": "3", **env})
    assert found.job.log_dir == folder
    assert all(process.log.startswith(f"{folder}/attempt_1/") for process in found.processes)


def test_a_blank_attempt_is_unset() -> None:
    assert plan(VC_TASK_INDEX="0", RANKLAUNCH_ATTEMPT=" ", MA_PROC_START_CNT="3", MA_SCHEDULE_CNT="2").job.attempt == 4


def test_the_attempt_is_noted_as_it_is() -> None:
    found = plan(VC_TASK_INDEX="0", MA_PROC_START_CNT="3", MA_SCHEDULE_CNT="2")
    assert next(reading.value for reading in found.values if reading.name == "attempt") == "4"


@pytest.mark.parametrize("name", ["MA_NUM_HOSTS", "MA_NUM_GPUS", "MA_VJ_NAME", "MA_JOB_DIR", "MA_MOUNT_PATH", POD, "DLS_TASK_NUMBER"])
def test_one_sign_is_enough(name: str) -> None:
    value = {"MA_VJ_NAME": "j", "MA_JOB_DIR": "/x", "MA_MOUNT_PATH": "/x", POD: "j-worker-0"}.get(name, "1")
    assert helpers.plan({name: value}).job.platform == "modelarts"


def test_every_problem_that_can_be_told_is_told_at_once() -> None:
    message = refused(MA_NUM_GPUS="many", VC_TASK_INDEX="x", VC_WORKER_HOSTS="a b", MA_NUM_HOSTS="four")
    assert all(f"{name}=" in message for name in ("MA_NUM_GPUS", "VC_WORKER_HOSTS", "MA_NUM_HOSTS"))


def test_every_problem_of_every_setting_is_told_at_once() -> None:
    message = refused(MA_NUM_GPUS="many", VC_TASK_INDEX="0", MA_SCHEDULE_CNT="0", RANKLAUNCH_GRACE_S="soon", RANKLAUNCH_WAIT_S="-1")
    assert all(f"{name}=" in message for name in ("MA_NUM_GPUS", "MA_SCHEDULE_CNT", "RANKLAUNCH_GRACE_S", "RANKLAUNCH_WAIT_S"))


def test_an_attempt_that_nobody_counts_is_a_default() -> None:
    assert source(plan(VC_TASK_INDEX="0"), "attempt") == "default"


def test_hosts_without_their_count() -> None:
    """Each of them would train alone."""
    found = refused("MA_NUM_HOSTS", "VC_WORKER_NUM", VC_TASK_INDEX="1")
    assert "VC_WORKER_HOSTS names 4 hosts, but MA_NUM_HOSTS, which is not set, is 1: expected as many names" in found


def test_one_node_is_told_of_names_and_an_index_that_say_otherwise() -> None:
    assert plan(nodes=1, VC_TASK_INDEX="1", VC_WORKER_HOSTS="a,b").warnings == (
        "VC_TASK_INDEX is 1, but the job has one node: this node trains alone; set RANKLAUNCH_NODES if the job has more",
        "VC_WORKER_HOSTS names 2 hosts, but MA_NUM_HOSTS is 1: this node trains alone; set RANKLAUNCH_NODES if the job has more",
    )
