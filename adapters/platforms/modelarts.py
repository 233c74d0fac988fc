"""Huawei Cloud ModelArts training jobs. One node is one container; a job is one Volcano job in the platform's cluster.

Source of the variables: ModelArts user guide, "Viewing environment variables of a training container"; Volcano's svc and env plugins.
"""

from __future__ import annotations

import dataclasses
import re

from ranklaunch import settings
from ranklaunch.job import Job, Program
from ranklaunch.reading import ATTEMPT as ANY_ATTEMPT
from ranklaunch.reading import HOSTS as ANY_HOSTS
from ranklaunch.reading import JOB_NAME as ANY_JOB_NAME
from ranklaunch.reading import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.reading import NODES as ANY_NODES
from ranklaunch.reading import SLOTS as ANY_SLOTS
from ranklaunch.reading import make_job, spread
from ranklaunch.settings import Candidate, Reader, Variable

NAME = "modelarts"

NODES = ANY_NODES.also("MA_NUM_HOSTS", "VC_WORKER_NUM", "DLS_TASK_NUMBER")
SLOTS = ANY_SLOTS.also("MA_NUM_GPUS")
HOSTS = ANY_HOSTS.also("VC_WORKER_HOSTS")
NODE_INDEX = ANY_NODE_INDEX.also("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "DLS_TASK_INDEX", agree=True)
STARTS = ANY_ATTEMPT.also("MA_PROC_START_CNT")
JOB_NAME = ANY_JOB_NAME.also("MA_VJ_NAME", "BATCH_JOB_ID")
SCHEDULED = Variable(
    "scheduled",
    ("MA_SCHEDULE_CNT",),
    settings.positive,
    1,
    "how often the pod of this node was scheduled, from 1",
    "platform",
)
TASK = Variable("task", ("MA_TASK_NAME",), settings.text, "worker", "role of this container", "platform")
INSTANCE = Variable(
    "instance_name", ("MA_CURRENT_INSTANCE_NAME", "BATCH_TASK_CURRENT_INSTANCE"), settings.text, "",
    "name of this pod; ends with the node's index", "platform", per_node=True, ends_with_index=True,
)  # fmt: skip
HOSTNAME = Variable(
    "hostname", ("HOSTNAME",), settings.text, "", "pod name, where the platform gives no other; ends with the node's index",
    "platform", per_node=True, ends_with_index=True,
)  # fmt: skip
HOST_IP = Variable(
    "host_ip", ("MA_CURRENT_HOST_IP",), settings.text, "", "address of the physical host: a rank table's server_id", "platform",
    per_node=True,
)  # fmt: skip
CURRENT_IP = Variable(
    "current_ip", ("MA_CURRENT_IP",), settings.text, "",
    "address of the host or, on newer platforms, of the container: used only to find a rank table's server", "platform", per_node=True,
)  # fmt: skip
SIGNS = Variable(
    "modelarts_signs",
    ("MA_NUM_HOSTS", "MA_NUM_GPUS", "MA_VJ_NAME", "MA_JOB_DIR", "MA_MOUNT_PATH", "MA_CURRENT_INSTANCE_NAME", "DLS_TASK_NUMBER"),
    settings.text, "", "set by ModelArts alone: any of them says that this is the platform", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    NODES, SLOTS, HOSTS, NODE_INDEX, STARTS, SCHEDULED, JOB_NAME, TASK, INSTANCE, HOSTNAME, HOST_IP, CURRENT_IP, SIGNS,
)  # fmt: skip

_HOST_FILE = "/etc/volcano/{task}.host"
_MOST_HOST_BYTES = 16 * 1024 * 1024


def detect(reader: Reader) -> bool:
    return reader.given(SIGNS)


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    index = _index(reader, nodes)
    hosts = _hosts(reader, nodes)
    slots = spread(reader, SLOTS, reader.get(SLOTS), nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=attempt(reader),
        hosts=hosts,
        slots=slots,
        node_index=index,
        accelerator=("npu", "MA_NUM_GPUS without a sign of a GPU"),  # GPU images carry CUDA's and NCCL's versions
        instance_name=reader.get(INSTANCE) or reader.get(HOSTNAME),
        host_ips=tuple(ip for ip in (reader.get(HOST_IP), reader.get(CURRENT_IP)) if ip),
        host_ip=reader.get(HOST_IP),
    )


def _index(reader: Reader, nodes: int) -> int:
    """The variables that say it, else the number that ends the pod's name."""
    if nodes == 1 and not _by_user(reader.candidates(NODE_INDEX)):  # whatever the cluster's own variables say then
        reader.note(NODE_INDEX.value, "0", "one node")
        return 0
    index = reader.get(NODE_INDEX) if reader.given(NODE_INDEX) else _index_by_name(reader, nodes)
    _refuse_other_name(reader, index)
    if index >= nodes:
        reader.problem(f"{reader.told(NODE_INDEX)}: expected 0 to {nodes - 1}, for {nodes} nodes")
    return min(index, nodes - 1)


def _by_user(candidates: list[Candidate]) -> bool:
    return bool(candidates) and candidates[0].source.startswith(("option ", "RANKLAUNCH_"))


def _index_by_name(reader: Reader, nodes: int) -> int:
    found = _suffix(reader, INSTANCE) or _suffix(reader, HOSTNAME)
    if not found:
        reader.problem(f"{nodes} nodes, but none of {', '.join((*NODE_INDEX.names, *INSTANCE.names))} says which one this is")
        return 0
    reader.note(NODE_INDEX.value, found.value, found.source)
    return int(found.value)


def _refuse_other_name(reader: Reader, index: int) -> None:
    """A pod whose name ends with another number is another node: one of the two is left over from somewhere else."""
    named = _suffix(reader, INSTANCE)
    told = reader.candidates(NODE_INDEX)
    if not named or not told or _by_user(told) or not told[0].value.strip().isdigit() or int(named.value) == index:
        return
    whole = reader.env[named.source]
    reader.problem(f"{told[0].source}={told[0].value!r} contradicts {named.source}={whole!r}: unset the wrong one or set RANKLAUNCH_NODE")


def _suffix(reader: Reader, variable: Variable[str]) -> Candidate | None:
    for candidate in reader.candidates(variable):
        number = re.search(r"-([0-9]{1,7})$", candidate.value)
        if number:
            return Candidate(candidate.source, number[1])
    return None


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    """VC_<TASK>_HOSTS, else Volcano's host file (huge jobs have no variable), else names made as Volcano makes them."""
    task = reader.get(TASK)
    names = ("RANKLAUNCH_HOSTS", f"VC_{re.sub('[^A-Za-z0-9]', '_', task).upper()}_HOSTS")
    variable = dataclasses.replace(HOSTS, names=names)
    hosts = reader.get(variable)
    source = (reader.candidates(variable) or [Candidate("", "")])[0].source
    if not hosts:
        hosts, source = _host_file(reader, _HOST_FILE.format(task=task))
    if nodes == 1 and len(hosts) != 1:
        reader.note(HOSTS.value, "localhost", "default")
        return ("localhost",)
    if not hosts:
        return _made_hosts(reader, task, nodes, names[1])
    if len(hosts) != nodes:
        reader.problem(f"{source} names {len(hosts)} hosts, but {_count_source(reader)} is {nodes}: expected as many names as nodes")
        return (hosts[0],) * nodes
    return hosts


def _host_file(reader: Reader, path: str) -> tuple[tuple[str, ...], str]:
    try:
        text = reader.files.text(path, _MOST_HOST_BYTES)
        hosts = settings.hosts(",".join(text.split())) if text and text.strip() else ()
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return (), path
    if hosts:
        reader.note(HOSTS.value, ",".join(hosts), path)
    return hosts, path


def _made_hosts(reader: Reader, task: str, nodes: int, variable: str) -> tuple[str, ...]:
    job = reader.env.get("MA_VJ_NAME", "")
    if not job:
        reader.problem(f"{nodes} nodes, but none of {variable}, {_HOST_FILE.format(task=task)} and MA_VJ_NAME names their hosts")
        return ("",) * nodes
    hosts = tuple(f"{job}-{task}-{i}.{job}" for i in range(nodes))
    try:
        settings.host(hosts[0])
    except ValueError as error:
        reader.problem(f"MA_VJ_NAME={settings.clipped(job)!r}, MA_TASK_NAME={settings.clipped(task)!r}: {error}")
    reader.note(HOSTS.value, ",".join(hosts), "MA_VJ_NAME, MA_TASK_NAME")
    return hosts


def _count_source(reader: Reader) -> str:
    reading = reader.reading(NODES.value)
    return reading.source if reading and reading.source != "default" else NODES.names[1]


def _name(reader: Reader) -> str:
    """The public job id: the cluster's own name says ma-job- where the platform's pages say modelarts-job-."""
    name = reader.get(JOB_NAME)
    if name:
        return re.sub(r"^ma-job(?=-)", "modelarts-job", name)
    instance = reader.get(INSTANCE)
    derived = re.sub(r"-[^-]+-[0-9]+$", "", instance)
    reader.note(JOB_NAME.value, derived or NAME, "MA_CURRENT_INSTANCE_NAME" if derived else "default")
    return derived or NAME


def attempt(reader: Reader) -> int:
    """Process starts and pod schedules together: the same number on pods that survived and on pods that were replaced."""
    starts = reader.get(STARTS)
    if _by_user(reader.candidates(STARTS)):
        return starts
    number = starts + reader.get(SCHEDULED) - 1
    if reader.given(STARTS) or reader.given(SCHEDULED):
        reader.note(STARTS.value, str(number), f"{STARTS.names[1]} + {SCHEDULED.names[0]} - 1")
    return number
