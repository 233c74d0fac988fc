"""Pods as they are rendered, with what their engine adds, are read by the platform's adapter as the job that was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helpers
import pytest
import spec_cases

from ranklaunch.specs.model import OF_KUBERNETES
from testbench import engine_pods
from testbench.engine_pods import Asked

pytestmark = pytest.mark.specs

ASKED = ("--name", "llm", "--image", "train:1", "--nodes", "2", "--devices", "4")
MACHINES_HOSTS_FILE = "10.0.0.7 machine-7\n"
ATTEMPTS = {"job": 1}  # after two restarts; the others say which start it is
PLATFORMS = {"job": "indexed_job", "trainjob": "kubeflow_trainer", "acjob": "ascend_operator"}  # the others are called as their kind
OPTIONS = {"mpijob": ("--method", "mpirun"), "acjob": ("--device-kind", "npu")}


def containers(kind: str, *options: str) -> list[dict[str, Any]]:
    result = helpers.call("spec", kind, *ASKED, *options, "--", "train.py")
    assert result.code == 0, result.err
    return list(engine_pods.every_container(spec_cases.objects_in(result.out)))


def planned(folder: Path, container: dict[str, Any], job: Asked, index: int, hosts_file: str = "", **given: str) -> dict[str, Any]:
    env = {**engine_pods.environment(container, job._replace(restarts=2), index), "PATH": "/usr/bin:/bin", **given}
    root = folder / "root"
    (root / "etc" / "mpi").mkdir(parents=True, exist_ok=True)
    hosts = hosts_file or engine_pods.hosts_file(engine_pods.known_as(job, index))
    (root / "etc" / "hosts").write_text(hosts, encoding="utf-8")
    (root / "etc" / "mpi" / "hostfile").write_text("" if index else engine_pods.mpi_host_file(job), encoding="utf-8")
    path = folder / "env.json"
    path.write_text(json.dumps(env), encoding="utf-8")
    plan = helpers.call("plan", "--format", "json", "--env-file", str(path), "--root", str(root), *container["args"]).json
    assert plan["warnings"] == []
    return dict(plan)


def host_names(job: Asked) -> list[str]:
    return [job.master, ""] if job.engine == "acjob" else [engine_pods.known_as(job, index) for index in range(job.pods)]


@pytest.mark.parametrize("kind", [kind for kind in OF_KUBERNETES if kind != "mpijob"])
def test_node_finds_its_job(kind: str, tmp_path: Path) -> None:
    for container in containers(kind, *OPTIONS.get(kind, ()), "--method", "torchrun"):
        asked = Asked(kind, "llm", 2, 4)
        plan = planned(tmp_path, container, asked, 1)
        job = plan["job"]
        found = (plan["platform"], plan["method"], job["name"], job["attempt"])
        assert found == (PLATFORMS.get(kind, kind), "torchrun", "llm", ATTEMPTS.get(kind, 3))
        assert [(node["host"], node["slots"]) for node in job["nodes"]] == [(host, 4) for host in host_names(asked)]
        assert (job["node_index"], job["accelerator"]) == (1, "npu" if kind == "acjob" else "gpu")


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
@pytest.mark.parametrize(("method", "everyone"), [("torchrun", False), ("deepspeed", True)])
def test_pod_on_the_hosts_network_finds_its_job(kind: str, method: str, everyone: bool, tmp_path: Path) -> None:
    """Its HOSTNAME is the machine's there, and /etc/hosts too."""
    asked = Asked(kind, "llm", 2, 4)
    hosts = host_names(asked)
    for container in containers(kind, "--method", method, "--set", "network.hostNetwork=true"):
        job = planned(tmp_path, container, asked, 1, MACHINES_HOSTS_FILE, HOSTNAME="machine-7")["job"]
        assert [node["host"] for node in job["nodes"]] == (hosts if everyone else [hosts[0], ""])
        assert (job["name"], job["attempt"], job["node_index"]) == ("llm", ATTEMPTS.get(kind, 3), 1)


@pytest.mark.parametrize(("kind", "index"), [("volcano", 0), ("volcano", 1), ("acjob", 0), ("acjob", 1)])
def test_engine_tells_a_pod_on_the_hosts_network_its_job(kind: str, index: int, tmp_path: Path) -> None:
    asked = Asked(kind, "llm", 2, 4)
    for container in containers(kind, *OPTIONS.get(kind, ()), "--method", "torchrun", "--set", "network.hostNetwork=true"):
        job = planned(tmp_path, container, asked, index, MACHINES_HOSTS_FILE, HOSTNAME="machine-7")["job"]
        assert ([node["host"] for node in job["nodes"]], job["node_index"]) == (host_names(asked), index)


@pytest.mark.parametrize("given", [{}, {"masterPort": "3333", "musterPort": "4444"}])
def test_leaders_service_of_an_acjob_lets_through_what_node_0_listens_at(given: dict[str, str], tmp_path: Path) -> None:
    options = [word for name, port in given.items() for word in ("--set", f"network.{name}={port}")]
    for container in containers("acjob", "--device-kind", "npu", "--method", "torchrun", *options):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        by_name = str(ports["ascendjob-port"])  # as the operator looks for it
        muster = planned(tmp_path, container, Asked("acjob", "llm", 2, 4), 1, MASTER_PORT=by_name)["muster"]
        assert {int(muster["facts"]["master_port"]), muster["port"]} == set(ports.values())
        assert set(ports.values()) == (set(map(int, given.values())) or {2222, 18889})


@pytest.mark.parametrize("kind", OF_KUBERNETES)
def test_no_variable_is_longer_than_linux_allows(kind: str) -> None:
    for container in containers(kind, *OPTIONS.get(kind, ()), "--nodes", "100000"):
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
    asked = Asked("mpijob", "llm", 2, 4, with_ranks)
    launcher, worker = (planned(tmp_path, pods[index], asked, index) for index in (0, 1))
    assert launcher["job"]["nodes"] == worker["job"]["nodes"]
    assert [node["host"] for node in worker["job"]["nodes"]] == host_names(asked)
    assert [plan["job"]["node_index"] for plan in (launcher, worker)] == [0, 1]
    assert launcher["job"]["world_size"] == 8
