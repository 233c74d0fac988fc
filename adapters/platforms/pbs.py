"""OpenPBS, PBS Pro and Torque. A job's script runs on its first host alone; pbsdsh, pbs_tmrsh or mpiexec start one ranklaunch on each.

Source of the variables: OpenPBS, src/resmom/start_exec.c and doc/man1 (qsub, pbsdsh); Torque, src/resmom/start_exec.c.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, batch, own_place, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, NODES, SLOTS, make_job
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.values import replace

NAME = "pbs"

KILLS_AFTER_S = 10  # kill_delay, unless the queue says more
OF_FIRST_HOST = "/var/spool/pbs/aux"  # OpenPBS's own folder of node files, by id: tasks have no variable that says so

JOB_ID = Variable("pbs_job", ("PBS_JOBID",), parse.text, "", "id of the job", "platform")
ENVIRONMENT = Variable("pbs_environment", ("PBS_ENVIRONMENT",), parse.text, "", "PBS_BATCH or PBS_INTERACTIVE", "platform")
PBS_NAME = Variable("pbs_name", ("PBS_JOBNAME",), parse.text, "", "name of the job", "platform")
NODE_FILE = Variable(
    "pbs_node_file", ("PBS_NODEFILE",), parse.text, "", "file of the job's hosts, a line for each of their slots; on the first host",
    "platform", default_text=f"{OF_FIRST_HOST}/ID, where it exists",
)  # fmt: skip
NODE_INDEX = ANY_NODE_INDEX.also("PALS_NODEID", "PBS_NODENUM")  # mpiexec of PALS hands on the script's own variables to all
TASK = Variable(
    "pbs_task", ("PBS_TASKNUM",), parse.text, "", "number of this task: 1 is the job's script itself, which runs on the first host alone",
    "platform", per_node=True,
)  # fmt: skip
TASKS_HERE = Variable(
    "pals_tasks", ("PALS_LOCAL_SIZE",), parse.positive, 1, "tasks that mpiexec of PALS starts on this host: one", "platform",
)  # fmt: skip
TASK_HERE = Variable(
    "pals_task", ("PALS_LOCAL_RANKID",), parse.count, 0, "number of this one among them, from 0", "platform",
)  # fmt: skip
GPU_FILE = Variable(
    "pbs_gpu_file", ("PBS_GPUFILE",), parse.text, "", "Torque's file of the job's GPUs, with lines HOST-gpuN", "platform",
)  # fmt: skip

VERSION = Variable("pbs_version", ("PBS_VERSION",), parse.text, "", "TORQUE-...: Torque, whose pbsdsh is another one", "platform")

VARIABLES: tuple[Variable[object], ...] = (
    JOB_ID, ENVIRONMENT, PBS_NAME, NODE_FILE, NODE_INDEX, TASK, TASKS_HERE, TASK_HERE, GPU_FILE, VERSION,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file

_GPU = re.compile(r"(\S+)-gpu[0-9]+")


def detect(reader: Reader) -> bool:
    """What a shell of a login node has, PBS_O_ variables and the server's, is none."""
    beside = ("PBS_ENVIRONMENT", "PBS_NODEFILE", "PBS_NODENUM")
    return several.has(reader, "PBS_JOBID") and any(several.has(reader, name) for name in beside)


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "PBS")
    hosts = _hosts(reader)
    index = _index(reader, hosts)
    listed = _listed_gpus(reader, hosts)
    slots = listed or batch.slots(reader, len(hosts))
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=batch.name(reader, PBS_NAME, reader.get(JOB_ID), NAME, JOB_ID.names[0]),
        attempt=batch.attempt(reader, reader.get(JOB_ID), len(hosts), index),
        hosts=hosts,
        slots=slots,
        node_index=index,
        accelerator=("gpu", GPU_FILE.names[0]) if listed else ("cpu", "default"),
    )
    return replace(job, log_dir=batch.log_dir(reader, reader.get(JOB_ID), len(hosts), index))


def attempt(reader: Reader) -> int:
    return batch.attempt(reader, reader.get(JOB_ID))


def log_dir(reader: Reader) -> str:
    """The same folder, also where the job cannot be made out."""
    nodes = len(reader.get(HOSTS) or _listed(reader)) or reader.get(NODES)
    return batch.log_dir(reader, reader.get(JOB_ID), nodes, reader.get(NODE_INDEX))


def _listed(reader: Reader) -> tuple[str, ...]:
    """By the node file, in its order, each once. Other hosts may have been handed the variable, and do not have the file."""
    job = reader.get(JOB_ID)
    paths = (reader.get(NODE_FILE), f"{OF_FIRST_HOST}/{job}" if "/" not in job else "")
    return next((tuple(found) for path in paths if path and (found := batch.listed(reader, path))), ())


def _hosts(reader: Reader) -> tuple[str, ...]:
    given = reader.get(HOSTS)
    listed = () if given else _listed(reader)
    nodes = _count(reader, given or listed)
    if given or listed or reader.given(MASTER_ADDR) or (nodes == 1 and reader.given(NODES)):
        return several.hosts(reader, nodes, listed, NODE_FILE.names[0])
    reader.problem(
        f"{reader.told(JOB_ID)} without a {NODE_FILE.names[0]} that can be read here: PBS tells the hosts to the job's script alone, "
        f"which has to hand them on: pbsdsh -- env {HOSTS.names[0]}=HOST,HOST ranklaunch run ...; --nodes 1 says that there is one"
    )
    return ("localhost",)


def _count(reader: Reader, hosts: tuple[str, ...]) -> int:
    if reader.given(NODES) or not hosts:
        return reader.get(NODES)
    reader.ledger.note(NODES.value, str(len(hosts)), reader.source(HOSTS) if reader.given(HOSTS) else NODE_FILE.names[0])
    return len(hosts)


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    _refuse_several_tasks(reader)
    if len(hosts) == 1:
        return base.index(reader, 1, NODE_INDEX)
    if not reader.given(NODE_INDEX):
        found = own_place.find(reader, hosts)
        if len(found) == 1:
            reader.ledger.note(NODE_INDEX.value, str(found[0]), f"{hosts[found[0]]} is this host")
            return found[0]
    index = base.index(reader, len(hosts), NODE_INDEX)
    if not reader.by_user(NODE_INDEX):
        _refuse_other_place(reader, hosts, index)
        _refuse_script(reader, hosts, index)
    return index


def _refuse_other_place(reader: Reader, hosts: tuple[str, ...], index: int) -> None:
    """A name is compared where the job's list has this host's: the others may know it by another."""
    found = own_place.find(reader, hosts)
    if reader.given(NODE_INDEX) and found and index not in found:
        reader.problem(
            f"{reader.told(NODE_INDEX)} is {hosts[index]} of {showing.clipped(', '.join(hosts))}, but this is {hosts[found[0]]}: "
            f"expected the hosts in the order of {NODE_FILE.names[0]}; or set {ANY_NODE_INDEX.names[0]}"
        )


def _refuse_script(reader: Reader, hosts: tuple[str, ...], index: int) -> None:
    """OpenPBS writes the number of the script as 1, of tasks that something has started with eight digits."""
    if index == 0 and reader.get(TASK).strip() in ("", "1") and not reader.env.get("PALS_NODEID", "").strip():
        said = f"{len(hosts)} hosts, and {reader.told(TASK)} is the job's script, which runs on the first" if reader.given(TASK) else (
            f"{len(hosts)} hosts, and no {TASK.names[0]} of a task that pbsdsh has started"
        )  # fmt: skip
        batch.starts_once(reader, said, on_all(reader, hosts))


def on_all(reader: Reader, hosts: tuple[str, ...]) -> str:
    """The line that starts a ranklaunch on each host. Not by pbsdsh of OpenPBS, which ends with 0 whatever its tasks end with."""
    own = f"env RANKLAUNCH_HOSTS={showing.clipped(','.join(hosts))} ranklaunch run ..."
    if "TORQUE" in reader.get(VERSION).upper():
        return f"pbsdsh -u {own}"
    return f"for host in $(sort -u $PBS_NODEFILE); do pbs_tmrsh $host {own} & done; wait $!"


def _refuse_several_tasks(reader: Reader) -> None:
    if not reader.by_user(NODE_INDEX) and (reader.get(TASKS_HERE) > 1 or reader.get(TASK_HERE) > 0):
        told = reader.told(TASKS_HERE if reader.given(TASKS_HERE) else TASK_HERE)
        reader.problem(
            f"{told}: mpiexec starts several ranklaunch on a host, and each would start all of the node's ranks; expected one: "
            "mpiexec --ppn 1 ranklaunch run ..., with --slots for the number of ranks"
        )


def _listed_gpus(reader: Reader, hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Torque may list the GPUs of all hosts; () where it does not."""
    path = reader.get(GPU_FILE)
    lines = list(batch.listed(reader, path)) if path and not reader.given(SLOTS) else []
    counts = batch.counted(reader, path, [match[1] for match in map(_GPU.fullmatch, lines) if match])
    if not counts or set(hosts) - counts.keys():
        return ()
    reader.ledger.note(SLOTS.value, showing.show([counts[host] for host in hosts]), GPU_FILE.names[0])
    return tuple(counts[host] for host in hosts)
