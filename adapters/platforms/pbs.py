"""OpenPBS, PBS Pro and Torque. A job's script runs on its first host alone; pbsdsh, pbs_tmrsh or mpiexec start one ranklaunch on each.

Source of the variables: OpenPBS, src/resmom/start_exec.c and doc/man1 (qsub, pbsdsh); Torque, src/resmom/start_exec.c.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, NODES, SLOTS
from ranklaunch.showing import clipped, show

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
NODE_INDEX = settings.NODE_INDEX.also("PALS_NODEID", "PBS_NODENUM")  # mpiexec of PALS hands on the script's own variables to all
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
    """True in a job. A shell of a login node has PBS_O_ variables and those of the server."""
    return reader.given(JOB_ID) and any(map(reader.given, (ENVIRONMENT, NODE_FILE, NODE_INDEX)))


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "PBS")
    hosts = _hosts(reader)
    index = _index(reader, hosts)
    job = reader.get(JOB_ID)
    known = batch.Batch(NAME, job, batch.name(reader, reader.get(PBS_NAME) or NAME, job, JOB_ID.names[0]))
    gpus = _gpus(reader, hosts)
    accelerator = ("gpu", GPU_FILE.names[0]) if gpus else ("cpu", "default")
    return batch.job(reader, program, known, hosts, index, gpus or batch.slots(reader, len(hosts)), accelerator)


def attempt(reader: Reader) -> int:
    return batch.attempt(reader, reader.get(JOB_ID))


def log_dir(reader: Reader) -> str:
    return batch.log_dir(reader, reader.get(JOB_ID), len(_hosts(reader)), reader.get(NODE_INDEX))


def _hosts(reader: Reader) -> tuple[str, ...]:
    """Return the hosts of all nodes: the user's, else each line of the node file once."""
    found = () if reader.get(HOSTS) else _listed(reader)
    if found or any(map(reader.given, (HOSTS, MASTER_ADDR))) or (reader.given(NODES) and reader.get(NODES) == 1):
        return batch.hosts(reader, found, NODE_FILE.names[0])
    reader.problem(
        f"{reader.told(JOB_ID)} without a {NODE_FILE.names[0]} that can be read here: PBS tells the hosts to the job's script alone, "
        f"which has to hand them on: pbsdsh -- env {HOSTS.names[0]}=HOST,HOST ranklaunch run ...; --nodes 1 says that there is one"
    )
    return ("localhost",)


def _listed(reader: Reader) -> tuple[str, ...]:
    """Return the hosts of the node file, () on a host that does not have it, though it may have the variable."""
    job, path = reader.get(JOB_ID), reader.get(NODE_FILE)
    found = batch.listed(reader, path) if path else {}
    return tuple(found or batch.listed(reader, f"{OF_FIRST_HOST}/{job.replace('/', '_')}"))


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    """Return the index of this node. OpenPBS numbers the script as task 1, and tasks that something has started with eight digits."""
    tasks = batch.Tasks((reader.get(TASKS_HERE),) * len(hosts), reader.get(TASK_HERE), (TASKS_HERE, TASK_HERE))
    script, command = "", "mpiexec --ppn 1 ranklaunch run ..."
    if not reader.given(TASK_HERE) and reader.get(TASK).strip() in ("", "1"):
        script, command = reader.told(TASK) if reader.given(TASK) else f"no {TASK.names[0]}", on_all(reader, hosts)
    return batch.index(reader, NODE_INDEX, hosts, tasks, command, script, batch.own_name(reader, hosts))


def on_all(reader: Reader, hosts: tuple[str, ...]) -> str:
    """Return the line that starts a ranklaunch on each host. Not by pbsdsh of OpenPBS, which ends with 0 whatever its tasks end with."""
    own = f"env RANKLAUNCH_HOSTS={clipped(','.join(hosts))} ranklaunch run ..."
    if "TORQUE" in reader.get(VERSION).upper():
        return f"pbsdsh -u {own}"
    return f"for host in $(sort -u $PBS_NODEFILE); do pbs_tmrsh $host {own} & done; wait $!"


def _gpus(reader: Reader, hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Return the GPUs of each host by Torque's file, () where it does not name them all."""
    path = reader.get(GPU_FILE)
    lines = batch.listed(reader, path) if path and not reader.given(SLOTS) else {}
    counts = batch.counted(reader, path, [match[1] for match in map(_GPU.fullmatch, lines) if match])
    if not counts or {*hosts} - counts.keys():
        return ()
    reader.ledger.note(SLOTS.value, show([counts[host] for host in hosts]), GPU_FILE.names[0])
    return tuple(counts[host] for host in hosts)
