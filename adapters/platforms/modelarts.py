"""Huawei Cloud ModelArts training jobs. One node is one container; a job is one Volcano job in the platform's cluster.

Source of the variables: ModelArts user guide, "Viewing environment variables of a training container"; Volcano's svc and env plugins.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base
from ranklaunch.adapters.platforms.shared.kubernetes import host_file, suffix
from ranklaunch.read import parse, tasks
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT as ANY_ATTEMPT
from ranklaunch.read.settings import HOSTS as ANY_HOSTS
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import LOG_DIR, make_job, spread
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.tasks import Tasks
from ranklaunch.typed import TypeVar
from ranklaunch.values import replace

NAME = "modelarts"

T = TypeVar("T")

NODES = ANY_NODES.also("MA_NUM_HOSTS", "VC_WORKER_NUM", "DLS_TASK_NUMBER")
SLOTS = ANY_SLOTS.also("MA_NUM_GPUS")
HOSTS = ANY_HOSTS.also("VC_WORKER_HOSTS")
NODE_INDEX = ANY_NODE_INDEX.also("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "DLS_TASK_INDEX", agree=True)
STARTS = ANY_ATTEMPT.also("MA_PROC_START_CNT")
JOB_NAME = ANY_JOB_NAME.also("MA_VJ_NAME", "BATCH_JOB_ID")
SCHEDULED = Variable(
    "scheduled",
    ("MA_SCHEDULE_CNT",),
    parse.positive,
    1,
    "how often the pod of this node was scheduled, from 1",
    "platform",
)
TASK = tasks.TASK.also("MA_TASK_NAME")
PS_HOSTS = tasks.PS_HOSTS.also("TF_PS_HOSTS", "VC_PS_HOSTS")
PS_COUNT = Variable("ps_count", ("VC_PS_NUM",), parse.count, 0, "number of parameter servers (ps)", "platform")
WORKER_HOSTS = tasks.WORKER_HOSTS.also("TF_WORKER_HOSTS")
INSTANCE = Variable(
    "instance_name", ("MA_CURRENT_INSTANCE_NAME", "BATCH_TASK_CURRENT_INSTANCE"), parse.text, "",
    "name of this pod; ends with the node's index", "platform", per_node=True, ends_with_index=True,
)  # fmt: skip
HOSTNAME = Variable(
    "hostname", ("HOSTNAME",), parse.text, "", "pod name, where the platform gives no other; ends with the node's index",
    "platform", per_node=True, ends_with_index=True,
)  # fmt: skip
HOST_IP = Variable(
    "host_ip", ("MA_CURRENT_HOST_IP",), parse.text, "", "address of the physical host: a rank table's server_id", "platform",
    per_node=True,
)  # fmt: skip
CURRENT_IP = Variable(
    "current_ip", ("MA_CURRENT_IP",), parse.text, "",
    "address of the host or, on newer platforms, of the container: used only to find a rank table's server", "platform", per_node=True,
)  # fmt: skip
SIGNS = Variable(
    "modelarts_signs",
    ("MA_NUM_HOSTS", "MA_NUM_GPUS", "MA_VJ_NAME", "MA_JOB_DIR", "MA_MOUNT_PATH", "MA_CURRENT_INSTANCE_NAME", "DLS_TASK_NUMBER"),
    parse.text, "", "set by ModelArts alone: any of them says that this is the platform", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    NODES, SLOTS, HOSTS, NODE_INDEX, STARTS, SCHEDULED, JOB_NAME, TASK, PS_HOSTS, PS_COUNT, WORKER_HOSTS,
    INSTANCE, HOSTNAME, HOST_IP, CURRENT_IP, SIGNS,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_HOST_FILE = "/etc/volcano/{task}.host"


def detect(reader: Reader) -> bool:
    return reader.given(SIGNS)


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    found = _tasks(reader, nodes)
    index = found.node_index if found else _index(reader, nodes)
    hosts = found.hosts if found else _hosts(reader, nodes, reader.get(TASK))
    slots = spread(reader, SLOTS, reader.get(SLOTS), len(found.workers) if found else nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=attempt(reader),
        hosts=hosts,
        slots=found.slots(slots) if found else slots,
        node_index=index,
        tasks=found,
        accelerator=("npu", "MA_NUM_GPUS without a sign of a GPU"),  # GPU images carry CUDA's and NCCL's versions
        instance_name=reader.get(INSTANCE) or reader.get(HOSTNAME),
        host_ips=tuple(ip for ip in (reader.get(HOST_IP), reader.get(CURRENT_IP)) if ip),
        host_ip=reader.get(HOST_IP),
        own_logs=reader.given(LOG_DIR) and not reader.by_user(LOG_DIR),
    )


def _tasks(reader: Reader, nodes: int) -> Tasks | None:
    """A TensorFlow job has as many ps as workers: MA_NUM_HOSTS counts either. None for a job of workers alone."""
    if not _has_ps(reader):
        found = tasks.by_config(reader, TASK, NODE_INDEX)
        if found and reader.given(NODES) and len(found.workers) != nodes:
            reader.warn(f"TF_CONFIG is another job's: it names {len(found.workers)} workers, but {_count_source(reader)} is {nodes}")
            return None
        return found
    workers, ps = _workers(reader, nodes), _ps(reader, nodes)
    found = Tasks(workers, ps, tasks.own_task(reader, TASK))
    tasks.refuse_duplicates(reader, found)
    return replace(found, index=_index(reader, found.size, found.task if found.task == tasks.PS else "workers"))


def _has_ps(reader: Reader) -> bool:
    if tasks.given(reader, PS_HOSTS) or (reader.given(PS_COUNT) and reader.get(PS_COUNT)):
        return True
    told = [candidate.value.strip() for candidate in reader.candidates(TASK)]
    return told[:1] == [tasks.PS] or reader.files.exists(_HOST_FILE.format(task=tasks.PS))


def _workers(reader: Reader, nodes: int) -> tuple[Endpoint, ...]:
    if not tasks.given(reader, WORKER_HOSTS):
        return tuple(Endpoint(host) for host in _hosts(reader, nodes, tasks.WORKER))
    workers = reader.get(WORKER_HOSTS)
    if workers and len(workers) != nodes and reader.given(NODES):
        reader.problem(
            f"{reader.source(WORKER_HOSTS)} names {len(workers)} hosts, but {_count_source(reader)} is {nodes}: "
            "expected as many workers as nodes"
        )
    return workers or (tasks.STAND_IN,) * nodes


def _ps(reader: Reader, nodes: int) -> tuple[Endpoint, ...]:
    count = reader.get(PS_COUNT) if reader.given(PS_COUNT) else nodes
    if not tasks.given(reader, PS_HOSTS):
        hosts, source = _host_file(reader, tasks.PS, PS_HOSTS)
        hosts = hosts or _made_hosts(reader, tasks.PS, count, PS_HOSTS)
        return tuple(Endpoint(host) for host in _counted(reader, hosts, source, count))
    ps = reader.get(PS_HOSTS)
    # Their number is the platform's to say; a list that is the user's own says it itself.
    if ps and len(ps) != count and not reader.by_user(PS_HOSTS):
        source = PS_COUNT.names[0] if reader.given(PS_COUNT) else _count_source(reader)
        reader.problem(f"{reader.source(PS_HOSTS)} names {len(ps)} hosts, but {source} is {count}: expected as many ps")
    return ps or (tasks.STAND_IN,) * count


def _index(reader: Reader, nodes: int, what: str = "nodes") -> int:
    """The variables that say it, else the number that ends the pod's name."""
    if nodes == 1 and not reader.by_user(NODE_INDEX):
        return base.of_one_node(reader, NODE_INDEX)
    index = reader.get(NODE_INDEX) if reader.given(NODE_INDEX) else _index_by_name(reader, nodes)
    _refuse_other_name(reader, index)
    if index >= nodes:
        reader.problem(f"{reader.told(NODE_INDEX)}: expected 0 to {nodes - 1}, for {nodes} {what}")
    return min(index, nodes - 1)


def _index_by_name(reader: Reader, nodes: int) -> int:
    found = suffix(reader, INSTANCE) or suffix(reader, HOSTNAME)
    if not found:
        reader.problem(f"{nodes} nodes, but none of {', '.join((*NODE_INDEX.names, *INSTANCE.names))} says which one this is")
        return 0
    reader.ledger.note(NODE_INDEX.value, found.value, found.source)
    return int(found.value)


def _refuse_other_name(reader: Reader, index: int) -> None:
    """A pod whose name ends with another number is another node: one of the two is left over from somewhere else."""
    named = suffix(reader, INSTANCE)
    told = reader.candidates(NODE_INDEX)
    if not named or not told or told[0].by_user or not told[0].value.strip().isdigit() or int(named.value) == index:
        return
    whole = reader.env[named.source]
    reader.problem(f"{told[0].source}={told[0].value!r} contradicts {named.source}={whole!r}: unset the wrong one or set RANKLAUNCH_NODE")


def _hosts(reader: Reader, nodes: int, task: str) -> tuple[str, ...]:
    """VC_<TASK>_HOSTS, else Volcano's host file (huge jobs have no variable), else names made as Volcano makes them."""
    names = ("RANKLAUNCH_HOSTS", f"VC_{re.sub('[^A-Za-z0-9]', '_', task).upper()}_HOSTS")
    variable = replace(HOSTS, names=names)
    hosts = reader.get(variable)
    source = (reader.candidates(variable) or [Candidate("", "")])[0].source
    if not hosts:
        hosts, source = _host_file(reader, task, HOSTS)
    if nodes == 1 != len(hosts) and (reader.given(NODES) or not hosts):  # of more without a count each would train alone
        reader.ledger.note(HOSTS.value, "localhost", "default")
        if len(hosts) > 1:
            reader.warn(f"{source} names {len(hosts)} hosts, but {_count_source(reader)} is 1: this node trains by itself")
        return ("localhost",)
    hosts = hosts or _made_hosts(reader, task, nodes, variable)
    return _counted(reader, hosts, source, nodes)


def _counted(reader: Reader, hosts: tuple[str, ...], source: str, nodes: int) -> tuple[str, ...]:
    if len(hosts) == nodes:
        return hosts
    told = f"{_count_source(reader)} is {nodes}" if reader.given(NODES) else f"{NODES.names[1]} is not set"
    reader.problem(f"{source} names {len(hosts)} hosts, but {told}: expected as many names as nodes")
    return (hosts[0],) * nodes


def _host_file(reader: Reader, task: str, variable: Variable[T]) -> tuple[tuple[str, ...], str]:
    path = _HOST_FILE.format(task=task)
    return host_file(reader, path, variable), path


def _made_hosts(reader: Reader, task: str, nodes: int, variable: Variable[T]) -> tuple[str, ...]:
    job = reader.env.get("MA_VJ_NAME", "")
    if not job:
        reader.problem(f"{nodes} nodes, but none of {variable.names[-1]}, {_HOST_FILE.format(task=task)} and MA_VJ_NAME names their hosts")
        return ("",) * nodes
    hosts = tuple(f"{job}-{task}-{i}.{job}" for i in range(nodes))
    try:
        parse.host(hosts[0])
    except ValueError as error:
        reader.problem(f"MA_VJ_NAME={showing.clipped(job)!r}, MA_TASK_NAME={showing.clipped(task)!r}: {error}")
    reader.ledger.note(variable.value, ",".join(hosts), "MA_VJ_NAME, MA_TASK_NAME")
    return hosts


def _count_source(reader: Reader) -> str:
    reading = reader.ledger.reading(NODES.value)
    return reading.source if reading and reading.source != "default" else NODES.names[1]


def _name(reader: Reader) -> str:
    """The public job id: the cluster's own name says ma-job- where the platform's pages say modelarts-job-."""
    name = reader.get(JOB_NAME)
    if name:
        return re.sub(r"^ma-job(?=-)", "modelarts-job", name)
    instance = reader.get(INSTANCE)
    derived = re.sub(r"-[^-]+-[0-9]+$", "", instance)
    reader.ledger.note(JOB_NAME.value, derived or NAME, "MA_CURRENT_INSTANCE_NAME" if derived else "default")
    return derived or NAME


def attempt(reader: Reader) -> int:
    """Process starts and pod schedules together: the same number on pods that survived and on pods that were replaced."""
    starts = reader.get(STARTS)
    if reader.by_user(STARTS):
        return starts
    number = starts + reader.get(SCHEDULED) - 1
    if reader.given(STARTS) or reader.given(SCHEDULED):
        reader.ledger.note(STARTS.value, str(number), f"{STARTS.names[1]} + {SCHEDULED.names[0]} - 1")
    return number
