"""Slurm. One ranklaunch on each node, started by srun with --ntasks-per-node=1; a node of the job is a node of srun's step.

Source of the variables: https://slurm.schedmd.com/srun.html and https://slurm.schedmd.com/sbatch.html, "Output environment variables".
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, batch, hostlist
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, JOB_NAME, spread
from ranklaunch.showing import show
from ranklaunch.typed import TypeVar
from ranklaunch.values import replace

NAME = "slurm"

T = TypeVar("T")

MOST_COMPONENTS = 128  # Slurm's own MAX_HET_JOB_COMPS


def _gpus(value: str) -> int:
    """Return the sum of 4, a100:4, or a100:2,v100:2."""
    return sum(parse.whole(part.rpartition(":")[2], 0, parse.MOST_SLOTS) for part in value.split(","))


def _listed(value: str) -> int:
    return len(parse.names(value))


JOB_ID = Variable("slurm_job", ("SLURM_JOB_ID", "SLURM_JOBID"), parse.text, "", "id of the job", "platform", agree=True)
STEP_ID = Variable("slurm_step", ("SLURM_STEP_ID", "SLURM_STEPID"), parse.text, "", "id of srun's step", "platform", agree=True)
STEP_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_step", ("SLURM_STEP_NODELIST",), hostlist.hosts, (), "nodes of srun's step, with Slurm's ranges", "platform",
)  # fmt: skip
JOB_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_job", ("SLURM_JOB_NODELIST", "SLURM_NODELIST"), hostlist.hosts, (), "nodes of the job, where there is no step", "platform",
)  # fmt: skip
NODES = settings.NODES.also("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
NODE_INDEX = settings.NODE_INDEX.also("SLURM_NODEID")
NODE_NAME = Variable(
    "node_name", ("SLURMD_NODENAME",), parse.text, "", "name of this node: its place among the names must be its index", "platform",
    per_node=True,
)  # fmt: skip
TASKS: Variable[tuple[int, ...]] = Variable(
    "tasks_per_node", ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), hostlist.counts, (),
    "tasks that srun starts on each node: one; without srun, the slots where there is no GPU", "platform",
)  # fmt: skip
ASKED_TASKS = Variable(
    "asked_tasks", ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"), parse.text, "",
    "tasks that sbatch or salloc was asked for; without, SLURM_TASKS_PER_NODE counts processors", "platform",
)  # fmt: skip
RANK = replace(settings.NODE_INDEX.also("SLURM_PROCID"), per_node=False)
TASK_HERE = Variable(
    "task_here", ("SLURM_LOCALID",), parse.count, 0, "number of srun's task on its node, where each is one of ours", "platform",
)  # fmt: skip
SLOTS = settings.SLOTS.also("SLURM_GPUS_ON_NODE")
GPU_IDS = Variable(
    "gpu_ids", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), _listed, 0, "GPUs of this node, where their number is not said", "platform",
    default_text="none",
)  # fmt: skip
GPUS_PER_NODE = Variable(
    "gpus_per_node", ("SLURM_GPUS_PER_NODE",), _gpus, 0, "GPUs that were asked for, where nothing says which there are", "platform",
)  # fmt: skip
SLURM_NAME = JOB_NAME.also("SLURM_JOB_NAME")
RESTARTS = Variable("restarts", ("SLURM_RESTART_COUNT",), parse.count, 0, "how often the job was requeued", "platform")
COMPONENTS = Variable("components", ("SLURM_HET_SIZE",), parse.count, 0, "components of a heterogeneous job", "platform")
COMPONENT_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_component_0", ("SLURM_JOB_NODELIST_HET_GROUP_0",), hostlist.hosts, (),
    "nodes of a heterogeneous job's first component; each has such a variable, by its number", "platform",
)  # fmt: skip
COMPONENT_GPUS = Variable(
    "gpus_of_component_0", ("SLURM_GPUS_PER_NODE_HET_GROUP_0",), _gpus, 0,
    "GPUs that were asked for on each node of a heterogeneous job's first component; each may have such a variable", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (
    JOB_ID, STEP_ID, STEP_NODES, JOB_NODES, NODES, NODE_INDEX, NODE_NAME, TASKS, ASKED_TASKS, RANK, TASK_HERE, SLOTS, GPU_IDS,
    GPUS_PER_NODE, SLURM_NAME, RESTARTS, COMPONENTS, COMPONENT_NODES, COMPONENT_GPUS,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file

ON_ALL_COMPONENTS = "srun --het-group=0-{} --ntasks-per-node=1 ranklaunch run ..."
ONE_EACH = "srun --ntasks={} --ntasks-per-node=1 ranklaunch run ..."  # without --ntasks, srun takes sbatch's
OWN_STEPS = "42949672[89][0-9]"  # of Slurm: the shell of salloc, the script of sbatch, what holds a job's processes
_NO_STEP = f"no {STEP_ID.names[0]} of srun"


def detect(reader: Reader) -> bool:
    return reader.given(JOB_ID) and any(map(reader.given, (STEP_NODES, JOB_NODES, NODES)))


def read(reader: Reader, program: Program) -> Job:
    _leave_step_of_salloc(reader)
    hosts = _hosts(reader)
    called = reader.get(SLURM_NAME) or NAME
    slurm = batch.Batch(NAME, _id(reader), batch.name(reader, called, _id(reader), reader.source(JOB_ID)), attempt(reader))
    if base.per_rank(reader) and reader.given(STEP_ID):
        return batch.job_of_ranks(reader, program, slurm, hosts, _tasks(reader, len(hosts)))
    index, slots = _index(reader, hosts), _slots(reader, hosts)
    accelerator = ("gpu", reader.source(SLOTS)) if "GPU" in reader.source(SLOTS) else ("cpu", "default")
    return batch.job(reader, program, slurm, hosts, index, slots, accelerator)


def attempt(reader: Reader) -> int:
    number = reader.get(RESTARTS) + 1
    if reader.given(RESTARTS):
        reader.offer(ATTEMPT.value, Candidate(f"{RESTARTS.names[0]} + 1", str(number)))
    return reader.get(ATTEMPT)


def log_dir(reader: Reader) -> str:
    _leave_step_of_salloc(reader)
    return batch.log_dir(reader, _id(reader), len(_hosts(reader)), reader.get(NODE_INDEX))


def _id(reader: Reader) -> str:
    """Return JOB.STEP, or JOB in a script."""
    return ".".join(filter(None, (reader.get(JOB_ID), reader.get(STEP_ID))))


def _leave_step_of_salloc(reader: Reader) -> None:
    """Ignore the step that is the shell of salloc: it has one task on the first node, and says nothing of the job."""
    if re.fullmatch(OWN_STEPS, reader.get(STEP_ID).strip()):
        reader.leave_aside("SLURM_STEP", "SLURM_NNODES")  # the second is the step's or the job's, as the cluster is set up


def _hosts(reader: Reader) -> tuple[str, ...]:
    listed = _nodes(reader)
    if reader.get(HOSTS):
        return batch.hosts(reader, (), "")
    named = reader.get(listed)
    if named:
        _compare_with_job(reader, named)
        named = _by_component(reader, named)
    return batch.hosts(reader, named, listed.names[0], NODES)


def _nodes(reader: Reader) -> Variable[tuple[str, ...]]:
    return STEP_NODES if reader.given(STEP_NODES) else JOB_NODES


def _compare_with_job(reader: Reader, hosts: tuple[str, ...]) -> None:
    """Refuse a step on a node that is none of the job's: variables of another job are left over. Warn of a step on some of its nodes."""
    texts = {found.value for variable in (STEP_NODES, JOB_NODES) for found in reader.candidates(variable)}
    whole = reader.get(JOB_NODES) if len(texts) > 1 else hosts
    strange = sorted({*hosts} - {*whole})
    if whole and strange:
        reader.problem(
            f"{reader.told(STEP_NODES)} names {strange[0]}, which {reader.told(JOB_NODES)} does not: one of them is another job's; unset "
            "the wrong one"
        )
    elif len(hosts) < len(whole):
        reader.warn(f"{reader.told(STEP_NODES)}: {len(hosts)} of the {len(whole)} nodes of {reader.told(JOB_NODES)}")


# Heterogeneous jobs


def _components(reader: Reader) -> list[tuple[tuple[str, ...], int]]:
    """Return nodes and GPUs of each component of a heterogeneous job, [] for another job or where Slurm does not name them all."""
    numbers = range(min(reader.get(COMPONENTS), MOST_COMPONENTS))
    found = [(_of_component(reader, COMPONENT_NODES, number), _of_component(reader, COMPONENT_GPUS, number)) for number in numbers]
    return found if len(found) > 1 and all(nodes for nodes, _ in found) else []


def _of_component(reader: Reader, variable: Variable[T], number: int) -> T:
    """Return the value of a variable of component 0 for another component."""
    names = (f"{variable.names[0][:-1]}{number}",)
    return reader.get(Variable(f"{variable.value[:-1]}{number}", names, variable.parse, variable.default, variable.meaning, "platform"))


def _by_component(reader: Reader, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in the order in which srun numbers them. It lists them in another."""
    size = reader.get(COMPONENTS)
    whole = [host for nodes, _ in _components(reader) for host in nodes]
    listed = {*names}
    here = [host for host in whole if host in listed]
    if size > 1 and not whole:
        reader.problem(
            f"{reader.told(COMPONENTS)}: a heterogeneous job, of which {COMPONENT_NODES.names[0]} and the others do not name the nodes: "
            f"say what they are with {HOSTS.names[0]}, {settings.NODE_INDEX.names[0]} and {settings.SLOTS.names[0]}"
        )
    elif len(here) < len(whole):  # without --het-group srun starts on the first component alone
        some = f"{reader.told(COMPONENTS)}: {len(here)} of the {len(whole)} nodes of a heterogeneous job"
        on_all = ON_ALL_COMPONENTS.format(size - 1)
        if reader.given(STEP_ID) or reader.by_user(NODE_INDEX):
            reader.warn(f"{some}; {on_all} starts on all")
        else:
            batch.refuse_script(reader, some, _NO_STEP, on_all)
    return tuple(here) if len(here) == len(names) else names


def _gpus_by_component(reader: Reader, hosts: tuple[str, ...]) -> list[int]:
    """Return the GPUs that each node was asked for with, [] where the nodes are of one component or none was asked for."""
    components = [each for each in _components(reader) if not {*hosts}.isdisjoint(each[0])]
    gpus = {host: number for nodes, number in components for host in nodes}
    return [gpus.get(host, 0) for host in hosts] if len(components) > 1 and any(gpus.values()) else []


# Tasks and GPUs


def _tasks(reader: Reader, nodes: int) -> batch.Tasks:
    node = 0 if reader.by_user(NODE_INDEX) else reader.get(NODE_INDEX)
    return batch.Tasks(reader.get(TASKS) or (1,) * nodes, reader.get(TASK_HERE), (TASKS, TASK_HERE), RANK, node)


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    listed = () if reader.given(HOSTS) else reader.get(_nodes(reader))
    here = reader.get(NODE_NAME) if len(listed) == len(hosts) else ""
    script = "" if reader.given(STEP_ID) else _NO_STEP
    return batch.index(reader, NODE_INDEX, hosts, _tasks(reader, len(hosts)), ONE_EACH.format(len(hosts)), script, here)


def _slots(reader: Reader, hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Return the slots of all nodes. Slurm tells a node of its own GPUs alone; where the nodes differ, the muster finds out."""
    by_component = _gpus_by_component(reader, hosts)
    if by_component and not reader.by_user(SLOTS):
        reader.settle(SLOTS.value, Candidate("the components' GPUs", show(by_component)))
    for variable in (GPU_IDS, GPUS_PER_NODE):
        if reader.given(variable) and not reader.given(SLOTS):
            reader.offer(SLOTS.value, Candidate(reader.candidates(variable)[0].source, str(reader.get(variable))))
    if not reader.given(SLOTS):
        _offer_tasks(reader, len(hosts))
    return spread(reader, SLOTS, reader.get(SLOTS), len(hosts))


def _offer_tasks(reader: Reader, nodes: int) -> None:
    """Offer the tasks that sbatch was asked for as slots: nobody gives the job a GPU."""
    tasks = () if reader.given(STEP_ID) else reader.get(TASKS)
    if len(tasks) == nodes and reader.given(ASKED_TASKS):
        reader.offer(SLOTS.value, Candidate(reader.source(TASKS), show(tasks)))
        return
    if max(tasks, default=1) > 1:
        reader.warn(f"{reader.told(TASKS)} counts processors, since nobody asked for tasks: one process; --slots says how many a node has")
    if any(re.fullmatch("(nvidia|davinci)[0-9]+", name) for name in reader.files.names("/dev")):
        reader.warn(
            f"/dev has accelerators, but none of {', '.join((*SLOTS.names[1:], *GPU_IDS.names, *GPUS_PER_NODE.names))} gives the job any; "
            "--slots says how many processes a node has"
        )
