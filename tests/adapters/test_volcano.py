"""Volcano alone: tasks and their hosts, this pod's place among them, and what plugin pytorch says of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import helpers
import pytest

from ranklaunch.env.job import Job
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

WORKERS = {"VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "VC_WORKER_NUM": "2"}
MASTER = {"VC_MASTER_HOSTS": "j-master-0.j", "VC_MASTER_NUM": "1"}
PS = {"VC_PS_HOSTS": "j-ps-0.j", "VC_PS_NUM": "1"}
PYTORCH = {"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
FILE = "/etc/volcano/worker.host"


def plan(files: dict[str, str] | None = None, method: str = "spawn", **env: str) -> Plan:
    return helpers.plan(env, files=files, method=method, platform="volcano")


def job(files: dict[str, str] | None = None, **env: str) -> Job:
    return plan(files, **env).job


def refused(files: dict[str, str] | None = None, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(files, **env)
    return str(caught.value)


@helpers.for_each(
    [
        ({**WORKERS, "VC_TASK_INDEX": "1"}, 1, ["j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, "VK_TASK_INDEX": "1"}, 1, ["j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, "HOSTNAME": "j-worker-1"}, 1, ["j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, **MASTER, "HOSTNAME": "j-master-0", "VC_TASK_INDEX": "0"}, 0, ["j-master-0.j", "j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, **MASTER, "HOSTNAME": "j-worker-1", "VC_TASK_INDEX": "1"}, 2, ["j-master-0.j", "j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, **MASTER, "RANKLAUNCH_TASK": "worker", "VC_TASK_INDEX": "0"}, 1, ["j-master-0.j", "j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, **MASTER, **PYTORCH, "RANK": "2"}, 2, ["j-master-0.j", "j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, "VC_LEARNER_HOSTS": "j-learner-0.j", "HOSTNAME": "j-learner-0", "VC_TASK_INDEX": "0"}, 0, ["j-learner-0.j"]),
        ({"VC_MY_TASK_HOSTS": "j-my-task-0.j,j-my-task-1.j", "VC_TASK_INDEX": "1"}, 1, ["j-my-task-0.j", "j-my-task-1.j"]),
        ({**WORKERS, "VC_TASK_INDEX": "0", "RANKLAUNCH_NODE": "1"}, 1, ["j-worker-0.j", "j-worker-1.j"]),
        ({**WORKERS, "VC_TASK_INDEX": "0", "RANKLAUNCH_HOSTS": "a,b"}, 0, ["a", "b"]),
        ({"VC_TASK_INDEX": "1", "RANKLAUNCH_NODES": "2", "RANKLAUNCH_MASTER_ADDR": "m"}, 1, ["m", ""]),
    ]
)
def test_place(env: dict[str, str], index: int, hosts: list[str]) -> None:
    found = job(**env)
    assert found.node_index == index
    assert [node.host for node in found.nodes] == hosts


def test_files_stand_in_for_variables() -> None:
    found = job({FILE: "a.j\r\n\nb.j\n", "/etc/volcano/master.host": "m.j\n"}, HOSTNAME="b")
    assert ([node.host for node in found.nodes], found.node_index, found.name) == (["m.j", "a.j", "b.j"], 2, "j")


def test_a_task_of_the_users_name_leads() -> None:
    lists = {"VC_HEAD_HOSTS": "j-head-0.j", "MASTER_ADDR": "j-head-0.j", "WORLD_SIZE": "3", "RANK": "1"}
    assert job(**WORKERS, **lists).nodes[0].host == "j-head-0.j"


@pytest.mark.parametrize(
    "left", [{"MASTER_ADDR": "elsewhere"}, {"RANK": "7"}, {"WORLD_SIZE": "512", "RANK": "9", "MASTER_ADDR": "j-worker-9.j"}]
)
def test_what_an_image_has_left_does_not_count(left: dict[str, str]) -> None:
    assert job(**WORKERS, VC_TASK_INDEX="1", **left).node_index == 1


@helpers.for_each(
    [
        (WORKERS, ["2 nodes", "VC_TASK_INDEX", "RANKLAUNCH_NODE"]),
        ({**WORKERS, "VC_TASK_INDEX": "2"}, ["VC_TASK_INDEX=2", "0 to 1"]),
        ({**WORKERS, "VC_TASK_INDEX": "x"}, ["VC_TASK_INDEX='x'"]),
        ({**WORKERS, "VC_TASK_INDEX": "0", "VK_TASK_INDEX": "1"}, ["VC_TASK_INDEX='0'", "VK_TASK_INDEX='1'"]),
        ({**WORKERS, "VC_TASK_INDEX": "0", "HOSTNAME": "j-worker-1"}, ["VC_TASK_INDEX='0'", "place of HOSTNAME in the hosts='1'"]),
        (
            {**WORKERS, **MASTER, **PYTORCH, "RANK": "1", "WORLD_SIZE": "4"},
            ["VC_WORKER_HOSTS names 3 hosts, but WORLD_SIZE=4"],
        ),
        ({**WORKERS, **MASTER, **PYTORCH, "RANK": "3"}, ["RANK=3", "0 to 2"]),
        ({**WORKERS, "VC_WORKER_HOSTS": "a b", "VC_TASK_INDEX": "0"}, ["VC_WORKER_HOSTS='a b'"]),
        ({**WORKERS, "RANKLAUNCH_NODES": "3", "VC_TASK_INDEX": "0"}, ["VC_WORKER_HOSTS names 2 hosts, but RANKLAUNCH_NODES=3"]),
        ({"VC_TASK_INDEX": "1"}, ["RANKLAUNCH_NODES", "plugin svc"]),
        ({"VC_TASK_INDEX": "1", "RANKLAUNCH_NODES": "2"}, ["RANKLAUNCH_HOSTS", "RANKLAUNCH_MASTER_ADDR", "plugin svc"]),
    ]
)
def test_refused(env: dict[str, str], words: list[str]) -> None:
    message = refused(**env)
    assert all(word in message for word in words), message


def test_a_broken_host_file_is_refused() -> None:
    assert FILE in refused({FILE: "a;b\n"}, VC_TASK_INDEX="0")


# Tasks that plugins call otherwise

TRAINERS = {"VC_TRAINER_HOSTS": "j-trainer-0.j,j-trainer-1.j", "VC_TRAINER_NUM": "2"}
OF_MPI = {
    "VC_MPIMASTER_HOSTS": "j-mpimaster-0.j", "VC_MPIMASTER_NUM": "1",
    "VC_MPIWORKER_HOSTS": "j-mpiworker-0.j,j-mpiworker-1.j", "VC_MPIWORKER_NUM": "2",
}  # fmt: skip
MPI_HOST = {"MPI_HOST": "j-mpiworker-0.j,j-mpiworker-1.j"}


def everywhere(lists: dict[str, str], pods: list[dict[str, str]], method: str = "spawn") -> list[str]:
    """The hosts of the job that every pod is in, which all of them must see alike; the pods are in the job's order."""
    jobs = [plan(method=method, **{**lists, "RANKLAUNCH_SLOTS": "2", **pod}).job for pod in pods]
    assert [job.node_index for job in jobs] == list(range(len(pods)))
    (nodes,) = {job.nodes for job in jobs}
    return [node.host for node in nodes]


def pods_of(task: str, count: int) -> list[dict[str, str]]:
    return [{"HOSTNAME": f"j-{task}-{i}", "VC_TASK_INDEX": str(i)} for i in range(count)]


def ranked(pods: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{**pod, **PYTORCH, "RANK": str(i)} for i, pod in enumerate(pods)]


def on_host_network(pods: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{**pod, "HOSTNAME": f"gpu-{i}"} for i, pod in enumerate(pods)]


@pytest.mark.parametrize("others", [{}, {"VC_TENSORBOARD_HOSTS": "j-tensorboard-0.j", "VC_TENSORBOARD_NUM": "1"}])
@pytest.mark.parametrize("place", [list, on_host_network])
@pytest.mark.parametrize(("lists", "workers"), [(TRAINERS, "trainer"), (WORKERS, "worker")])
def test_workers_of_any_name(
    others: dict[str, str], place: Callable[[list[dict[str, str]]], list[dict[str, str]]], lists: dict[str, str], workers: str
) -> None:
    pods = ranked(place([*pods_of("master", 1), *pods_of(workers, 2)]))
    assert everywhere({**MASTER, **lists, **others}, pods) == ["j-master-0.j", f"j-{workers}-0.j", f"j-{workers}-1.j"]


def test_a_task_that_the_plugin_does_not_count_is_a_job_of_its_own() -> None:
    evaluators = {"VC_EVAL_HOSTS": "j-eval-0.j,j-eval-1.j"}
    pods = [{**pod, **PYTORCH} for pod in pods_of("eval", 2)]  # it has no RANK
    assert everywhere({**MASTER, **TRAINERS, **evaluators}, pods) == ["j-eval-0.j", "j-eval-1.j"]


@pytest.mark.parametrize("method", ["mpirun", "horovod", "mpi"])
def test_a_master_of_mpi_of_any_name(method: str) -> None:
    master, *workers = [*pods_of("mpimaster", 1), *pods_of("mpiworker", 2)]
    hosts = everywhere(OF_MPI, [{**master, **MPI_HOST}, *workers], method)
    assert hosts == ["j-mpimaster-0.j", "j-mpiworker-0.j", "j-mpiworker-1.j"]


def test_a_master_of_mpi_with_ranks_is_said() -> None:
    env = {**OF_MPI, **pods_of("mpiworker", 1)[0], "RANKLAUNCH_SLOTS": "2"}
    (warning,) = plan(method="mpirun", **env).warnings
    assert warning.startswith("task mpimaster has ranks of its own, rank 0 among them: RANKLAUNCH_LAUNCHER_AS_WORKER=false on all pods")
    for said in ("true", "false"):
        assert plan(method="mpirun", **env, RANKLAUNCH_LAUNCHER_AS_WORKER=said).warnings == ()


def test_other_methods_know_no_master_of_mpi() -> None:
    assert everywhere(OF_MPI, [{**pods_of("mpimaster", 1)[0], **MPI_HOST}]) == ["j-mpimaster-0.j"]
    assert everywhere(OF_MPI, pods_of("mpiworker", 2)) == ["j-mpiworker-0.j", "j-mpiworker-1.j"]


def test_workers_beside_another_task_start_ranks_of_their_own() -> None:
    others = {"VC_TENSORBOARD_HOSTS": "j-tensorboard-0.j", "VC_TENSORBOARD_NUM": "1"}
    assert everywhere({**WORKERS, **others}, pods_of("worker", 2), "mpirun") == ["j-worker-0.j", "j-worker-1.j"]


def test_workers_that_cannot_tell_their_master_are_refused() -> None:
    env = {**OF_MPI, "VC_X_HOSTS": "j-x-0.j", **pods_of("mpiworker", 1)[0]}
    with pytest.raises(ConfigError, match=r"method mpirun, tasks mpimaster, mpiworker, x: .*RANKLAUNCH_HOSTS"):
        plan(method="mpirun", **env)
    told = {"RANKLAUNCH_HOSTS": "j-mpimaster-0.j,j-mpiworker-0.j,j-mpiworker-1.j", "RANKLAUNCH_NODE": "1"}
    assert plan(method="mpirun", **env, **told).job.node_index == 1


@pytest.mark.parametrize(
    ("config", "task"), [('{"task": {"type": "ps", "index": 0}}', "ps"), ('{"task": {"type": "worker", "index": 0}}', "worker")]
)
def test_a_task_by_plugin_tensorflow_on_the_hosts_network(config: str, task: str) -> None:
    assert plan(method="tensorflow", **WORKERS, **PS, TF_CONFIG=config, HOSTNAME="cpu-7", VC_TASK_INDEX="0").job.node.task == task


@pytest.mark.parametrize("more", [{}, {"TF_CONFIG": "broken"}, {"TF_CONFIG": '{"task": {"type": "chief"}}'}, {"TF_CONFIG": "[]"}])
@pytest.mark.parametrize("others", [MASTER, PS])
def test_a_task_is_never_guessed(more: dict[str, str], others: dict[str, str]) -> None:
    message = refused(**WORKERS, **others, **more, HOSTNAME="gpu-7", VC_TASK_INDEX="0")
    assert all(word in message for word in ("HOSTNAME=gpu-7", "worker", "RANKLAUNCH_TASK")), message
    assert job(**WORKERS, **MASTER, **more, HOSTNAME="gpu-7", VC_TASK_INDEX="0", RANKLAUNCH_TASK="worker").node_index == 1


# The Ascend Operator's rank table

TABLE = json.dumps(
    {
        "status": "completed", "version": "1.0", "server_count": "2",
        "server_list": [
            {
                "server_id": f"10.0.0.{i + 1}", "container_ip": f"172.16.0.{i + 1}",
                "device": [{"device_id": str(d), "device_ip": f"29.0.{i}.{d}", "rank_id": str(2 * i + d)} for d in (0, 1)],
            }
            for i in (0, 1)
        ],
    }
)  # fmt: skip
# The operator has found the pods in another order than that of their names.
ENTRY = {0: 1, 1: 0}


def with_table(index: int, *names: str, **more: str) -> Plan:
    """On node `index`, which knows its addresses by the variables called names, or by its hosts file."""
    address = {"POD_IP": f"172.16.0.{ENTRY[index] + 1}", "XDL_IP": f"10.0.0.{ENTRY[index] + 1}"}
    own = f"j-worker-{index}"
    files = {"/user/serverid/devindex/config/hccl.json": TABLE}
    if "/etc/hosts" in names:
        files["/etc/hosts"] = f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n{address['POD_IP']}\t{own}.j.ns.svc\t{own}\n"
    told = {name: address[name] for name in names if name in address}
    return plan(files, "ranktable", **WORKERS, **told, HOSTNAME=own, VC_TASK_INDEX=str(index), RANKLAUNCH_SLOTS="2", **more)


@pytest.mark.parametrize("names", [("POD_IP",), ("XDL_IP",), ("POD_IP", "XDL_IP"), ("/etc/hosts",)])
def test_ranks_follow_the_operators_order(names: tuple[str, ...]) -> None:
    plans = [with_table(index, *names) for index in (0, 1)]
    assert [[process.rank for process in found.processes] for found in plans] == [[2, 3], [0, 1]]
    assert [found.job.node_index for found in plans] == [1, 0]
    assert plans[0].job.nodes == plans[1].job.nodes
    assert plans[0].muster
    assert plans[1].muster
    assert plans[0].muster.facts == plans[1].muster.facts
    # The nodes meet where their names say, before anybody knows the table of the others.
    assert [found.muster.node for found in plans if found.muster] == [0, 1]


def test_a_place_in_the_operators_order_is_never_guessed() -> None:
    with pytest.raises(ConfigError, match=r"POD_IP.*status\.podIP"):
        with_table(0)
    with pytest.raises(ConfigError, match="disagree"):
        with_table(0, "POD_IP", RANKLAUNCH_NODE="0")


# Parameter servers


@pytest.mark.parametrize(
    ("env", "node", "task"),
    [
        ({"HOSTNAME": "j-worker-1", "VC_TASK_INDEX": "1"}, 1, "worker"),
        ({"HOSTNAME": "j-ps-0", "VC_TASK_INDEX": "0"}, 2, "ps"),
        ({"RANKLAUNCH_TASK": "ps"}, 2, "ps"),
    ],
)
def test_parameter_servers(env: dict[str, str], node: int, task: str) -> None:
    found = plan(method="tensorflow", **WORKERS, **PS, **env).job
    assert (found.node_index, found.node.task) == (node, task)
    assert [each.task for each in found.nodes] == ["worker", "worker", "ps"]


def test_other_tasks_beside_ps_are_refused_but_with_plain() -> None:
    env = {**WORKERS, **PS, "VC_CHIEF_HOSTS": "j-chief-0.j", "HOSTNAME": "j-worker-0", "VC_TASK_INDEX": "0"}
    message = refused(**env)
    assert all(word in message for word in ("task chief beside ps", "method plain")), message
    found = plan(method="plain", **env, TF_CONFIG="{}")
    assert [node.host for node in found.job.nodes] == ["j-worker-0.j", "j-worker-1.j"]
    assert "TF_CONFIG" not in {*found.processes[0].env, *found.processes[0].unset}


@pytest.mark.parametrize("more", [PS, {}])
def test_ports_of_plugin_tensorflow_stay(more: dict[str, str]) -> None:
    cluster = {"worker": ["j-worker-0.j:5000", "j-worker-1.j:5000"], **({"ps": ["j-ps-0.j:5000"]} if more else {})}
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    found = plan(method="tensorflow", **WORKERS, **more, HOSTNAME="j-worker-1", VC_TASK_INDEX="1", TF_CONFIG=text)
    assert json.loads(found.processes[0].env["TF_CONFIG"])["cluster"] == cluster
    assert found.warnings == ()


# The rest


def test_attempt() -> None:
    assert job(**WORKERS, VC_TASK_INDEX="0").attempt == 1
    assert job(**WORKERS, VC_TASK_INDEX="0", RANKLAUNCH_RESTARTS="2").attempt == 3
    assert job(**WORKERS, VC_TASK_INDEX="0", RANKLAUNCH_RESTARTS="2", RANKLAUNCH_ATTEMPT="9").attempt == 9


def test_ports_of_the_plugin_are_used_where_the_user_gives_none() -> None:
    env = {**WORKERS, **MASTER, **PYTORCH, "RANK": "0"}
    assert "--master_port=23456" in plan(method="torchrun", **env).processes[0].argv
    assert "--master_port=5" in plan(method="torchrun", **env, RANKLAUNCH_MASTER_PORT="5").processes[0].argv
    assert "RANK" in plan(method="torchrun", **env).processes[0].unset


def test_a_launcher_without_ranks() -> None:
    env = {**WORKERS, **MASTER, "HOSTNAME": "j-master-0", "RANKLAUNCH_SLOTS": "4", "RANKLAUNCH_LAUNCHER_AS_WORKER": "false"}
    found = plan(method="mpirun", **env)
    assert [(node.slots, node.first_rank) for node in found.job.nodes] == [(0, 0), (4, 0), (4, 4)]
    assert "j-master-0" not in next(file.text for file in found.files if file.path.endswith("hostfile"))
    with pytest.raises(ConfigError, match="RANKLAUNCH_LAUNCHER_AS_WORKER"):
        plan(method="torchrun", **env)


@pytest.mark.parametrize("said", [{"RANKLAUNCH_NODES": "3"}, {"RANKLAUNCH_HOSTS": "j-master-0.j,j-worker-0.j,j-worker-1.j"}])
def test_the_users_word_goes_before_a_size_that_counts_further_tasks(said: dict[str, str]) -> None:
    found = job(**WORKERS, **MASTER, **{**PYTORCH, "WORLD_SIZE": "5"}, RANK="1", HOSTNAME="j-worker-0", **said)
    assert ([node.host for node in found.nodes], found.node_index) == (["j-master-0.j", "j-worker-0.j", "j-worker-1.j"], 1)
