"""OpenPBS, PBS Pro and Torque. A job's script runs on the first host alone; pbsdsh, pbs_tmrsh or mpiexec starts one ranklaunch on each.

Source of the variables: OpenPBS, src/resmom/start_exec.c and doc/man1 (qsub, pbsdsh); Torque, src/resmom/start_exec.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ranklaunch.adapters.platforms.shared import batch
from ranklaunch.adapters.platforms.shared.facts import LISTED_SLOTS, Fact, copied, of_hosts
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import HOSTS, NODE_INDEX
from ranklaunch.showing import clipped

NODE_FILES = "/var/spool/pbs/aux"  # OpenPBS's folder of node files, named by job id, on the first host; tasks have no variable for the file

JOB_ID = platform_text("pbs_job", ("PBS_JOBID",), "id of the job")
NODE_FILE = platform_text(
    "pbs_node_file",
    ("PBS_NODEFILE",),
    "file of the job's hosts, a line for each of their slots; on the first host",
    default_text=f"{NODE_FILES}/ID, if it exists",
)
NODE = platform_text("pbs_node", ("PBS_NODENUM",), "index of this node; under mpiexec of PALS that of the script's node", per_node=True)
TASK = platform_text(
    "pbs_task", ("PBS_TASKNUM",), "number of this task: 1 is the job's script, which runs on the first host alone", per_node=True
)
TASKS_HERE = Variable(
    "pals_tasks", ("PALS_LOCAL_SIZE",), parse.positive, 1, "tasks of mpiexec of PALS on this host; must be one", "platform",
)  # fmt: skip
TASK_HERE = platform_count("pals_task", ("PALS_LOCAL_RANKID",), "number of this task of PALS on this host, from 0")
GPU_FILE = platform_text("pbs_gpu_file", ("PBS_GPUFILE",), "Torque's file of the job's GPUs, with lines HOST-gpuN")
VERSION = platform_text("pbs_version", ("PBS_VERSION",), "TORQUE-... means Torque, whose pbsdsh differs from OpenPBS's")


_GPU = re.compile(r"(\S+)-gpu[0-9]+")


class Pbs(batch.System):
    OWN = (JOB_ID, NODE_FILE, NODE, TASK, TASKS_HERE, TASK_HERE, GPU_FILE, VERSION)
    JOB_ID = JOB_ID

    def facts(self, reader: Reader) -> Iterator[Fact]:
        """Yield the hosts of the node file, each once, this node's index and the GPUs. A host may have the variable without the file."""
        hosts = reader.get(HOSTS)
        if not hosts:
            paths = filter(None, (reader.get(NODE_FILE), f"{NODE_FILES}/{reader.get(JOB_ID)}"))
            hosts = tuple(next(filter(None, (batch.listed(reader, path) for path in paths)), ()))
            yield from of_hosts(NODE_FILE.name, hosts)
        if "PALS_NODEID" not in reader.env:
            yield from copied(reader, NODE_INDEX, NODE)
        yield from batch.own_index(reader, hosts)
        yield from _gpus(reader, hosts)

    def tasks(self, reader: Reader, nodes: int) -> batch.Tasks:
        """Return the tasks of this host. OpenPBS gives the script task number 1, and started tasks numbers of eight digits."""
        script, command = "", "mpiexec --ppn 1 ranklaunch run ..."
        if not reader.is_set(TASK_HERE) and reader.get(TASK).strip() in ("", "1"):
            script, command = reader.described(TASK) if reader.is_set(TASK) else f"no {TASK.name}", on_all(reader)
        variables = (TASKS_HERE, TASK_HERE)
        return batch.Tasks((reader.get(TASKS_HERE),) * nodes, reader.get(TASK_HERE), variables, script=script, command=command)


def on_all(reader: Reader) -> str:
    """Return the shell line that starts one ranklaunch on each host. OpenPBS's pbsdsh is not used: it exits with 0 if its tasks fail."""
    start = f"env RANKLAUNCH_HOSTS={clipped(','.join(reader.get(HOSTS)))} ranklaunch run ..."
    if "TORQUE" in reader.get(VERSION).upper():
        return f"pbsdsh -u {start}"
    return f"for host in $(sort -u $PBS_NODEFILE); do pbs_tmrsh $host {start} & done; wait $!"


def _gpus(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    """Yield the GPUs of each host from Torque's file, if the file has all hosts."""
    path = reader.get(GPU_FILE)
    lines = batch.listed(reader, path) if path else {}
    counts = batch.counted(reader, path, [match[1] for match in map(_GPU.fullmatch, lines) if match])
    if counts and not {*hosts} - counts.keys():
        yield LISTED_SLOTS, GPU_FILE.name, [counts[host] for host in hosts]
