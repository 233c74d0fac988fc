"""Kubeflow Trainer: a TrainJob, by the variables of its torch policy, or without any by its pods' names and the index of an Indexed Job.

The PyTorchJob of the training operator before it sets the same variables. Its TrainJob is a JobSet whose replicated Job is called node.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.errors import number
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
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


NODES: Variable[int] = replace(settings.NODES.also("PET_NNODES"), parse=_nodes)
SLOTS: Variable[tuple[int, ...]] = replace(settings.SLOTS.also("PET_NPROC_PER_NODE"), parse=_per_node)
# Both say what platform this is, too, so they stay where a plan is made for another node, whose index is then told.
NODE_INDEX = replace(settings.NODE_INDEX.also("PET_NODE_RANK", "JOB_COMPLETION_INDEX", agree=True), per_node=False)
MASTER_ADDR = settings.MASTER_ADDR.also("PET_MASTER_ADDR")
MASTER_PORT = Variable(
    "master_port", ("PET_MASTER_PORT",), parse.port, 29500, "port of the rendezvous on node 0, where the method's own is not set",
    "platform",
)  # fmt: skip
# As it is listed for people: beside N:N, which leaves out the master, the processes are counted too.
ALL_NODES = replace(NODES.also("WORLD_SIZE"), meaning=f"{settings.NODES.meaning}; beside PET_NNODES=N:N the number of processes must agree")

VARIABLES: tuple[Variable[object], ...] = (ALL_NODES, SLOTS, NODE_INDEX, MASTER_ADDR, MASTER_PORT, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_SIGNS = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR")
# Node 0 of a TrainJob, by a Service; of a PyTorchJob a Service without a dot: its master's, or its first worker's where it has none.
_MASTER = re.compile(r"(?P<job>.+)-(?:node-0-0\.(?P<service>[^.]+)|(?:master|worker)-0)(?:\..*)?")


def detect(reader: Reader) -> bool:
    """Return True for all that the torch policy sets, since an image or a user may set one for torchrun, and for a TrainJob's pod.

    torchtune is told no master, and needs none for one node.
    """
    nodes, rank, master = (reader.env.get(name, "").strip() for name in _SIGNS)
    indexed, pod = kubernetes.has_pod_index(reader), kubernetes.replicated(reader)
    by_policy = bool(nodes and rank) and (bool(master) or (indexed and nodes == "1"))
    return by_policy or (indexed and pod is not None and (pod.job, pod.job_index) == ("node", 0))


def read(reader: Reader, program: Program) -> Job:
    nodes = kubernetes.count(reader, NODES, "set RANKLAUNCH_NODES to the TrainJob's numNodes, or use a runtime with mlPolicy torch")
    _refuse_other_count(reader, nodes)
    if nodes > 1:
        reader.offer(MASTER_PORT.value, *reader.candidates(MASTER_PORT))
    pod, address = kubernetes.replicated(reader), reader.env.get("PET_MASTER_ADDR", "").strip()
    found = _MASTER.fullmatch(address)
    # The name is alike on every node: node 0's address comes before what only this pod is called.
    name, source = (pod.set, "HOSTNAME, /etc/hosts") if pod and not found else (found["job"] if found else address, "PET_MASTER_ADDR")
    made: tuple[str, ...] = ()
    if found and found["service"]:
        made = kubernetes.pods(f"{name}-node-0", nodes, found["service"])
    elif pod:
        made = kubernetes.pods(f"{pod.set}-{pod.job}-0", nodes, pod.service)
    job = settings.make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, name, source, NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, source, "the runtime has no mlPolicy torch", MASTER_ADDR),
        slots=_slots(reader, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, kubernetes.index_by_name(reader)),
        instance_name=kubernetes.own_name(reader),
    )
    if nodes > 1 and not made:
        reader.record(MASTER_ADDR)
    return job


def _refuse_other_count(reader: Reader, nodes: int) -> None:
    """Of an elastic job without limits of its own the operator counts the workers, and not the master that is a node too."""
    env = {name: value.strip() for name, value in reader.env.items()}
    is_elastic = re.fullmatch(r"([0-9]+):\1", kubernetes.seen(reader, NODES))
    processes = number(env.get("WORLD_SIZE", ""))
    if is_elastic and processes and env.get("MASTER_ADDR") == env.get("PET_MASTER_ADDR"):
        pods = processes // (number(env.get("PET_NPROC_PER_NODE", "")) or 1)
        if pods != nodes:
            reader.problem(
                f"{reader.told(NODES)}, but by WORLD_SIZE={processes} the job has {pods} pods: set RANKLAUNCH_NODES to their number"
            )


def _slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    """The trainer counts GPUs alone: where there are none in its eyes, such as with NPUs, it takes the processors' number."""
    here, told = settings.devices(reader), kubernetes.slots(reader, SLOTS, nodes)
    if here and reader.given(SLOTS) and not reader.by_user(SLOTS) and {*told} != {here}:
        reader.warn(f"{reader.told(SLOTS)}, but this container has {here} devices: set the TrainJob's numProcPerNode or RANKLAUNCH_SLOTS")
    return told
