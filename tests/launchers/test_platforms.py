"""Jobs of Kubernetes' engines for real: each container with the variables, the name and the files that its engine gives it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess

import pytest
from pod_jobs import PYTHON, MakePods, Pods, needs_mpi

from testbench.places import child

pytestmark = pytest.mark.launchers

PLACE = 'echo "place $RANK of $WORLD_SIZE, node $GROUP_RANK, at $MASTER_ADDR:$MASTER_PORT"'
SUM = (child("sums.py"), "MASTER_ADDR", "MASTER_PORT")


def spawned(at: str) -> list[str]:
    return [f"{rank} of 3, node {node}, at {at}" for rank, node in ((0, 0), (1, 1), (2, 1))]


SPAWN = {"RANKLAUNCH_METHOD": "spawn", "RANKLAUNCH_SLOTS": "1,2"}


def test_volcano_with_a_master_and_a_worker(pods: MakePods) -> None:
    job = pods("j-master-0.j", "j-worker-0.j")
    lists = {"VC_MASTER_HOSTS": "j-master-0.j", "VC_MASTER_NUM": "1", "VC_WORKER_HOSTS": "j-worker-0.j", "VC_WORKER_NUM": "1"}
    plugin = {"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "VC_TASK_INDEX": "0", "VK_TASK_INDEX": "0"}
    job.launch([{**lists, **plugin, **SPAWN, "RANK": str(i)} for i in (0, 1)], "sh", "-c", PLACE)
    job.end(0)
    assert job.places() == spawned("j-master-0.j:23456")


def test_volcano_by_its_files_alone(pods: MakePods) -> None:
    job = pods("j-worker-0.j", "j-worker-1.j")
    for node in (0, 1):
        job.has_file(node, "etc/volcano/worker.host", "j-worker-0.j\nj-worker-1.j\n")
    job.launch([SPAWN, SPAWN], "sh", "-c", PLACE)
    job.end(0)
    assert job.places() == spawned("j-worker-0.j:29500")


def test_volcano_with_a_rank_table_in_the_operators_own_order(pods: MakePods) -> None:
    job = pods("j-worker-0.j", "j-worker-1.j")
    servers = [
        {
            "server_id": host.address, "container_ip": host.address,
            "device": [{"device_id": str(d), "device_ip": f"29.0.{i}.{d}", "rank_id": str(2 * i + d)} for d in (0, 1)],
        }
        for i, host in enumerate(reversed(job.hosts))
    ]  # fmt: skip
    lists = {"VC_WORKER_HOSTS": ",".join(job.names), "VC_WORKER_NUM": "2", "RANKLAUNCH_SLOTS": "2"}
    table = json.dumps({"status": "completed", "version": "1.0", "server_count": "2", "server_list": servers})
    for node in (0, 1):
        job.has_file(node, "user/serverid/devindex/config/hccl.json", table)
    where = 'echo "place $RANK_ID of $RANK_SIZE on $(cat /proc/sys/kernel/hostname)"'
    job.launch([{**lists, "VC_TASK_INDEX": str(i)} for i in (0, 1)], "sh", "-c", where)
    job.end(0)
    assert job.places() == ["0 of 4 on h1", "1 of 4 on h1", "2 of 4 on h0", "3 of 4 on h0"]


def test_pytorchjob(pods: MakePods) -> None:
    job = pods("x-master-0", "x-worker-0")
    master = {"PET_MASTER_ADDR": "x-master-0", "MASTER_ADDR": "x-master-0", "PET_MASTER_PORT": "23456", "MASTER_PORT": "23456"}
    counts = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "WORLD_SIZE": "2"}
    job.launch([{**master, **counts, "PET_NODE_RANK": str(i), "RANK": str(i)} for i in (0, 1)], *SUM)
    job.end(0)
    assert job.places() == [f"{rank} sum 2 at x-master-0 23456" for rank in (0, 1)]


def test_jobset(pods: MakePods) -> None:
    job = pods("j-workers-0-0.j", "j-workers-0-1.j")
    job.launch([{**SPAWN, "JOB_COMPLETION_INDEX": str(i), "RANKLAUNCH_NODES": "2"} for i in (0, 1)], "sh", "-c", PLACE)
    job.end(0)
    assert job.places() == spawned("j-workers-0-0.j:29500")


def test_indexed_job_fails_as_its_first_failing_rank_does(pods: MakePods) -> None:
    job = pods("train-0.svc", "train-1.svc")
    envs = [{**SPAWN, "JOB_COMPLETION_INDEX": str(i), "RANKLAUNCH_NODES": "2"} for i in (0, 1)]
    job.launch(envs, "sh", "-c", f"{PLACE}; [ $RANK = 2 ] && exit 3; exec sleep 600")
    culprit = job.end(3)["culprit"]
    assert (culprit["node"], culprit["rank"]) == (1, 2)


def test_trainer_with_torch_policy(pods: MakePods) -> None:
    job = pods("t-node-0-0.t", "t-node-0-1.t")
    pet = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "t-node-0-0.t", "PET_MASTER_PORT": "29511"}
    job.launch([{**pet, "PET_NODE_RANK": str(i), "JOB_COMPLETION_INDEX": str(i)} for i in (0, 1)], *SUM)
    job.end(0)
    assert job.places() == [f"{rank} sum 2 at t-node-0-0.t 29511" for rank in (0, 1)]


def test_ascend_operator_with_torchrun_at_an_address(pods: MakePods) -> None:
    """The address is node 0's own here: of a Service there is none."""
    job = pods("a-master-0.x", "a-worker-0.x")
    address = job.hosts[0].address
    world = {"MINDX_TASK_ID": "6f1f0c52", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0,1"}
    common = {**world, "MASTER_ADDR": address, "MASTER_PORT": "2222", "RANKLAUNCH_ACCELERATOR": "cpu"}
    job.launch([{**common, "RANK": str(i)} for i in (0, 1)], *SUM)
    job.end(0)
    assert job.places() == [f"{rank} sum 4 at {address} 2222" for rank in range(4)]


needs_msrun = pytest.mark.skipif(not shutil.which("msrun", path=str(PYTHON.parent)), reason="MindSpore is not installed here")


def beside_a_scheduler(job: Pods, **env: str) -> None:
    """The last host is the Service of the first, which is the Scheduler. The operator numbers the Workers alone."""
    scheduler, service = job.hosts[0].address, job.hosts[-1].address
    job.serve(len(job.hosts) - 1, 0, (2222, 18889))
    common = {"MINDX_TASK_ID": "6f1f0c52", "MS_WORKER_NUM": "2", "MS_LOCAL_WORKER": "1", "MS_SCHED_PORT": "2222", **env}
    common.update({"RANKLAUNCH_ACCELERATOR": "cpu", "RANKLAUNCH_METHOD": ""})
    worker = {**common, "MS_SCHED_HOST": service, "MS_ROLE": "MS_WORKER", "NPU_POD": "true"}
    first = {**common, "MS_SCHED_HOST": scheduler, "MS_ROLE": "MS_SCHED", "NPU_POD": "false", "MS_NODE_RANK": "0"}
    job.launch([first, *({**worker, "MS_NODE_RANK": str(i)} for i in (0, 1))], child("mindspore_sum.py"))


@needs_msrun
@pytest.mark.parametrize("muster", [pytest.param("on", marks=pytest.mark.table), "off"])  # the next test has one
def test_ascend_operator_with_a_scheduler_without_npus(pods: MakePods, muster: str) -> None:
    job = pods("a-scheduler-0.x", "a-worker-0.x", "a-worker-1.x", "service")
    beside_a_scheduler(job, RANKLAUNCH_MUSTER=muster)
    for node in job.nodes:
        assert node.popen.wait(240) == 0, f"{node.out}\n{node.err}"
    assert job.places() == ["0 sum 2", "1 sum 2"]
    assert [f"[rank {node.host.index - 1}] place" in node.out for node in job.nodes] == [False, True, True]
    assert "MetaServerNode" in job.nodes[0].log("scheduler.log") or "meta_server_node" in job.nodes[0].log("scheduler.log")


@needs_msrun
def test_a_scheduler_without_npus_outlasts_the_ranks(pods: MakePods) -> None:
    """A rank whose scheduler is gone ends with an error half a minute later, whatever it is saving."""
    job = pods("a-scheduler-0.x", "a-worker-0.x", "a-worker-1.x", "service")
    job.grace_s = 40  # of which the scheduler waits for 80 %: MindSpore takes a while to end
    beside_a_scheduler(job, STOPS_LATE="3")
    for number in (1, 2):
        job.said(number, "sum 2")
    job.nodes[0].popen.send_signal(signal.SIGTERM)
    assert [node.popen.wait(60) for node in job.nodes] == [143] * 3, job.nodes[0].err
    assert all("saved" in node.out for node in job.nodes[1:])
    assert "has unregistered" in job.nodes[0].log("scheduler.log")


# MPIJob

MPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_orte_set_default_slots": "2",
}
MPI_NAMES = ("pi-launcher.pi", "pi-worker-0.pi", "pi-worker-1.pi")
WHERE = 'echo "place $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(cat /proc/sys/kernel/hostname)"'


def mpi_envs(job: Pods, as_worker: bool) -> list[dict[str, str]]:
    """The operator gives the launcher alone the host file; the template of the workers has what they need."""
    listed = job.names if as_worker else job.names[1:]
    job.has_file(0, "etc/mpi/hostfile", "".join(f"{name}.default.svc slots=2\n" for name in listed))
    worker = {"K_MPI_JOB_ROLE": "worker", "RANKLAUNCH_NODES": "3", "RANKLAUNCH_SLOTS": "2"}
    worker["RANKLAUNCH_LAUNCHER_AS_WORKER"] = "true" if as_worker else ""
    return [{**MPI, "K_MPI_JOB_ROLE": "launcher"}, worker, worker]


@needs_mpi
@pytest.mark.parametrize("as_worker", [False, True])
def test_mpijob(pods: MakePods, as_worker: bool) -> None:
    job = pods(*MPI_NAMES)
    job.launch(mpi_envs(job, as_worker), "sh", "-c", WHERE)
    job.end(0)
    where = ["h0", "h0", "h1", "h1", "h2", "h2"][0 if as_worker else 2 :]
    assert job.places() == [f"{rank} of {len(where)} on {host}" for rank, host in enumerate(where)]


@needs_mpi
def test_mpijob_with_its_own_keys_where_a_rank_fails(pods: MakePods) -> None:
    """A key of curve P-521 that is called id_rsa and that all may read, as the operator mounts it at a path of the user's."""
    job = pods(*MPI_NAMES)
    keys = job.folder / "keys"
    keys.mkdir()
    words = ["ssh-keygen", "-q", "-N", "", "-t", "ecdsa", "-b", "521", "-f", keys / "id_rsa"]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=60)
    shutil.copy(keys / "id_rsa.pub", keys / "authorized_keys")
    for path in keys.iterdir():
        path.chmod(0o644)
    for node in range(3):  # where they are looked for, and where they are copied from
        shutil.copytree(keys, job.folder / f"root{node}" / keys.relative_to("/"))
    envs = [{**env, "RANKLAUNCH_SSH_KEYS": str(keys)} for env in mpi_envs(job, as_worker=False)]
    job.launch(envs, "sh", "-c", f"{WHERE}; [ $OMPI_COMM_WORLD_RANK = 3 ] && exit 7; exec sleep 600")
    culprit = job.end(7)["culprit"]
    assert (culprit["node"], culprit["rank"]) == job.culprit_of_mpirun(2, 3)
    assert "ECDSA SHA256:" in job.nodes[1].log("sshd.log")
    assert not any((job.folder / "run").iterdir())
