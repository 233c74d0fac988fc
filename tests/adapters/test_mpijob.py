"""MPIJob: the launcher has the host file, a worker its name alone; node 0 may have no ranks."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Plan

FILE = "/etc/mpi/hostfile"
WORKERS = "pi-worker-0.pi.ns.svc slots=2\npi-worker-1.pi.ns.svc slots=2\n"
LAUNCHER = "pi-launcher.pi.ns.svc slots=2\n"
TOLD = {"RANKLAUNCH_NODES": "3", "RANKLAUNCH_SLOTS": "2"}


def launcher(text: str = WORKERS, **env: str) -> Plan:
    return helpers.plan({"K_MPI_JOB_ROLE": "launcher", "HOSTNAME": "pi-launcher", **env}, files={FILE: text})


def worker(**env: str) -> Plan:
    return helpers.plan({"K_MPI_JOB_ROLE": "worker", "HOSTNAME": "pi-worker-1", **env})


def refused(plan: object, *args: str, **env: str) -> str:
    assert callable(plan)
    with pytest.raises(ConfigError) as caught:
        plan(*args, **env)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        (WORKERS, [0, 2, 2]),
        (LAUNCHER + WORKERS, [2, 2, 2]),
        ("# x\n\npi-worker-0.pi slots = 3 # y\r\npi-worker-1.pi\n", [0, 3, 1]),
        ("pi-worker-0.pi.ns.svc:4\npi-worker-1.pi.ns.svc:2\n", [0, 4, 2]),
    ],
)
def test_launcher(text: str, slots: list[int]) -> None:
    found = launcher(text)
    assert (found.method, found.job.platform, found.job.name, found.job.node_index) == ("mpirun", "mpijob", "pi", 0)
    assert [node.host for node in found.job.nodes] == ["pi-launcher.pi", "pi-worker-0.pi", "pi-worker-1.pi"]
    assert [node.slots for node in found.job.nodes] == slots
    rows = next(file.text for file in found.files if file.path.endswith("hostfile")).splitlines()
    assert len(rows) == sum(map(bool, slots))
    assert found.processes[0].argv[:3] == ("mpirun", "-np", str(sum(slots)))


@pytest.mark.parametrize("as_worker", ["", "true"])
def test_a_worker_agrees_with_its_launcher(as_worker: str) -> None:
    mine = worker(**TOLD, RANKLAUNCH_LAUNCHER_AS_WORKER=as_worker)
    its = launcher((LAUNCHER if as_worker else "") + WORKERS)
    assert mine.job.node_index == 2
    assert mine.job.nodes == its.job.nodes
    assert mine.muster is not None
    assert its.muster is not None
    assert mine.muster.facts == helpers.of_all(its.muster.facts)
    assert (mine.processes, len(mine.services)) == ((), 1)


def test_the_default_host_file_does_not_reach_mpirun() -> None:
    assert "OMPI_MCA_orte_default_hostfile" in launcher(OMPI_MCA_orte_default_hostfile=FILE).processes[0].unset


def test_a_method_of_the_users_comes_first() -> None:
    assert launcher(LAUNCHER + WORKERS, RANKLAUNCH_METHOD="torchrun").method == "torchrun"


def test_slots_of_the_users_come_first() -> None:
    assert [node.slots for node in launcher(RANKLAUNCH_SLOTS="4").job.nodes] == [0, 4, 4]
    assert [node.slots for node in launcher(RANKLAUNCH_SLOTS="0,1,3").job.nodes] == [0, 1, 3]
    assert [node.slots for node in launcher(MY_MPI_SLOTS="5").job.nodes] == [0, 5, 5]


@helpers.for_each(
    [
        (WORKERS, {"RANKLAUNCH_METHOD": "spawn"}, ["RANKLAUNCH_METHOD=spawn", "runLauncherAsWorker", "mpirun"]),
        (WORKERS, {"RANKLAUNCH_NODES": "4"}, ["RANKLAUNCH_NODES=4", FILE, "3 hosts"]),
        (WORKERS, {"RANKLAUNCH_LAUNCHER_AS_WORKER": "true"}, ["RANKLAUNCH_LAUNCHER_AS_WORKER=true", FILE]),
        (LAUNCHER + WORKERS, {"RANKLAUNCH_LAUNCHER_AS_WORKER": "false"}, ["RANKLAUNCH_LAUNCHER_AS_WORKER=false", FILE]),
        ("pi-worker-0.pi slots=x\n", {}, [FILE, "line 1", "slots=N"]),
        ("a;b slots=1\n", {}, [FILE, "line 1"]),
        ("", {}, ["RANKLAUNCH_NODES"]),
        (WORKERS, {"RANKLAUNCH_HOSTS": "a,b"}, ["RANKLAUNCH_HOSTS names 2 hosts"]),
        (WORKERS, {"RANKLAUNCH_SLOTS": "1,2"}, ["RANKLAUNCH_SLOTS='1,2'", "3 nodes"]),
        (WORKERS, {"K_MPI_JOB_ROLE": "boss"}, ["K_MPI_JOB_ROLE='boss'", "launcher, worker"]),
    ]
)
def test_launcher_is_refused(text: str, env: dict[str, str], words: list[str]) -> None:
    message = refused(launcher, text, **env)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, ["RANKLAUNCH_NODES", "Worker's template"]),
        ({**TOLD, "HOSTNAME": "pi-worker-2"}, ["number in HOSTNAME=3", "0 to 2"]),
        ({**TOLD, "HOSTNAME": "host17"}, ["RANKLAUNCH_HOSTS", "RANKLAUNCH_NODE"]),
    ],
)
def test_worker_is_refused(env: dict[str, str], words: list[str]) -> None:
    message = refused(worker, **env)
    assert all(word in message for word in words), message


def test_a_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=FILE):
        helpers.plan({"K_MPI_JOB_ROLE": "launcher"}, files={FILE: ValueError("not UTF-8")})


# On the host's network, where HOSTNAME is the machine's

MACHINES = {"/etc/hosts": "# Kubernetes-managed hosts file (host network).\n10.0.0.7 x-worker-0\n"}
ON_HOST = {"K_MPI_JOB_ROLE": "worker", "HOSTNAME": "x-worker-0", **TOLD, "RANKLAUNCH_NODE": "1"}


@pytest.mark.parametrize(
    "told",
    [
        {"RANKLAUNCH_MASTER_ADDR": "pi-launcher.pi"},
        {"RANKLAUNCH_HOSTS": "pi-launcher.pi.ns.svc,pi-worker-0.pi.ns.svc,c"},
        {"RANKLAUNCH_MASTER_ADDR": "10.0.0.1", "RANKLAUNCH_JOB_NAME": "pi"},
    ],
)
def test_a_workers_job_is_its_launchers(told: dict[str, str]) -> None:
    job = helpers.plan({**ON_HOST, **told}, files=MACHINES).job
    assert (job.name, job.node_index) == (launcher().job.name, 1)


def test_a_worker_that_does_not_know_its_job_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"HOSTNAME=x-worker-0.*RANKLAUNCH_JOB_NAME"):
        helpers.plan({**ON_HOST, "RANKLAUNCH_MASTER_ADDR": "10.0.0.1"}, files=MACHINES)
