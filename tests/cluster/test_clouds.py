"""Jobs on two or three hosts that are started as clouds and job services start theirs: with their variables, and ended as they end them."""

from __future__ import annotations

import itertools
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


PLACES: dict[str, Place] = {
    each.__name__: each for each in (skypilot, dstack, aws_batch, azureml, runpod, lepton, metaflow, gcp_batch)
}  # fmt: skip


class CloudJob(LauncherJob):
    """Its nodes know one another by what the place tells them, and by nothing else."""

    def __init__(self, hosts: Hosts, folder: Path, place: str, method: str = "spawn") -> None:
        super().__init__(hosts, folder, method, slots=1)
        self._place = PLACES[place]

    def _environment(self, host: Host) -> dict[str, str]:
        env = super()._environment(host)
        ours = {name: value for name, value in env.items() if not name.startswith("RANKLAUNCH_")}
        return {**ours, **self._place(host.index, self._hosts, self.folder)}


CASES = [
    pytest.param(place, method, marks=() if (place, method) in {("skypilot", "torchrun"), ("aws_batch", "spawn")} else pytest.mark.table)
    for place, method in itertools.product(PLACES, ("spawn", "torchrun"))
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
