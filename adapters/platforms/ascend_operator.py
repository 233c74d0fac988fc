"""Jobs of MindCluster's Ascend Operator (acjob): of PyTorch, MindSpore and TensorFlow, each with variables of its own for the same facts.

Node 0 is behind a Service with an address of its own, which lets through only the ports that the leader's container declares. The other
pods have no names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, make_job
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.values import replace

NAME = "ascend_operator"


class Framework(NamedTuple):
    """The names of one framework's variables. world: processes of the job; local: of this node."""

    rank: str
    world: str
    local: str
    host: str
    port: str


PYTORCH = Framework("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MINDSPORE = Framework("MS_NODE_RANK", "MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_SCHED_HOST", "MS_SCHED_PORT")
TENSORFLOW = Framework("CM_RANK", "CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_CHIEF_IP", "CM_CHIEF_PORT")
FRAMEWORKS = (PYTORCH, MINDSPORE, TENSORFLOW)

# As they are listed for people, by the value that they come to.
NODE_INDEX = replace(ANY_NODE_INDEX.also(*(f.rank for f in FRAMEWORKS)), per_node=False)
NODES = replace(
    ANY_NODES.also(*(f.world for f in FRAMEWORKS)),
    meaning=f"{ANY_NODES.meaning}; the platform counts processes, of which each node has as many as this one",
)
SLOTS = ANY_SLOTS.also(*(f.local for f in FRAMEWORKS))
MASTER_ADDR = ANY_MASTER_ADDR.also(*(f.host for f in FRAMEWORKS))
PORT = Variable(
    "master_port", tuple(f.port for f in FRAMEWORKS), parse.port, 2222,
    "port of the rendezvous on node 0, which its Service lets through", "platform",
)  # fmt: skip
MS_ROLE = Variable("ms_role", ("MS_ROLE",), parse.text, "", "MS_SCHED or MS_WORKER: what this pod is in a MindSpore job", "platform")
NPU_POD = Variable(
    "npu_pod", ("NPU_POD",), parse.flag, True, "whether this pod of a MindSpore job has NPUs: a scheduler's may have none", "platform",
)  # fmt: skip
REPLICA_TYPE = Variable("replica_type", ("REPLICA_TYPE",), parse.text, "", "Master, Scheduler, Chief or Worker", "platform")
POD_IP = Variable(
    "pod_ip", ("POD_IP", "CM_WORKER_IP"), parse.text, "",
    "address of this pod, by which its place in a rank table is found, and where node 0's msrun starts its scheduler", "platform",
    per_node=True, default_text="that of its name in /etc/hosts",
)  # fmt: skip
HOST_NETWORK = Variable(
    "host_network", ("HostNetwork",), parse.text, "", "true: the pods are on the host's network, where HOSTNAME is the machine's name",
    "platform",
)  # fmt: skip
SIGNS = Variable(
    "acjob_signs", ("MINDX_TASK_ID", "MINDX_SERVER_IP", "NPU_POD"), parse.text, "",
    "set by the Ascend Operator alone: any of them says that this is the platform", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    NODE_INDEX, NODES, SLOTS, MASTER_ADDR, PORT, MS_ROLE, NPU_POD, REPLICA_TYPE, HOST_IP, POD_IP, HOST_NETWORK, SIGNS, HOSTNAME, RESTARTS,
)  # fmt: skip

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

# As they are read, each by the name that one framework has for it.
WORLD = Variable("framework_world", (), parse.count, 0, "number of the job's processes", "platform")
LOCAL = Variable("framework_local", (), parse.count, 0, "number of this node's processes", "platform")


_POD = re.compile(r"(.+)-(?:master|scheduler|chief|worker)-[0-9]{1,7}")


def detect(reader: Reader) -> bool:
    return reader.given(SIGNS)


def read(reader: Reader, program: Program) -> Job:
    names = _framework(reader)
    index, slots, master = (
        replace(ANY_NODE_INDEX.also(names.rank), per_node=False),
        ANY_SLOTS.also(names.local),
        ANY_MASTER_ADDR.also(names.host),
    )
    nodes = _count(reader, names)
    _refuse_scheduler_alone(reader, nodes)
    port = [candidate for candidate in reader.candidates(PORT) if candidate.source == names.port]
    if nodes > 1 and port:
        reader.offer(PORT.value, *port)
    pod = _pod(reader)
    found = _POD.fullmatch(pod)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, found[1] if found else reader.env.get(SIGNS.names[0], ""), _source_of_name(found), NAME),
        attempt=attempt(reader),
        shared_logs=True,
        hosts=kubernetes.hosts(reader, nodes, (), "", "the Ascend Operator has set no address", master),
        slots=kubernetes.slots(reader, slots, nodes),
        node_index=_index(reader, index, nodes),
        accelerator=("npu", "the Ascend Operator"),
        instance_name=pod,
        host_ips=tuple(ip for ip in (reader.get(POD_IP), reader.get(HOST_IP)) if ip),
        host_ip=reader.get(HOST_IP),
    )
    if nodes > 1 and not reader.given(HOSTS):
        reader.record(master)
    return replace(job, own_address=_own_address(reader)) if nodes > 1 and job.node_index == 0 and not reader.by_user(master) else job


def _pod(reader: Reader) -> str:
    """Its name; "" on the host's network, where HOSTNAME is the machine's."""
    by_operator = kubernetes.seen(reader, HOST_NETWORK).lower() == "true"
    return "" if by_operator or kubernetes.on_host_network(reader) else kubernetes.own_name(reader)


def _own_address(reader: Reader) -> str:
    return reader.get(POD_IP) or kubernetes.own_address(reader)


def _framework(reader: Reader) -> Framework:
    """Whose variables are there: those of another may be an image's."""
    return max(FRAMEWORKS, key=lambda names: _told(reader, names))


def _told(reader: Reader, names: Framework) -> int:
    """How many of its variables are there."""
    return sum(bool(reader.env.get(name, "").strip()) for name in names)


def _one(variable: Variable[int], name: str) -> Variable[int]:
    return replace(variable, names=(name,))


def _count(reader: Reader, names: Framework) -> int:
    """The operator counts processes: those of the job by those of this node."""
    world, local = reader.get(_one(WORLD, names.world)), reader.get(_one(LOCAL, names.local))
    if not (reader.given(ANY_NODES) or reader.given(HOSTS) or _told(reader, names)):
        reader.ledger.note(ANY_NODES.value, "1", "no variable of a framework")  # as the operator leaves a MindSpore job of one Worker alone
        return 1
    if reader.given(ANY_NODES) or not (world and local):
        remedy = f"set RANKLAUNCH_NODES to the replicas of the job, since {names.world} and {names.local} do not count them"
        return kubernetes.count(reader, ANY_NODES, remedy)
    if world % local:
        reader.problem(f"{names.world}={world} is no multiple of {names.local}={local}: expected the same number of devices on every node")
    reader.ledger.note(ANY_NODES.value, str(max(1, world // local)), f"{names.world} / {names.local}")
    return max(1, world // local)


def _index(reader: Reader, variable: Variable[int], nodes: int) -> int:
    """The leader is node 0, whatever it is called."""
    leads = [(reader.told(REPLICA_TYPE), 0)] if reader.get(REPLICA_TYPE).strip().lower() in ("master", "chief") else []
    return kubernetes.index(reader, variable, nodes, leads)


def _refuse_scheduler_alone(reader: Reader, nodes: int) -> None:
    """msrun's scheduler is a process beside the workers of node 0, so a pod that is nothing else has no place."""
    remedy = (
        "the scheduler's pod has no NPUs: expected the Scheduler replica with as many NPUs as a Worker, which makes it node 0 "
        "and the Worker replicas one fewer"
    )
    if not reader.get(NPU_POD):
        reader.problem(f"{reader.told(NPU_POD)}: {remedy}")
    elif nodes > 1 and not reader.given(ANY_MASTER_ADDR) and _leads(reader) and reader.get(MS_ROLE).strip() == "MS_WORKER":
        reader.problem(f"MS_NODE_RANK=0 with {reader.told(MS_ROLE)}: {remedy}")


def _leads(reader: Reader) -> bool:
    return reader.env.get(MINDSPORE.rank, "").strip() == "0"


def _source_of_name(found: re.Match[str] | None) -> str:
    return HOSTNAME.names[0] if found else SIGNS.names[0]
