"""Flux. One ranklaunch on each node, started by flux run with as many tasks as nodes.

Source of the variables: flux-core, doc/man7/flux-environment.rst, doc/man5/flux-config-exec.rst.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR

NAME = "flux"

KILLS_AFTER_S = 5  # exec.kill-timeout

JOB_ID = Variable(
    "flux_job", ("FLUX_JOB_ID", "FLUX_ENCLOSING_ID"), parse.text, "",
    "id of the job; the second, of the job whose script this is, of flux batch or flux alloc", "platform",
)  # fmt: skip
NODES = settings.NODES.also("FLUX_JOB_NNODES")
NODE_INDEX = settings.NODE_INDEX.also("FLUX_TASK_RANK")
TASKS = Variable("flux_tasks", ("FLUX_JOB_SIZE",), parse.positive, 1, "tasks of the job: one on each node", "platform")
TASK_HERE = Variable(
    "flux_task_here", ("FLUX_TASK_LOCAL_ID",), parse.count, 0, "number of this task on its node, from 0", "platform", per_node=True,
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (JOB_ID, NODES, NODE_INDEX, TASKS, TASK_HERE)

program = base.no_program
failure_file = base.no_failure_file

ONE_EACH = "flux run -N {0} -n {0} ranklaunch run ..."
HOSTS_COMMAND = "flux hostlist -e -d , local"


def detect(reader: Reader) -> bool:
    """True in a task of flux run and in a script. A shell of a login node has FLUX_URI alone, of the system's instance."""
    return several.has(reader, "FLUX_JOB_ID", "FLUX_TASK_RANK") or several.has(reader, "FLUX_URI", "FLUX_ENCLOSING_ID")


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "Flux")
    hosts = _hosts(reader)
    tasks = batch.Tasks(batch.even(reader.get(TASKS), len(hosts)), reader.get(TASK_HERE), (TASKS, TASK_HERE), NODE_INDEX)
    flux = batch.Batch(NAME, _id(reader), batch.name(reader, NAME, _id(reader), reader.source(JOB_ID)))
    if base.per_rank(reader) and not _script(reader):
        return batch.job_of_ranks(reader, program, flux, hosts, tasks)
    return batch.job(reader, program, flux, hosts, _index(reader, hosts, tasks), batch.slots(reader, len(hosts)))


def attempt(reader: Reader) -> int:
    return batch.attempt(reader, _id(reader))


def log_dir(reader: Reader) -> str:
    return batch.log_dir(reader, _id(reader), len(_hosts(reader)), reader.get(NODE_INDEX))


def _id(reader: Reader) -> str:
    """Return the id with its first letter as f, as Flux writes it in a locale without \u0192: the nodes' may differ."""
    return re.sub("^\u0192", "f", reader.get(JOB_ID).strip())


def _script(reader: Reader) -> str:
    """Return the sign that this is the script of flux batch or flux alloc, "" in a task of flux run."""
    return "" if several.has(reader, JOB_ID.names[0]) else f"no {NODE_INDEX.names[-1]} of flux run"


def _index(reader: Reader, hosts: tuple[str, ...], tasks: batch.Tasks) -> int:
    script = _script(reader)
    if script and not any(map(reader.given, (settings.NODES, HOSTS, settings.NODE_INDEX))):
        remedy = f"{ONE_EACH.format('NODES')}; --nodes 1 says that it has one node"
        batch.refuse_script(reader, "an unknown number of nodes", script, remedy)
    return batch.index(reader, NODE_INDEX, hosts, tasks, ONE_EACH.format(len(hosts)), script)


def _hosts(reader: Reader) -> tuple[str, ...]:
    nodes = reader.get(NODES)
    if nodes == 1 or reader.given(HOSTS) or reader.given(MASTER_ADDR):
        return batch.hosts(reader, (), "", NODES)
    reader.problem(
        f"{reader.told(NODES)}, and no variable of Flux names the hosts: --hosts-command '{HOSTS_COMMAND}' "
        f"(RANKLAUNCH_HOSTS_COMMAND) asks it, or set {HOSTS.names[0]}"
    )
    return ("localhost",) * nodes
