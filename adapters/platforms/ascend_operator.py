"""Jobs of MindCluster's Ascend Operator (acjob): of PyTorch, MindSpore and TensorFlow, each with variables of its own for the same facts.

Node 0 is behind a Service with an address of its own, which lets through only the ports that the leader's container declares. The other
pods have no names.

Where a MindSpore job's Scheduler has no NPUs, the operator counts and numbers the Workers alone, and gives each pod a Worker's counts. The
Scheduler is node 0 here all the same, one without ranks.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, METHOD, make_job
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.typed import NamedTuple
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
AS_WORKER = replace(
    kubernetes.LAUNCHER_AS_WORKER,
    meaning="whether the Scheduler of a MindSpore job has NPUs, and so ranks; the same on every node",
    default_text="false where NPU_POD is, and on a Worker that has its pod's number in MS_NODE_RANK",
)
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
    NODE_INDEX, NODES, SLOTS, MASTER_ADDR, PORT, MS_ROLE, NPU_POD, AS_WORKER, REPLICA_TYPE, HOST_IP, POD_IP, HOST_NETWORK, SIGNS, HOSTNAME,
    RESTARTS,
)  # fmt: skip

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

# As they are read, each by the name that one framework has for it.
WORLD = Variable("framework_world", (), parse.count, 0, "number of the job's processes", "platform")
LOCAL = Variable("framework_local", (), parse.count, 0, "number of this node's processes", "platform")


_POD = re.compile(r"(?P<job>.+)-(?P<type>master|scheduler|chief|worker)-(?P<index>[0-9]{1,7})")


def detect(reader: Reader) -> bool:
    return reader.given(SIGNS)


def read(reader: Reader, program: Program) -> Job:
    names = _framework(reader)
    slots, master = ANY_SLOTS.also(names.local), ANY_MASTER_ADDR.also(names.host)
    pod = _pod(reader)
    found = _POD.fullmatch(pod)
    alone = names == MINDSPORE and not _scheduler_has_ranks(reader, found)
    nodes = _count(reader, names, alone)
    alone = alone and nodes > 1
    if alone:
        reader.offer(METHOD.value, Candidate("Scheduler without NPUs", "msrun"))
    port = [candidate for candidate in reader.candidates(PORT) if candidate.source == names.port]
    if nodes > 1 and port:
        reader.offer(PORT.value, *port)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, found["job"] if found else reader.env.get(SIGNS.names[0], ""), _source_of_name(found), NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, (), "", "the Ascend Operator has set no address", master),
        slots=kubernetes.slots(reader, slots, nodes),
        node_index=_index_beside_scheduler(reader, nodes) if alone else _index(reader, names, nodes),
        accelerator=("npu", "the Ascend Operator"),
        instance_name=pod,
        host_ips=tuple(ip for ip in (reader.get(POD_IP), reader.get(HOST_IP)) if ip),
        host_ip=reader.get(HOST_IP),
        only_launches=alone,
    )
    if nodes > 1 and not reader.given(HOSTS):
        reader.record(master)
    if nodes == 1 or reader.by_user(master):
        return job
    # A Scheduler and a Chief are told their pod's address, the others that of the Service.
    own = _own_address(reader) if job.node_index == 0 else ""
    return replace(job, own_address=own, own_master=names != PYTORCH)


def _pod(reader: Reader) -> str:
    """Its name; "" on the host's network, where HOSTNAME is the machine's."""
    return "" if _on_host_network(reader) else kubernetes.own_name(reader)


def _on_host_network(reader: Reader) -> bool:
    return kubernetes.seen(reader, HOST_NETWORK).lower() == "true" or kubernetes.on_host_network(reader)


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


def _count(reader: Reader, names: Framework, alone: bool) -> int:
    """The operator counts processes: those of the job by those of this node. alone: it has left the Scheduler out."""
    world, local = reader.get(_one(WORLD, names.world)), reader.get(_one(LOCAL, names.local))
    if not (reader.given(ANY_NODES) or reader.given(HOSTS) or _told(reader, names)):
        reader.ledger.note(ANY_NODES.value, "1", "no variable of a framework")  # as the operator leaves a MindSpore job of one Worker alone
        return 1
    if reader.given(ANY_NODES) or not (world and local):
        remedy = f"set RANKLAUNCH_NODES to the replicas of the job, since {names.world} and {names.local} do not count them"
        return kubernetes.count(reader, ANY_NODES, remedy)
    if world % local:
        reader.problem(f"{names.world}={world} is no multiple of {names.local}={local}: expected the same number of devices on every node")
    nodes = max(1, world // local) + alone
    reader.ledger.note(ANY_NODES.value, str(nodes), f"{names.world} / {names.local}{' + 1' if alone else ''}")
    return nodes


def _index(reader: Reader, names: Framework, nodes: int) -> int:
    """The leader is node 0, whatever it is called."""
    leads = [(reader.told(REPLICA_TYPE), 0)] if reader.get(REPLICA_TYPE).strip().lower() in ("master", "chief") else []
    return kubernetes.index(reader, replace(ANY_NODE_INDEX.also(names.rank), per_node=False), nodes, leads)


# A Scheduler without NPUs


def _scheduler_has_ranks(reader: Reader, pod: re.Match[str] | None) -> bool:
    """The user's word, else what this pod's variables say. pod: what its name says."""
    without, said = _seen_without_npus(reader, pod)
    if not reader.given(AS_WORKER):
        if without:
            reader.ledger.note(AS_WORKER.value, showing.show(False), said)
        return not without
    npus = kubernetes.seen(reader, NPU_POD)
    if _is_scheduler(reader) and npus and reader.get(AS_WORKER) != reader.get(NPU_POD):
        reader.problem(f"{reader.told(AS_WORKER)} contradicts {reader.told(NPU_POD)}: unset it")
    return reader.get(AS_WORKER)


def _seen_without_npus(reader: Reader, pod: re.Match[str] | None) -> tuple[bool, str]:
    """Whether the Scheduler has none, and what says so. A Worker beside it has its pod's number, else that plus 1."""
    if not reader.get(NPU_POD):
        return True, NPU_POD.names[0]
    rank = reader.env.get(MINDSPORE.rank, "").strip()
    if not rank or _is_scheduler(reader) or not kubernetes.seen(reader, MS_ROLE):
        return False, "default"
    names = [] if reader.by_user(ANY_NODE_INDEX) else [pod]
    if not _on_host_network(reader):
        names = [*map(_POD.fullmatch, kubernetes.names_here(reader)), *names]
    own = next((name["index"] for name in names if name and name["type"] == "worker"), "0")
    return rank == own, MINDSPORE.rank


def _is_scheduler(reader: Reader) -> bool:
    return not reader.get(NPU_POD) or kubernetes.seen(reader, MS_ROLE) == "MS_SCHED"


def _index_beside_scheduler(reader: Reader, nodes: int) -> int:
    """Among the Workers and, before them, the Scheduler."""
    rank = replace(ANY_NODE_INDEX, names=(MINDSPORE.rank,))
    if _is_scheduler(reader):
        ways = [(f"{MS_ROLE.names[0]}={kubernetes.seen(reader, MS_ROLE)}", 0)]
    elif not reader.by_user(ANY_NODE_INDEX) and reader.given(rank):
        ways = [(f"{reader.told(rank)} + 1", reader.get(rank) + 1)]
    else:
        ways = []
    return kubernetes.index(reader, ANY_NODE_INDEX, nodes, ways, rank.names)


def _source_of_name(found: re.Match[str] | None) -> str:
    return HOSTNAME.names[0] if found else SIGNS.names[0]
