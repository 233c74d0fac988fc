"""Indexed Jobs, alone and in JobSets: an index by the Job controller, names by a Service, the rest by the user."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan


def names(full: str) -> dict[str, str]:
    return {"/etc/hosts": f"127.0.0.1\tlocalhost\n10.244.0.9\t{full}\t{full.partition('.')[0]}\n"}


def plan(pod: str, index: str, files: dict[str, str] | None = None, **env: str) -> Plan:
    given = {"HOSTNAME": pod, "JOB_COMPLETION_INDEX": index, "RANKLAUNCH_NODES": "2", **env}
    return helpers.plan({name: value for name, value in given.items() if value}, files=files, method="spawn")


@helpers.for_each(
    [
        ("train-1", "train-1.svc.ns.svc.cluster.local", {}, "indexed_job", "train", ["train-0.svc", "train-1.svc"]),
        ("train-1", "train-1.train.ns.svc", {}, "indexed_job", "train", ["train-0.train", "train-1.train"]),
        ("a-b-0-1", "a-b-0-1.a.ns.svc.cluster.local", {}, "jobset", "a", ["a-b-0-0.a", "a-b-0-1.a"]),
        ("a-b-c-0-1", "a-b-c-0-1.a-b.ns.svc.x", {}, "jobset", "a-b", ["a-b-c-0-0.a-b", "a-b-c-0-1.a-b"]),
        # A subdomain of its own says nothing of the set's name, but all of the hosts'.
        ("a-b-0-1", "a-b-0-1.other.ns.svc", {}, "indexed_job", "a-b-0", ["a-b-0-0.other", "a-b-0-1.other"]),
        ("a-b-0-1", "a-b-0-1.other.ns.svc", {"RANKLAUNCH_JOB_NAME": "a"}, "jobset", "a", ["a-b-0-0.other", "a-b-0-1.other"]),
        ("a-b-0-1", "x.y", {"RANKLAUNCH_JOB_NAME": "a"}, "jobset", "a", ["a-b-0-0.a", "a-b-0-1.a"]),
        # An Indexed Job's own name may end with numbers.
        ("llama-7b-0-1", "llama-7b-0-1.svc.ns.svc", {}, "indexed_job", "llama-7b-0", ["llama-7b-0-0.svc", "llama-7b-0-1.svc"]),
        ("train-1", "train-1.svc.ns.svc", {"RANKLAUNCH_HOSTS": "p,q"}, "indexed_job", "train", ["p", "q"]),
        ("host17", "x.y", {"RANKLAUNCH_HOSTS": "p,q", "RANKLAUNCH_JOB_NAME": "mine"}, "indexed_job", "mine", ["p", "q"]),
        ("train-1", "x.y", {"RANKLAUNCH_MASTER_ADDR": "m"}, "indexed_job", "train", ["m", ""]),
        ("train-1", "train-1.svc.ns.svc", {"RANKLAUNCH_MASTER_ADDR": "m"}, "indexed_job", "train", ["m", "train-1.svc"]),
    ]
)
def test_names(pod: str, full: str, env: dict[str, str], platform: str, name: str, hosts: list[str]) -> None:
    job = plan(pod, "1", names(full), **env).job
    assert (job.platform, job.name, job.node_index) == (platform, name, 1)
    assert [node.host for node in job.nodes] == hosts


@pytest.mark.parametrize("pod", ["train-1", "a-b-0-1"])
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANKLAUNCH_NODES": ""}, ["RANKLAUNCH_NODES", "RANKLAUNCH_HOSTS"]),
        ({"JOB_COMPLETION_INDEX": "2"}, ["JOB_COMPLETION_INDEX=2"]),
        ({"JOB_COMPLETION_INDEX": "0"}, ["JOB_COMPLETION_INDEX='0'", "HOSTNAME='1'", "RANKLAUNCH_NODE"]),
        ({"JOB_COMPLETION_INDEX": "one"}, ["JOB_COMPLETION_INDEX='one'"]),
        ({"RANKLAUNCH_NODE": "2"}, ["RANKLAUNCH_NODE=2", "0 to 1"]),
        ({"RANKLAUNCH_HOSTS": "a,b,c"}, ["RANKLAUNCH_HOSTS names 3 hosts", "RANKLAUNCH_NODES=2"]),
        ({"RANKLAUNCH_SLOTS": "1,2,3"}, ["RANKLAUNCH_SLOTS='1,2,3'"]),
    ],
)
def test_refused(pod: str, env: dict[str, str], words: list[str]) -> None:
    index = env.get("JOB_COMPLETION_INDEX", "1")
    full = f"{pod}.{pod[0]}.ns.svc"
    with pytest.raises(ConfigError) as caught:
        plan(pod, index, names(full), **{name: value for name, value in env.items() if name != "JOB_COMPLETION_INDEX"})
    assert all(word in str(caught.value) for word in words), caught.value


def test_no_service_is_refused_with_what_would_help() -> None:
    with pytest.raises(ConfigError) as caught:
        plan("train-1", "1")
    assert all(word in str(caught.value) for word in ("RANKLAUNCH_HOSTS", "RANKLAUNCH_MASTER_ADDR", "headless Service", "subdomain"))


def test_pods_of_several_jobs_need_the_users_word() -> None:
    files = names("a-b-3-0.a.ns.svc")
    with pytest.raises(ConfigError, match="Job 3 of b"):
        plan("a-b-3-0", "0", files)
    job = plan("a-b-1-0", "0", names("a-b-1-0.a.ns.svc"), RANKLAUNCH_HOSTS="p,q", RANKLAUNCH_NODE="1").job
    assert (job.node_index, job.node.host) == (1, "q")


def test_an_indexed_job_whose_name_begins_like_its_services() -> None:
    files = names("train-run-3-1.train.ns.svc.cluster.local")
    with pytest.raises(ConfigError, match="Indexed Job train-run-3, RANKLAUNCH_PLATFORM=indexed_job"):
        plan("train-run-3-1", "1", files)
    job = plan("train-run-3-1", "1", files, RANKLAUNCH_PLATFORM="indexed_job").job
    assert (job.name, job.node_index) == ("train-run-3", 1)
    assert [node.host for node in job.nodes] == ["train-run-3-0.train", "train-run-3-1.train"]


@pytest.mark.parametrize("nodes", ["", "2"])
def test_the_launcher_of_a_trainjobs_mpi_policy_is_refused(nodes: str) -> None:
    files = {**names("tj-launcher-0-0.tj.ns.svc"), "/etc/mpi/hostfile": "tj-node-0-0.tj slots=1\ntj-node-0-1.tj slots=1\n"}
    with pytest.raises(ConfigError) as caught:
        plan("tj-launcher-0-0", "0", files, RANKLAUNCH_NODES=nodes)
    (problem,) = caught.value.problems
    assert all(word in problem for word in ("HOSTNAME=tj-launcher-0-0", "mlPolicy.mpi", "ranklaunch-gpu-mpi")), problem
    job = plan("tj-launcher-0-0", "0", files, RANKLAUNCH_NODES=nodes, RANKLAUNCH_HOSTS="tj-launcher-0-0.tj,b").job
    assert [node.host for node in job.nodes] == ["tj-launcher-0-0.tj", "b"]


@pytest.mark.parametrize("index", ["0", "7"])
def test_the_only_node_has_index_0(index: str) -> None:
    assert plan("train-0", index, RANKLAUNCH_NODES="1").job.node_index == 0


@pytest.mark.parametrize(("restarts", "attempt", "expected"), [("", "", 1), ("0", "", 1), ("4", "", 5), ("4", "2", 2)])
def test_attempt(restarts: str, attempt: str, expected: int) -> None:
    found = plan("a-b-0-1", "1", names("a-b-0-1.a.ns.svc"), RANKLAUNCH_RESTARTS=restarts, RANKLAUNCH_ATTEMPT=attempt)
    assert found.job.attempt == expected


def test_devices_are_slots() -> None:
    files = {**names("train-1.svc.ns.svc"), "/dev/nvidia0": "", "/dev/nvidia1": "", "/dev/nvidiactl": ""}
    assert [node.slots for node in plan("train-1", "1", files).job.nodes] == [2, 2]


def test_the_index_is_no_variable_of_the_ranks_of_mpirun() -> None:
    env = {"HOSTNAME": "train-0", "JOB_COMPLETION_INDEX": "0", "RANKLAUNCH_NODES": "2"}
    found = helpers.plan(env, files=names("train-0.svc.ns.svc"), method="mpirun")
    assert "JOB_COMPLETION_INDEX" not in found.processes[0].argv


# On the host's network, where HOSTNAME is the machine's

KUBELETS = {"/etc/hosts": "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n10.0.0.7 gpu-0 gpu-1 gpu-a\n"}


@pytest.mark.parametrize(("machines", "files"), [(("gpu-a", "gpu-b"), {}), (("gpu-a", "gpu-b"), KUBELETS), (("gpu-0", "gpu-7"), KUBELETS)])
@pytest.mark.parametrize("told", ["", "mine"])
def test_a_machines_name_names_no_job(machines: tuple[str, str], files: dict[str, str], told: str) -> None:
    common = {"RANKLAUNCH_MASTER_ADDR": "j-0.j", "RANKLAUNCH_JOB_NAME": told}
    jobs = [plan(machine, str(i), files, **common).job for i, machine in enumerate(machines)]
    assert [(job.node_index, job.name) for job in jobs] == [(i, told or "indexed_job") for i in (0, 1)]


def test_a_machine_that_is_called_like_a_sets_pod() -> None:
    job = plan("gpu-rack-1-3", "1", KUBELETS, RANKLAUNCH_MASTER_ADDR="j-0.j", RANKLAUNCH_JOB_NAME="gpu").job
    assert (job.platform, job.node_index) == ("indexed_job", 1)
