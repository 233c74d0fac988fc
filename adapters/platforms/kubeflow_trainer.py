"""Kubeflow Trainer: a TrainJob, by the variables of its torch policy, or without any by its pods' names and the index of an Indexed Job.

The PyTorchJob of the training operator before it sets the same variables. Its TrainJob is a JobSet whose replicated Job is called node.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.settings import devices, make_job
from ranklaunch.values import replace

NAME = "kubeflow_trainer"


def _per_node(value: str) -> tuple[int, ...]:
    """Words in place of a number leave it to the devices of the container."""
    return () if value.strip().lower() in ("auto", "gpu", "cpu") else parse.counts(value)


def _nodes(value: str) -> int:
    """The training operator writes N:N for an elastic job that has no limits of its own."""
    least, colon, most = value.partition(":")
    if colon and least.strip() != most.strip():
        msg = "an elastic job, whose number of nodes may change: set RANKLAUNCH_NODES to the number of its pods"
        raise ValueError(msg)
    return parse.positive(least)


NODES: Variable[int] = replace(ANY_NODES.also("PET_NNODES"), parse=_nodes)
SLOTS: Variable[tuple[int, ...]] = replace(ANY_SLOTS.also("PET_NPROC_PER_NODE"), parse=_per_node)
# As they are read: what each of them says alone.
PROCESSES = Variable("operator_processes", ("WORLD_SIZE",), parse.positive, 1, "processes of the job, by the operator", "platform")
PER_NODE = Variable("operator_slots", ("PET_NPROC_PER_NODE",), parse.text, "", "processes per node, by the operator", "platform")
# Both say what platform this is, too, so they stay where a plan is made for another node, whose index is then told.
NODE_INDEX = replace(ANY_NODE_INDEX.also("PET_NODE_RANK", "JOB_COMPLETION_INDEX", agree=True), per_node=False)
MASTER_ADDR = ANY_MASTER_ADDR.also("PET_MASTER_ADDR")
MASTER_PORT = Variable(
    "master_port", ("PET_MASTER_PORT",), parse.port, 29500, "port of the rendezvous on node 0, where the method's own is not set",
    "platform",
)  # fmt: skip
# As it is listed for people: beside N:N, which leaves out the master, the processes are counted too.
ALL_NODES = replace(NODES.also("WORLD_SIZE"), meaning=f"{ANY_NODES.meaning}; beside PET_NNODES=N:N the number of processes must agree")

VARIABLES: tuple[Variable[object], ...] = (ALL_NODES, SLOTS, NODE_INDEX, MASTER_ADDR, MASTER_PORT, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_SIGNS = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR")
_MASTER = re.compile(r"(?P<job>.+)-node-0-0\.(?P<service>[^.]+)(\..*)?")
# A PyTorchJob's node 0 is a Service without a dot: its master's, or its first worker's where it has none.
_LEADER = re.compile(r"(?P<job>.+)-(?:master|worker)-0(?:\..*)?")


def detect(reader: Reader) -> bool:
    """All of what the torch policy sets, since an image or a user may set one for torchrun; or a pod called as those of a TrainJob."""
    return all(reader.env.get(name, "").strip() for name in _SIGNS) or _is_plain(reader)


def _is_plain(reader: Reader) -> bool:
    pod = kubernetes.replicated(reader)
    return kubernetes.has_pod_index(reader) and pod is not None and (pod.job, pod.job_index) == ("node", 0)


def read(reader: Reader, program: Program) -> Job:
    nodes = kubernetes.count(reader, NODES, "set RANKLAUNCH_NODES to the TrainJob's numNodes, or use a runtime with mlPolicy torch")
    _refuse_other_count(reader, nodes)
    pod = kubernetes.replicated(reader)
    if nodes > 1 and reader.env.get("PET_MASTER_PORT", "").strip():
        reader.offer(MASTER_PORT.value, Candidate("PET_MASTER_PORT", reader.env["PET_MASTER_PORT"]))
    master = _MASTER.fullmatch(reader.env.get("PET_MASTER_ADDR", "").strip())
    made: tuple[str, ...] = ()
    source = "HOSTNAME, /etc/hosts"
    if master:
        made, source = kubernetes.pods(f"{master['job']}-node-0", nodes, master["service"]), "PET_MASTER_ADDR"
    elif pod:
        made = kubernetes.pods(f"{pod.set}-{pod.job}-0", nodes, pod.service)
    found, by = _name(reader, pod)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, found, by, NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, source, "the runtime has no mlPolicy torch", MASTER_ADDR),
        slots=_slots(reader, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, kubernetes.index_by_name(reader)),
        instance_name=kubernetes.own_name(reader),
    )
    if nodes > 1 and not made:
        reader.record(MASTER_ADDR)
    return job


def _name(reader: Reader, pod: kubernetes.Pod | None) -> tuple[str, str]:
    """Of the job, alike on every node, and what says so: node 0's address comes before what only this pod is called."""
    address = reader.env.get("PET_MASTER_ADDR", "").strip()
    found = _MASTER.fullmatch(address) or _LEADER.fullmatch(address)
    if not found and pod:
        return pod.set, HOSTNAME.names[0]
    return (found["job"] if found else address), "PET_MASTER_ADDR"


def _refuse_other_count(reader: Reader, nodes: int) -> None:
    """Of an elastic job without limits of its own the operator counts the workers, and not the master that is a node too."""
    leads = reader.env.get("MASTER_ADDR", "").strip() == reader.env.get("PET_MASTER_ADDR", "").strip()
    told = re.fullmatch(r"([0-9]+):\1", kubernetes.seen(reader, NODES))
    if not (told and leads and reader.given(PROCESSES)):
        return
    each = kubernetes.seen(reader, PER_NODE)
    pods = reader.get(PROCESSES) // max(1, int(each) if re.fullmatch("[0-9]{1,4}", each) else 1)
    if pods != nodes:
        reader.problem(
            f"{reader.told(NODES)}, but by {reader.told(PROCESSES)} the job has {pods} pods: set RANKLAUNCH_NODES to their number"
        )


def _slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    """The trainer counts GPUs alone: where there are none in its eyes, such as with NPUs, it takes the processors' number."""
    here = devices(reader)
    told = kubernetes.slots(reader, SLOTS, nodes)
    by_platform = not reader.by_user(SLOTS) and reader.given(SLOTS)
    if here and by_platform and set(told) != {here}:
        reader.warn(f"{reader.told(SLOTS)}, but this container has {here} devices: set the TrainJob's numProcPerNode or RANKLAUNCH_SLOTS")
    return told
