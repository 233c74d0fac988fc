"""Jobs of MindCluster's Ascend Operator (acjob). PyTorch, MindSpore and TensorFlow have different variables for the same facts.

Node 0 is behind a Service with an address of its own, which passes only the ports that the leader's container declares. The other pods
have no host names.

If a MindSpore job's Scheduler has no NPUs, the operator counts and numbers the Workers alone, and gives each pod a Worker's counts.
Here the Scheduler is node 0 all the same, a node without ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.adapters.platforms.shared.base import Place
from ranklaunch.adapters.platforms.shared.facts import FIRST, Fact, copied
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME
from ranklaunch.env import parse
from ranklaunch.env.job import Job, make_nodes
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import HOSTS, JOB_NAME, MASTER_ADDR, METHOD, NODE_INDEX, NODES, SLOTS

# Names of PyTorch, MindSpore and TensorFlow, in this order.
RANK = platform_count(
    "framework_rank", ("RANK", "MS_NODE_RANK", "CM_RANK"), "index of this node; in a job whose Scheduler has no NPUs, of this Worker"
)
WORLD = platform_count("job_processes", ("WORLD_SIZE", "MS_WORKER_NUM", "CM_WORKER_SIZE"), "number of processes of the job")
LOCAL = platform_count(
    "node_processes", ("LOCAL_WORLD_SIZE", "MS_LOCAL_WORKER", "CM_LOCAL_WORKER"), "number of processes of this node, the same on every node"
)
LEADER = Variable(
    "first_host", ("MASTER_ADDR", "MS_SCHED_HOST", "CM_CHIEF_IP"), parse.host, "", "address of node 0, or of its Service", "platform",
)  # fmt: skip
PORT = Variable(
    "master_port", ("MASTER_PORT", "MS_SCHED_PORT", "CM_CHIEF_PORT"), parse.port, 2222,
    "port of the rendezvous on node 0, which its Service passes", "platform",
)  # fmt: skip
Names = tuple[Variable[Any], ...]  # these five with the names of one framework
PYTORCH, MINDSPORE, TENSORFLOW = FRAMEWORKS = tuple(
    tuple(replace(each, names=(each.names[at],)) for each in (RANK, WORLD, LOCAL, LEADER, PORT)) for at in range(3)
)

MS_ROLE = platform_text("ms_role", ("MS_ROLE",), "role of this pod in a MindSpore job: MS_SCHED or MS_WORKER")
NPU_POD = Variable(
    "npu_pod", ("NPU_POD",), parse.flag, True, "true if this pod of a MindSpore job has NPUs; a Scheduler's pod may have none", "platform",
)  # fmt: skip
AS_WORKER = replace(
    kubernetes.LAUNCHER_AS_WORKER,
    meaning="true if the Scheduler of a MindSpore job has NPUs, and so ranks; the same on every node",
    default_text="false if NPU_POD is false, and on a Worker whose MS_NODE_RANK is its pod's number",
)
POD_IP = platform_text(
    "pod_ip",
    ("POD_IP", "CM_WORKER_IP"),
    "address of this pod, by which it is found in a rank table; on node 0 also the address of msrun's scheduler",
    per_node=True,
    default_text="the address of the pod's name in /etc/hosts",
)
HOST_NETWORK = platform_text(
    "host_network", ("HostNetwork",), "true if the pods are on the host's network, where HOSTNAME is the machine's name"
)
SIGNS = platform_text(
    "acjob_signs",
    ("MINDX_TASK_ID", "MINDX_SERVER_IP", "NPU_POD"),
    "set by the Ascend Operator alone, since 6.0.RC3: one of them is enough to recognise the platform",
)

_POD = re.compile(r"(?P<job>.+)-(?P<type>master|scheduler|chief|worker)-(?P<index>[0-9]{1,7})")


class AscendOperator(Place):
    OWN = (
        RANK, WORLD, LOCAL, LEADER, PORT, MS_ROLE, NPU_POD, AS_WORKER, HOST_IP, POD_IP, HOST_NETWORK, SIGNS, HOSTNAME,
    )  # fmt: skip

    def detect(self, reader: Reader) -> bool:
        """Return True for the signs, or for all variables of a framework: operators before 6.0.RC3 set nothing else.

        Launchers set some of these variables for their ranks, but no MS_LOCAL_WORKER, and a single number as LOCAL_RANK instead of a list.
        """
        listed = "," in reader.env.get("LOCAL_RANK", "")
        older = (names for names in FRAMEWORKS if _set(reader, names[:4]) == 4 and (listed or names != PYTORCH))
        return reader.is_set(SIGNS) or any(not parse.is_loopback(reader.seen(names[3])) for names in older)

    def facts(self, reader: Reader) -> Iterator[Fact]:
        rank, world, local, leader, _ = names = _framework(reader)
        pod = _POD.fullmatch(_own_name(reader))
        if pod:
            yield JOB_NAME, HOSTNAME.name, pod["job"]
        elif reader.env.get(SIGNS.name, "").strip():
            yield JOB_NAME, SIGNS.name, reader.env[SIGNS.name]
        yield from copied(reader, SLOTS, local)
        if reader.get(leader):
            yield from copied(reader, FIRST, leader)
        _look_for_scheduler(reader, names)
        apart = _is_apart(reader)
        if reader.get(world) and reader.get(local):
            yield _count(reader, world, local, apart)
        elif not reader.is_set(HOSTS) and not _set(reader, names):  # the operator sets nothing for a MindSpore job of a single Worker
            yield NODES, "no variable of a framework", "1"
        yield from _index_apart(reader, rank) if apart else copied(reader, NODE_INDEX, rank)

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job with the addresses of this pod, and without ranks on a Scheduler without NPUs."""
        host, pod = reader.get(HOST_IP), reader.get(POD_IP)
        job = replace(job, instance_name=_own_name(reader), host_ip=host, host_ips=tuple(filter(None, (pod, host))))
        if not job.has_peers:
            return job
        names = _framework(reader)
        for each in reader.candidates(names[4]):
            reader.offer(PORT, each.source, each.value)
        if _is_apart(reader):
            reader.offer(METHOD, "Scheduler without NPUs", "msrun")
            job = replace(job, nodes=make_nodes([node.host for node in job.nodes], [0, *(node.slots for node in job.nodes[1:])]))
        if reader.by_user(MASTER_ADDR):
            return job
        # The operator gives a Scheduler and a Chief the address of their own pod, the other pods the Service's.
        address = (pod or kubernetes.own_address(reader)) if job.node_index == 0 else ""
        return replace(job, own_address=address, own_master=names != PYTORCH)


def _index_apart(reader: Reader, rank: Variable[int]) -> Iterator[Fact]:
    """Yield the index of this node in a job whose Scheduler (node 0) the operator does not count."""
    if _is_scheduler(reader):
        yield NODE_INDEX, MS_ROLE.name, 0
    elif reader.is_set(rank):
        yield NODE_INDEX, f"{rank.name} + 1", reader.get(rank) + 1


def _framework(reader: Reader) -> Names:
    """Return the variables of the framework with the most set variables; the image may have set some of another framework's."""
    return max(FRAMEWORKS, key=lambda names: _set(reader, names))


def _set(reader: Reader, names: Names) -> int:
    """Return the number of these variables that are set."""
    return sum(bool(reader.env.get(each.name, "").strip()) for each in names)


def _own_name(reader: Reader) -> str:
    """Return the name of this pod, "" on the host's network, where HOSTNAME is the machine's."""
    on_host = reader.seen(HOST_NETWORK).lower() == "true" or kubernetes.on_host_network(reader)
    return "" if on_host else kubernetes.own_name(reader)


def _count(reader: Reader, world: Variable[int], local: Variable[int], apart: bool) -> Fact:
    """Return the number of nodes: the job's processes divided by this node's. apart: one more, for a Scheduler that is not counted."""
    processes, here = reader.get(world), reader.get(local)
    if processes % here and not reader.is_set(NODES):
        described = f"{reader.described(world)} is no multiple of {reader.described(local)}"
        reader.problem(f"{described}: expected the same number of devices on every node")
    return NODES, f"{world.name} / {local.name}{' + 1' if apart else ''}", max(1, processes // here) + apart


# A Scheduler without NPUs


def _look_for_scheduler(reader: Reader, names: Names) -> None:
    """Offer AS_WORKER as false if this pod shows that its Scheduler has no NPUs: a Worker's rank then equals its pod's number."""
    if names != MINDSPORE:
        return
    if not reader.get(NPU_POD):
        reader.offer(AS_WORKER, NPU_POD.name, False)
    elif reader.seen(MS_ROLE) == "MS_WORKER" and reader.seen(names[0]) == _number_of_worker(reader):
        reader.offer(AS_WORKER, names[0].name, False)
    if _is_scheduler(reader) and reader.is_set(NPU_POD) and reader.get(AS_WORKER) != reader.get(NPU_POD):
        reader.problem(f"{reader.described(AS_WORKER)} contradicts {reader.described(NPU_POD)}: unset it")


def _number_of_worker(reader: Reader) -> str:
    """Return the number in a Worker's pod name, "0" for another name. /etc/hosts comes first: it has this pod's name, also in a plan for
    another node."""
    own_name = _own_name(reader)
    names = [*(kubernetes.names_here(reader) if own_name else []), *([] if reader.by_user(NODE_INDEX) else [own_name])]
    workers = [match for match in map(_POD.fullmatch, names) if match and match["type"] == "worker"]
    return workers[0]["index"] if workers else "0"


def _is_apart(reader: Reader) -> bool:
    """Return True in a job whose Scheduler has no ranks."""
    return _framework(reader) == MINDSPORE and not reader.get(AS_WORKER)


def _is_scheduler(reader: Reader) -> bool:
    return not reader.get(NPU_POD) or reader.seen(MS_ROLE) == "MS_SCHED"
