"""Pods as they are rendered, with what their engine adds, are read by the platform's adapter as the job that was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helpers
import pytest
import spec_cases

from ranklaunch.specs.model import OF_KUBERNETES

pytestmark = pytest.mark.specs

ASKED = ("--name", "llm", "--image", "train:1", "--nodes", "2", "--devices", "4")
HOSTS_FILE = "10.0.0.2 {pod}.llm.ns.svc.cluster.local {pod}\n"
VOLCANO = {"VC_TASK_INDEX": "1", "VK_TASK_INDEX": "1", "VC_WORKER_NUM": "2", "VC_WORKER_HOSTS": "llm-worker-0.llm,llm-worker-1.llm"}
ASCEND = {
    "MINDX_TASK_ID": "1", "MINDX_SERVER_IP": "10.0.0.2", "RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "0,1,2,3",
    "MASTER_ADDR": "10.9.9.9", "MASTER_PORT": "2222", "REPLICA_TYPE": "Worker",
}  # fmt: skip
INDEX = {"JOB_COMPLETION_INDEX": "1"}

# kind: (options, pod of node 1, what the engine adds, platform, hosts in node order, attempt after two restarts)
WORLDS: dict[str, tuple[tuple[str, ...], str, Mapping[str, str], str, list[str], int]] = {
    "job": ((), "llm-1", INDEX, "indexed_job", ["llm-0.llm", "llm-1.llm"], 1),
    "jobset": ((), "llm-worker-0-1", INDEX, "jobset", ["llm-worker-0-0.llm", "llm-worker-0-1.llm"], 3),
    "trainjob": ((), "llm-node-0-1", INDEX, "kubeflow_trainer", ["llm-node-0-0.llm", "llm-node-0-1.llm"], 3),
    "volcano": ((), "llm-worker-1", VOLCANO, "volcano", ["llm-worker-0.llm", "llm-worker-1.llm"], 3),
    "acjob": (("--device-kind", "npu"), "llm-worker-0", ASCEND, "ascend_operator", ["10.9.9.9", ""], 3),
}


def containers(kind: str, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.extend([value] if {"command", "args", "env"} <= value.keys() else [])
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            look(each)

    result = helpers.call("spec", kind, *ASKED, *options, "--", "train.py")
    assert result.code == 0, result.err
    look(spec_cases.objects_in(result.out))
    return found


def planned(
    folder: Path, container: dict[str, Any], added: Mapping[str, str], pod: str, mpi_hosts: str = "", hosts_file: str = HOSTS_FILE
) -> dict[str, Any]:
    env = {variable["name"]: variable.get("value", "2") for variable in container["env"]}  # the other ones are counts of restarts
    env.update(added, HOSTNAME=pod, PATH="/usr/bin:/bin")
    root = folder / "root"
    (root / "etc" / "mpi").mkdir(parents=True, exist_ok=True)
    (root / "etc" / "hosts").write_text(hosts_file.format(pod=pod), encoding="utf-8")
    (root / "etc" / "mpi" / "hostfile").write_text(mpi_hosts, encoding="utf-8")
    path = folder / "env.json"
    path.write_text(json.dumps(env), encoding="utf-8")
    plan = helpers.call("plan", "--format", "json", "--env-file", str(path), "--root", str(root), *container["args"]).json
    assert plan["warnings"] == []
    return dict(plan)


@pytest.mark.parametrize("kind", WORLDS)
def test_node_finds_its_job(kind: str, tmp_path: Path) -> None:
    options, pod, added, platform, hosts, attempt = WORLDS[kind]
    for container in containers(kind, *options, "--method", "torchrun"):
        plan = planned(tmp_path, container, added, pod)
        job = plan["job"]
        assert (plan["platform"], plan["method"], job["name"], job["attempt"]) == (platform, "torchrun", "llm", attempt)
        assert [(node["host"], node["slots"]) for node in job["nodes"]] == [(host, 4) for host in hosts]
        assert (job["node_index"], job["accelerator"]) == (1, "npu" if kind == "acjob" else "gpu")


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
@pytest.mark.parametrize(("method", "everyone"), [("torchrun", False), ("deepspeed", True)])
def test_pod_on_the_hosts_network_finds_its_job(kind: str, method: str, everyone: bool, tmp_path: Path) -> None:
    """Its HOSTNAME is the machine's there, and /etc/hosts too."""
    _, _, added, _, hosts, attempt = WORLDS[kind]
    options = ("--method", method, "--set", "network.hostNetwork=true")
    for container in containers(kind, *options):
        job = planned(tmp_path, container, added, "machine-7", hosts_file="10.0.0.7 machine-7\n")["job"]
        assert [node["host"] for node in job["nodes"]] == (hosts if everyone else [hosts[0], ""])
        assert (job["name"], job["attempt"], job["node_index"]) == ("llm", attempt, 1)


@pytest.mark.parametrize("given", [{}, {"masterPort": "3333", "musterPort": "4444"}])
def test_leaders_service_of_an_acjob_lets_through_what_node_0_listens_at(given: dict[str, str], tmp_path: Path) -> None:
    options = [word for name, port in given.items() for word in ("--set", f"network.{name}={port}")]
    for container in containers("acjob", "--device-kind", "npu", "--method", "torchrun", *options):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        added = {**ASCEND, "MASTER_PORT": str(ports["ascendjob-port"])}  # the operator looks for it by its name
        muster = planned(tmp_path, container, added, "llm-worker-0")["muster"]
        assert {int(muster["facts"]["master_port"]), muster["port"]} == set(ports.values())
        assert set(ports.values()) == (set(map(int, given.values())) or {2222, 18889})


@pytest.mark.parametrize("kind", OF_KUBERNETES)
def test_no_variable_is_longer_than_linux_allows(kind: str) -> None:
    options = {"mpijob": ("--method", "mpirun"), "acjob": ("--device-kind", "npu")}.get(kind, ())
    for container in containers(kind, *options, "--nodes", "100000"):
        assert max(len(variable.get("value", "")) for variable in container["env"]) < 100


def test_too_many_names_for_one_variable_are_refused() -> None:
    options = ("--nodes", "10000", "--method", "deepspeed", "--set", "network.hostNetwork=true", "--env", f"LONG={'x' * 131072}")
    result = helpers.call("spec", "jobset", *ASKED, *options, "--", "train.py")
    assert result.code == 78
    assert "nodes=10000: RANKLAUNCH_HOSTS: " in result.err
    assert "env.LONG: 131077 bytes, expected fewer than 131072" in result.err


@pytest.mark.parametrize("with_ranks", [True, False])
def test_launcher_and_worker_of_an_mpijob_agree(with_ranks: bool, tmp_path: Path) -> None:
    option = f"mpi.launcherAsWorker={str(with_ranks).lower()}"
    pods = containers("mpijob", "--method", "mpirun", "--set", option)
    workers = ["worker-0"] if with_ranks else ["worker-0", "worker-1"]
    listed = ["launcher", *workers] if with_ranks else workers
    file = "".join(f"llm-{name}.llm.ns.svc slots=4\n" for name in listed)
    launcher = planned(tmp_path, pods[0], {"K_MPI_JOB_ROLE": "launcher"}, "llm-launcher", file)
    worker = planned(tmp_path, pods[1], {"K_MPI_JOB_ROLE": "worker"}, "llm-worker-0")
    assert launcher["job"]["nodes"] == worker["job"]["nodes"]
    assert [node["host"] for node in worker["job"]["nodes"]] == [f"llm-{name}.llm" for name in ("launcher", *workers)]
    assert [plan["job"]["node_index"] for plan in (launcher, worker)] == [0, 1]
    assert launcher["job"]["world_size"] == 8
