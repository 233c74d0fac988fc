"""Jobs of MindCluster's Ascend Operator (acjob): of PyTorch, MindSpore and TensorFlow, each with variables of its own for the same facts.

Node 0 is behind a Service with an address of its own, which lets through only the ports that the leader's container declares. The other
pods have no names.

Where a MindSpore job's Scheduler has no NPUs, the operator counts and numbers the Workers alone, and gives each pod a Worker's counts. The
Scheduler is node 0 here all the same, one without ranks.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes, several
from ranklaunch.adapters.platforms.shared.kubernetes import HOST_IP, HOSTNAME, RESTARTS
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, METHOD, make_job
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.showing import show
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

RANKS, WORLDS, LOCALS, MASTERS, PORTS = zip(*FRAMEWORKS)

# As they are listed for people, by the value that they come to.
NODE_INDEX = replace(ANY_NODE_INDEX.also(*RANKS), per_node=False)
NODES = replace(
    ANY_NODES.also(*WORLDS),
    meaning=f"{ANY_NODES.meaning}; the platform counts processes, of which each node has as many as this one",
)
SLOTS = settings.SLOTS.also(*LOCALS)
MASTER_ADDR = settings.MASTER_ADDR.also(*MASTERS)
PORT = Variable(
    "master_port", PORTS, parse.port, 2222,
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

_POD = re.compile(r"(?P<job>.+)-(?P<type>master|scheduler|chief|worker)-(?P<index>[0-9]{1,7})")


def detect(reader: Reader) -> bool:
    return reader.given(SIGNS)


def read(reader: Reader, program: Program) -> Job:
    names = max(FRAMEWORKS, key=lambda each: _set(reader, each))  # those of another framework may be an image's
    master = settings.MASTER_ADDR.also(names.host)
    pod = "" if _on_host_network(reader) else kubernetes.own_name(reader)
    job = _POD.fullmatch(pod)
    found, source = (job["job"], HOSTNAME.names[0]) if job else (reader.env.get(SIGNS.names[0], ""), SIGNS.names[0])
    apart = names == MINDSPORE and not _scheduler_has_ranks(reader, pod)
    nodes = _count(reader, names, apart)
    apart = apart and nodes > 1
    if apart:
        reader.offer(METHOD.value, Candidate("Scheduler without NPUs", "msrun"))
    if nodes > 1 and several.has(reader, names.port):
        reader.offer(PORT.value, Candidate(names.port, reader.env[names.port]))
    made = make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, found, source, NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, (), "", "the Ascend Operator has set no address", master),
        slots=kubernetes.slots(reader, settings.SLOTS.also(names.local), nodes),
        node_index=_index(reader, names, nodes, apart),
        accelerator=("npu", "the Ascend Operator"),
        instance_name=pod,
        host_ips=tuple(ip for ip in (reader.get(POD_IP), reader.get(HOST_IP)) if ip),
        host_ip=reader.get(HOST_IP),
        only_launches=apart,
    )
    if nodes > 1 and not reader.given(HOSTS):
        reader.record(master)
    if nodes == 1 or reader.by_user(master):
        return made
    # A Scheduler and a Chief are told their pod's address, the others that of the Service.
    own = (reader.get(POD_IP) or kubernetes.own_address(reader)) if made.node_index == 0 else ""
    return replace(made, own_address=own, own_master=names != PYTORCH)


def _on_host_network(reader: Reader) -> bool:
    """Return True where HOSTNAME is the machine's."""
    return kubernetes.seen(reader, HOST_NETWORK).lower() == "true" or kubernetes.on_host_network(reader)


def _set(reader: Reader, names: Framework) -> int:
    """Return how many of a framework's variables are set."""
    return sum(several.has(reader, name) for name in names)


def _count(reader: Reader, names: Framework, apart: bool) -> int:
    """Return the number of nodes: the job's processes by this node's. apart: the operator has left the Scheduler out."""
    sources = (("framework_world", names.world), ("framework_local", names.local))
    world, local = (reader.get(Variable(value, (name,), parse.count, 0, "number of processes", "platform")) for value, name in sources)
    if world and local:
        source = f"{names.world} / {names.local}{' + 1' if apart else ''}"
        if world % local and not reader.given(ANY_NODES):
            reader.problem(
                f"{names.world}={world} is no multiple of {names.local}={local}: expected the same number of devices on every node"
            )
        reader.offer(ANY_NODES.value, Candidate(source, str(max(1, world // local) + apart)))
    elif not reader.given(HOSTS) and not _set(reader, names):  # as the operator leaves a MindSpore job of one Worker alone
        reader.offer(ANY_NODES.value, Candidate("no variable of a framework", "1"))
    remedy = f"set RANKLAUNCH_NODES to the replicas of the job, since {names.world} and {names.local} do not count them"
    return kubernetes.count(reader, ANY_NODES, remedy)


def _index(reader: Reader, names: Framework, nodes: int, apart: bool) -> int:
    """Return the index of this node: 0 for the leader; beside a Scheduler without NPUs, the Workers follow it."""
    rank = replace(ANY_NODE_INDEX.also(names.rank), per_node=False)
    if not apart:
        leads = reader.get(REPLICA_TYPE).strip().lower() in ("master", "chief")
        return kubernetes.index(reader, rank, nodes, [(reader.told(REPLICA_TYPE), 0)] if leads else [])
    ways = []
    if _is_scheduler(reader):
        ways = [(f"{MS_ROLE.names[0]}={kubernetes.seen(reader, MS_ROLE)}", 0)]
    elif reader.given(rank) and not reader.by_user(rank):
        ways = [(f"{names.rank} + 1", reader.get(rank) + 1)]
    return kubernetes.index(reader, ANY_NODE_INDEX, nodes, ways, (names.rank,))


# A Scheduler without NPUs


def _scheduler_has_ranks(reader: Reader, pod: str) -> bool:
    """Return the user's word, else what this pod's variables say."""
    if not reader.get(NPU_POD):
        reader.offer(AS_WORKER.value, Candidate(NPU_POD.names[0], show(False)))
    elif _numbered_without_scheduler(reader, pod):
        reader.offer(AS_WORKER.value, Candidate(MINDSPORE.rank, show(False)))
    has_ranks = reader.get(AS_WORKER)
    if _is_scheduler(reader) and reader.given(NPU_POD) and has_ranks != reader.get(NPU_POD):
        reader.problem(f"{reader.told(AS_WORKER)} contradicts {reader.told(NPU_POD)}: unset it")
    return has_ranks


def _numbered_without_scheduler(reader: Reader, pod: str) -> bool:
    """Return True on a Worker whose rank is its pod's number. Beside a Scheduler with NPUs the rank is one more."""
    rank = reader.env.get(MINDSPORE.rank, "").strip()
    if not rank or _is_scheduler(reader) or not reader.given(MS_ROLE):
        return False
    names = [*([] if _on_host_network(reader) else kubernetes.names_here(reader)), *([] if reader.by_user(ANY_NODE_INDEX) else [pod])]
    found = [match for match in map(_POD.fullmatch, names) if match and match["type"] == "worker"]
    return rank == (found[0]["index"] if found else "0")


def _is_scheduler(reader: Reader) -> bool:
    return not reader.get(NPU_POD) or kubernetes.seen(reader, MS_ROLE) == "MS_SCHED"
