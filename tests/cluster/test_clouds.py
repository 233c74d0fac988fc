"""Jobs on two or three hosts that are started as clouds and job services start theirs: with their variables, and ended as they end them."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbench.hosts import Host, Hosts
from testbench.jobs.on_hosts import LONG_S, LauncherJob
from testbench.places import child
from testbench.waiting import sleep_until

Place = Callable[[int, Hosts, Path], dict[str, str]]


def skypilot(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    addresses = "\n".join(host.address for host in hosts)
    return {"SKYPILOT_NODE_RANK": str(node), "SKYPILOT_NUM_NODES": str(len(hosts)), "SKYPILOT_NODE_IPS": addresses}


def dstack(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "DSTACK_NODE_RANK": str(node), "DSTACK_NODES_NUM": str(len(hosts)), "DSTACK_NODES_IPS": "\n" * (len(hosts) - 1),
        "DSTACK_MASTER_NODE_IP": hosts[0].address, "DSTACK_RUN_NAME": "run",
    }  # fmt: skip


def aws_batch(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    """The last is the main node."""
    main = len(hosts) - 1
    told = {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": hosts[main].address} if node != main else {}
    return {
        "AWS_BATCH_JOB_NODE_INDEX": str(node), "AWS_BATCH_JOB_NUM_NODES": str(len(hosts)), "AWS_BATCH_JOB_MAIN_NODE_INDEX": str(main),
        "AWS_BATCH_JOB_ID": f"7f1d#{node}", "AWS_BATCH_JOB_ATTEMPT": "1", **told,
    }  # fmt: skip


def azureml(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "AZUREML_RUN_ID": "run", "AZ_BATCH_HOST_LIST": ",".join(host.address for host in hosts), "NODE_RANK": str(node),
        "MASTER_ADDR": hosts[0].address, "MASTER_PORT": "6105", "RANK": str(node), "WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": "0",
    }  # fmt: skip


def runpod(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "NODE_RANK": str(node), "NUM_NODES": str(len(hosts)), "NUM_TRAINERS": "1", "WORLD_SIZE": str(len(hosts)),
        "PRIMARY_ADDR": hosts[0].address, "MASTER_ADDR": hosts[0].address, "NODE_ADDR": hosts[node].address,
    }  # fmt: skip


def lepton(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    hosts.name(None, f"ft-{node}.svc", hosts[node])
    return {
        "LEPTON_JOB_NAME": "ft", "LEPTON_SUBDOMAIN": "svc", "LEPTON_JOB_TOTAL_WORKERS": str(len(hosts)),
        "LEPTON_JOB_WORKER_INDEX": str(node),
    }  # fmt: skip


def metaflow(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    own = {"MF_PARALLEL_NUM_NODES": str(len(hosts)), "MF_PARALLEL_NODE_INDEX": str(node), "MF_PARALLEL_MAIN_IP": hosts[0].address}
    return {**own, "NODE_RANK": str(node), "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0].address}


def gcp_batch(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    """The lines are not in the order of the tasks."""
    (folder / "hosts").write_text("".join(f"{host.name}\n" for host in hosts))
    return {"BATCH_TASK_INDEX": str(len(hosts) - 1 - node), "BATCH_TASK_COUNT": str(len(hosts)), "BATCH_HOSTS_FILE": str(folder / "hosts")}


def aihc(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    hosts.name(None, "pj-master-0", hosts[0])
    own = {"AIHC_JOB_NAME": "pj", "HOSTNAME": "pj-worker-0" if node else "pj-master-0", "MASTER_ADDR": "pj-master-0", "NPROC_PER_NODE": "1"}
    return {**own, "MASTER_PORT": "23456", "WORLD_SIZE": str(len(hosts)), "RANK": str(node)}


def pytorchjob(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    """As the oldest operators have it, whose master is told localhost."""
    hosts.name(None, "pt-master-0", hosts[0])
    own = {"HOSTNAME": "pt-worker-0", "MASTER_ADDR": "pt-master-0"} if node else {"HOSTNAME": "pt-master-0", "MASTER_ADDR": "localhost"}
    return {**own, "MASTER_PORT": "23456", "WORLD_SIZE": str(len(hosts)), "RANK": str(node)}


def tione(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "NODE_LIST": ",".join(f"{host.name}:1" for host in hosts), "INDEX": str(node), "GPU_NUM": str(len(hosts)), "GPU_NUM_PER_NODE": "1",
        "MASTER_ADDR": hosts[0].address, "MASTER_PORT": "23456", "WORLD_SIZE": str(len(hosts)), "RANK": str(node),
    }  # fmt: skip


def paddlejob(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    hosts.name(None, f"pd-worker-{node}", hosts[node])
    master = "pd-worker-0" if node else hosts[0].address
    own = {"PADDLE_JOB_ID": "pd", "PADDLE_NNODES": str(len(hosts)), "PADDLE_MASTER": f"{master}:36543"}
    return {**own, "HOSTNAME": f"pd-worker-{node}"}


def determined(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    root = folder / f"root{node}"
    file = root / "run/determined/info/rendezvous.json"
    file.parent.mkdir(parents=True)
    addresses = [host.address for host in hosts]
    file.write_text(json.dumps({"container_addrs": addresses, "container_rank": node, "container_slot_counts": [1] * len(hosts)}))
    return {"DET_TASK_ID": "t", "DET_ALLOCATION_ID": "t.0", "DET_TRIAL_RUN_ID": "1", "RANKLAUNCH_ROOT": str(root)}


def beaker(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "BEAKER_JOB_ID": f"j{node}", "BEAKER_NODE_ID": f"n{node}", "BEAKER_EXPERIMENT_ID": "e", "BEAKER_REPLICA_COUNT": str(len(hosts)),
        "BEAKER_REPLICA_RANK": str(node), "BEAKER_LEADER_REPLICA_HOSTNAME": hosts[0].name, "BEAKER_NODE_HOSTNAME": hosts[node].name,
        "BEAKER_ASSIGNED_GPU_COUNT": "1",
    }  # fmt: skip


def leaderworkerset(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    pod = f"lws-0-{node}" if node else "lws-0"
    hosts.name(None, f"{pod}.lws.ns", hosts[node])
    own = {"LWS_LEADER_ADDRESS": "lws-0.lws.ns", "LWS_GROUP_SIZE": str(len(hosts)), "LWS_WORKER_INDEX": str(node)}
    return {**own, "HOSTNAME": pod}


def mosaicml(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    return {
        "MOSAICML_PLATFORM": "true", "RUN_NAME": "run", "NUM_NODES": str(len(hosts)), "NODE_RANK": str(node), "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0].address, "MASTER_PORT": "7501",
    }  # fmt: skip


def oci(node: int, hosts: Hosts, folder: Path) -> dict[str, str]:
    (folder / "nodes").write_text(json.dumps([{"Rank": host.index, "IPAddress": host.address} for host in hosts]))
    own = {"JOB_RUN_OCID": "ocid1.r", "NODE_RANK": str(node), "INITIAL_CLUSTER_SIZE": str(len(hosts))}
    return {**own, "CLUSTER_NODES_METADATA_FILE": str(folder / "nodes")}


# Which stop a container by SIGTERM, and SIGKILL after half a minute or an unknown time.
BY_SIGTERM = (aihc, pytorchjob, tione, paddlejob, determined, beaker, leaderworkerset, mosaicml, oci)
OTHERS = (skypilot, dstack, aws_batch, azureml, runpod, lepton, metaflow, gcp_batch)
PLACES: dict[str, Place] = {each.__name__: each for each in (*OTHERS, *BY_SIGTERM)}


class CloudJob(LauncherJob):
    """Its nodes know one another by what the place tells them, and by nothing else."""

    def __init__(self, hosts: Hosts, folder: Path, place: str, method: str = "spawn") -> None:
        super().__init__(hosts, folder, method, slots=1)
        self._place = PLACES[place]

    def _environment(self, host: Host) -> dict[str, str]:
        env = super()._environment(host)
        ours = {name: value for name, value in env.items() if not name.startswith("RANKLAUNCH_")}
        return {**ours, **self._place(host.index, self._hosts, self.folder)}


# torchrun on several hosts is in test_torchrun.py and test_chaos.py; here it would meet by the same plan as everywhere.
CASES = [
    pytest.param(place, method, marks=() if (place, method) == ("aws_batch", "spawn") else pytest.mark.table)
    for place, method in itertools.product([each.__name__ for each in OTHERS], ("spawn", "torchrun"))
]


@pytest.mark.processes
@pytest.mark.parametrize(("place", "method"), CASES)
def test_nodes_meet_by_what_the_place_tells_them(place: str, method: str, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = CloudJob(hosts(2), tmp_path, place, method)
    job.start(child("sums.py"))
    job.end(0)
    first = 1 if place == "aws_batch" else 0
    ranks = [job.nodes[first].log("rank_0.log"), job.nodes[1 - first].log("rank_1.log")]
    assert ranks == [f"place {rank} sum 2\n" for rank in range(2)]


@pytest.mark.processes
def test_skypilot_kills_all_with_the_first_that_leaves_when_all_is_written(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """One of them hears of all later than the others, so that it would be killed before it knew how the job has ended."""
    cluster = hosts(3)
    cluster[2].delay(ms=300)
    job = CloudJob(cluster, tmp_path, "skypilot")
    job.start(child("exits.py"), 3, "--rank", 1)
    sleep_until(lambda: any(node.popen.poll() is not None for node in job.nodes), job.words, LONG_S)
    codes = [node.popen.poll() for node in job.nodes]
    for node in job.nodes:
        node.popen.kill()
    for node in job.nodes:
        node.popen.wait(LONG_S)
        node.host.wait_until_empty()
    assert {code for code in codes if code is not None} == {3}
    assert [(node.verdict["exit_code"], node.verdict["culprit"]["rank"]) for node in job.nodes] == [(3, 1)] * 3


@pytest.mark.processes
def test_a_dead_child_of_aws_batch_ends_the_main_node(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    """Whose exit code is the job's: the platform does not notice a child's end."""
    job = CloudJob(hosts(2), tmp_path, "aws_batch")
    job.start(child("sleeper.py"))
    job.said(0, "ready")
    job.said(1, "ready")
    job.nodes[0].popen.kill()
    assert job.nodes[1].popen.wait(LONG_S) == 137
    assert "node 1" in job.nodes[1].verdict["reason"]


@pytest.mark.processes
def test_dstack_stops_by_sigint_alone(hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = CloudJob(hosts(2), tmp_path, "dstack")
    job.grace_s = 8
    job.start(child("sleeper.py"), prefix=("bash", "-c", 'exec "$@"', "bash"))
    job.said(0, "ready")
    job.said(1, "ready")
    for node in job.nodes:
        node.popen.send_signal(signal.SIGINT)
        time.sleep(0.05)  # one after the other, as a server reaches them
    assert job.end(130)["outcome"] == "stopped"


SAVES = f"""
import runpy, signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, save)
runpy.run_path({child("sums.py")!r}, run_name="__main__")
time.sleep(600)
"""


# Where node 0 alone is named, and to itself as localhost; all in a list; all in a file; and all by names that are made of one another.
OF_ONE_KIND = (pytorchjob, tione, determined, leaderworkerset)
STOPPED = [
    pytest.param(each.__name__, method, marks=() if method == "spawn" and each in OF_ONE_KIND else pytest.mark.table)
    for each in BY_SIGTERM
    for method in ("spawn", "torchrun")
]


@pytest.mark.processes
@pytest.mark.parametrize(("place", "method"), STOPPED)
def test_nodes_meet_and_are_stopped_by_sigterm(place: str, method: str, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    job = CloudJob(hosts(2), tmp_path, place, method)
    (tmp_path / "train.py").write_text(SAVES)
    job.start(tmp_path / "train.py", prefix=("bash", "-c", 'exec "$@"', "bash"))
    for node in range(2):
        job.said(node, "sum 2")
    for started in job.nodes:
        started.popen.send_signal(signal.SIGTERM)
        time.sleep(0.05)  # one after the other, as a server reaches them
    assert job.end(143)["outcome"] == "stopped"
    assert [job.nodes[rank].log(f"rank_{rank}.log") for rank in range(2)] == [f"place {rank} sum 2\nsaved\n" for rank in range(2)]
    assert {json.loads(node.log("plan.json"))["platform"] for node in job.nodes} == {place}
