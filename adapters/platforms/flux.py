"""Flux. One ranklaunch on each node, started by flux run with as many tasks as nodes.

Source of the variables: flux-core, doc/man7/flux-environment.rst, doc/man5/flux-config-exec.rst.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.errors import counted
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, JOB_NAME, MASTER_ADDR, make_job
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.typed import TYPE_CHECKING
from ranklaunch.values import replace

if TYPE_CHECKING:
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

NAME = "flux"

KILLS_AFTER_S = 5  # exec.kill-timeout

JOB_ID = Variable("flux_job", ("FLUX_JOB_ID",), parse.text, "", "id of the job", "platform")
NODES = ANY_NODES.also("FLUX_JOB_NNODES")
JOB_NODES = Variable("flux_nodes", ("FLUX_JOB_NNODES",), parse.positive, 1, "nodes of the job, where each rank is one of ours", "platform")
NODE_INDEX = ANY_NODE_INDEX.also("FLUX_TASK_RANK")
TASKS = Variable("flux_tasks", ("FLUX_JOB_SIZE",), parse.positive, 1, "tasks of the job: one on each node", "platform")
TASK_HERE = Variable(
    "flux_task_here", ("FLUX_TASK_LOCAL_ID",), parse.count, 0, "number of this task on its node, from 0", "platform", per_node=True,
)  # fmt: skip
ENCLOSING = Variable(
    "flux_enclosing", ("FLUX_ENCLOSING_ID",), parse.text, "", "id of the job whose script this is, of flux batch or flux alloc", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (JOB_ID, NODES, JOB_NODES, NODE_INDEX, TASKS, TASK_HERE, ENCLOSING)

program = base.no_program
failure_file = base.no_failure_file

ONE_EACH = "flux run -N {0} -n {0} ranklaunch run ..."
HOSTS_COMMAND = "flux hostlist -e -d , local"


def detect(reader: Reader) -> bool:
    """What a shell of a login node has, the FLUX_URI of the system's instance, is none."""
    script = several.has(reader, "FLUX_URI", "FLUX_ENCLOSING_ID")
    return several.has(reader, "FLUX_JOB_ID", "FLUX_TASK_RANK") or script


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "Flux")
    if base.per_rank(reader) and reader.given(JOB_ID):
        from ranklaunch.adapters.platforms.shared import per_rank  # most have one on a node

        return per_rank.job(reader, program, _tasks(reader), platform=NAME, name=_name(reader), folder=_id(reader))
    hosts = _hosts(reader)
    index = _index(reader, len(hosts))
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=batch.attempt(reader, _id(reader), len(hosts), index),
        hosts=hosts,
        slots=batch.slots(reader, len(hosts)),
        node_index=index,
    )
    return replace(job, log_dir=batch.log_dir(reader, _id(reader), len(hosts), index))


def attempt(reader: Reader) -> int:
    return batch.attempt(reader, _id(reader))


def log_dir(reader: Reader) -> str:
    """The same folder, also where the job cannot be made out."""
    nodes = len(reader.get(HOSTS)) or reader.get(NODES)
    return batch.log_dir(reader, _id(reader), nodes, reader.get(NODE_INDEX))


def _id(reader: Reader) -> str:
    """In a locale without it Flux writes f for the letter that an id begins with: the nodes' may differ."""
    return re.sub("^\u0192", "f", (reader.get(JOB_ID) or reader.get(ENCLOSING)).strip())


def _tasks(reader: Reader) -> Tasks:
    """As many on each node: Flux tells nobody else's."""
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

    tasks, nodes = reader.get(TASKS), reader.get(JOB_NODES)
    names = ", ".join(variable.names[-1] for variable in (TASKS, JOB_NODES, TASK_HERE))
    each = tasks // nodes if tasks % nodes == 0 else 0
    return Tasks(tasks, reader.get(TASK_HERE), each, NODE_INDEX, names, (), nodes)


def _name(reader: Reader) -> str:
    """Flux tells no other than the id."""
    if not reader.given(JOB_NAME):
        reader.ledger.note(JOB_NAME.value, f"{NAME}-{_id(reader)}", reader.source(JOB_ID if reader.given(JOB_ID) else ENCLOSING))
    return reader.get(JOB_NAME) if reader.given(JOB_NAME) else f"{NAME}-{_id(reader)}"


def _index(reader: Reader, nodes: int) -> int:
    if reader.by_user(ANY_NODE_INDEX):
        return base.index(reader, nodes, NODE_INDEX)
    alone = None if reader.given(JOB_ID) else _script(reader, nodes)
    if alone:
        batch.starts_once(reader, *alone)
        return 0
    return base.index(reader, nodes, NODE_INDEX) if _one_task_each(reader, nodes) else 0


def _script(reader: Reader, nodes: int) -> tuple[str, str] | None:
    """What is wrong, and the remedy, where one runs on the first node, and nothing tells it how many there are."""
    task = NODE_INDEX.names[-1]
    if nodes > 1:
        return f"{nodes} nodes, and no {task} of flux run", ONE_EACH.format(nodes)
    if reader.given(ANY_NODES) or reader.given(HOSTS):
        return None
    said = f"{reader.told(ENCLOSING)} without a {task}: a script of flux batch or flux alloc, which runs on the first node"
    return said, f"{ONE_EACH.format('NODES')}; --nodes 1 says that it has one node"


def _one_task_each(reader: Reader, nodes: int) -> bool:
    """Then their numbers are the nodes', however Flux places them."""
    tasks = reader.get(TASKS) if reader.given(TASKS) else nodes
    fits = tasks == reader.get(NODES)
    if fits and not reader.get(TASK_HERE):
        return True
    told = reader.told(TASK_HERE if fits else TASKS)
    reader.problem(
        f"{told}, of {tasks} tasks on {counted(nodes, 'node')}: Flux starts several ranklaunch on a node, and each would start all of "
        f"the node's ranks; expected one: {ONE_EACH.format(nodes)}, with --slots for the number of ranks; or --per-rank, "
        "with which each stands before one rank"
    )
    return False


def _hosts(reader: Reader) -> tuple[str, ...]:
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(reader.get(HOSTS)))
    if nodes > 1 and not reader.given(HOSTS) and not reader.given(MASTER_ADDR):
        reader.problem(
            f"{reader.told(NODES)}, and no variable of Flux names the hosts: --hosts-command '{HOSTS_COMMAND}' "
            f"(RANKLAUNCH_HOSTS_COMMAND) asks it, or set {HOSTS.names[0]}"
        )
        return ("localhost", *("",) * (nodes - 1))
    return several.hosts(reader, nodes, (), "")
