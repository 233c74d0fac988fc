"""Slurm. One ranklaunch on each node, started by srun with --ntasks-per-node=1; a node of the job is a node of srun's step.

Source of the variables: https://slurm.schedmd.com/srun.html and https://slurm.schedmd.com/sbatch.html, "Output environment variables".
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, hostlist
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, JOB_NAME, LOG_DIR, MASTER_ADDR, make_job, spread
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.typed import TYPE_CHECKING, TypeVar
from ranklaunch.values import replace

if TYPE_CHECKING:
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

NAME = "slurm"

T = TypeVar("T")

MOST_COMPONENTS = 128  # Slurm's own MAX_HET_JOB_COMPS


def _gpus(value: str) -> int:
    """4, a100:4, or a100:2,v100:2."""
    matches = [re.fullmatch(r"(?:[^:,]+:)*([0-9]{1,4})", part.strip()) for part in parse.text(value).split(",")]
    found = [int(match[1]) for match in matches if match]
    if len(found) != len(matches):
        msg = "expected a number of GPUs, such as 4 or a100:4"
        raise ValueError(msg)
    return sum(found)


JOB_ID = Variable("slurm_job", ("SLURM_JOB_ID", "SLURM_JOBID"), parse.text, "", "id of the job", "platform", agree=True)
STEP_ID = Variable("slurm_step", ("SLURM_STEP_ID", "SLURM_STEPID"), parse.text, "", "id of srun's step", "platform", agree=True)
NODE_NAMES: Variable[tuple[str, ...]] = Variable(
    "node_names", ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"), hostlist.hosts, (),
    "nodes of srun's step, else of the job, with Slurm's ranges", "platform",
)  # fmt: skip
NODES = ANY_NODES.also("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
NODE_INDEX = ANY_NODE_INDEX.also("SLURM_NODEID")
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
RANK = replace(ANY_NODE_INDEX.also("SLURM_PROCID"), per_node=False)
TASK_HERE = Variable(
    "task_here", ("SLURM_LOCALID",), parse.count, 0, "number of srun's task on its node, where each is one of ours", "platform",
)  # fmt: skip
NODE_ID = Variable(
    "node_of_task", ("SLURM_NODEID",), parse.count, 0, "node of srun's task, where each is one of ours", "platform", per_node=True,
)  # fmt: skip
SLOTS = ANY_SLOTS.also("SLURM_GPUS_ON_NODE")
GPU_IDS: Variable[tuple[str, ...]] = Variable(
    "gpu_ids", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), parse.names, (), "GPUs of this node, where their number is not said", "platform",
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
    JOB_ID, STEP_ID, NODE_NAMES, NODES, NODE_INDEX, NODE_NAME, TASKS, ASKED_TASKS, RANK, TASK_HERE, NODE_ID, SLOTS, GPU_IDS,
    GPUS_PER_NODE, SLURM_NAME, RESTARTS, COMPONENTS, COMPONENT_NODES, COMPONENT_GPUS,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file

ON_ALL_COMPONENTS = "srun --het-group=0-{} --ntasks-per-node=1 ranklaunch run ..."
ONE_EACH = "srun --ntasks={} --ntasks-per-node=1 ranklaunch run ..."  # without --ntasks, srun takes sbatch's


FIRST_OF_SLURMS_OWN_STEPS = 4294967280  # the shell of salloc, the script of sbatch, what holds a job's processes


def detect(reader: Reader) -> bool:
    return reader.given(JOB_ID) and (reader.given(NODE_NAMES) or reader.given(NODES))


def read(reader: Reader, program: Program) -> Job:
    _leave_step_of_salloc(reader)
    hosts = _hosts(reader)
    if base.per_rank(reader) and reader.given(STEP_ID):
        from ranklaunch.adapters.platforms.shared import per_rank  # most have one on a node

        return per_rank.job(reader, program, _tasks_of_step(reader, hosts), platform=NAME, name=_name(reader), folder=_id(reader))
    _refuse_many_tasks(reader, len(hosts))
    index = _index(reader, hosts)
    slots = _slots_of_components(reader, hosts) or _slots(reader, hosts)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=attempt(reader),
        hosts=hosts,
        slots=slots,
        node_index=index,
        accelerator=("gpu", reader.source(SLOTS)) if "GPU" in reader.source(SLOTS) else ("cpu", "default"),
    )
    return replace(job, log_dir=_log_dir(reader, len(hosts), index))


def _tasks_of_step(reader: Reader, hosts: tuple[str, ...]) -> Tasks:
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

    counts, own = reader.get(TASKS), reader.get(NODE_ID)
    names = ", ".join((TASKS.names[0], RANK.names[-1], TASK_HERE.names[0]))
    here = counts[own] if len(counts) == len(hosts) and own < len(hosts) else 0
    return Tasks(max(1, sum(counts)), reader.get(TASK_HERE), here, RANK, names, hosts, len(hosts))


def attempt(reader: Reader) -> int:
    if reader.given(ATTEMPT):
        return reader.get(ATTEMPT)
    number = reader.get(RESTARTS) + 1
    reader.ledger.note(ATTEMPT.value, str(number), f"{RESTARTS.names[0]} + 1" if reader.given(RESTARTS) else "default")
    return number


def log_dir(reader: Reader) -> str:
    """The same folder, also where the job cannot be made out."""
    _leave_step_of_salloc(reader)
    hosts = reader.get(HOSTS) or reader.get(NODE_NAMES)
    return _log_dir(reader, len(hosts) or reader.get(NODES), reader.get(NODE_INDEX))


def _leave_step_of_salloc(reader: Reader) -> None:
    """Its shell may be a step on the first node, with one task. That is none of srun's, and says nothing of the job."""
    number = next((found.value.strip() for found in reader.candidates(STEP_ID)), "")
    if re.fullmatch("[0-9]{10}", number) and int(number) >= FIRST_OF_SLURMS_OWN_STEPS:
        reader.leave_aside("SLURM_STEP", "SLURM_NNODES")  # the second is the step's or the job's, as the cluster is set up


def _hosts(reader: Reader) -> tuple[str, ...]:
    given = reader.get(HOSTS)
    hosts = given or _of_components(reader, reader.get(NODE_NAMES)) or _unnamed(reader)
    source = reader.source(HOSTS if given else NODE_NAMES)
    if not given and reader.given(NODE_NAMES):
        reader.ledger.note(HOSTS.value, ",".join(hosts), source)
        if reader.get(NODE_NAMES):  # not malformed
            _say_rest(reader, hosts)
    if not reader.given(NODES) or (given and not reader.by_user(NODES)):
        reader.ledger.note(NODES.value, str(len(hosts)), source)
    elif reader.get(NODES) != len(hosts):
        reader.problem(f"{source} names {len(hosts)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
    return hosts


def _unnamed(reader: Reader) -> tuple[str, ...]:
    """Where the names are missing or malformed."""
    nodes = reader.get(NODES)
    if nodes > 1 and not reader.given(NODE_NAMES) and not reader.given(MASTER_ADDR):
        reader.problem(f"{nodes} nodes, but none of {', '.join((*HOSTS.names, *NODE_NAMES.names, *MASTER_ADDR.names))} names them")
    return ("localhost", *("",) * (nodes - 1))


def _say_rest(reader: Reader, hosts: tuple[str, ...]) -> None:
    """A step is part of its job: more is another job's, less may be meant, and may not."""
    step, *others = reader.candidates(NODE_NAMES)
    if not step.source.startswith("SLURM_STEP") or not others:
        return
    job = others[0]
    told = f"{job.source}={showing.clipped(job.value)}"
    try:
        whole = hostlist.hosts(job.value)
    except ValueError as error:
        reader.problem(f"{told}: {error}")
        return
    strange = sorted(set(hosts) - set(whole))
    if strange:
        reader.problem(
            f"{reader.told(NODE_NAMES)} names {strange[0]}, which {told} does not: one of them is another job's; unset the wrong one"
        )
    elif len(hosts) < len(whole):
        reader.warn(f"{reader.told(NODE_NAMES)}: {len(hosts)} of the {len(whole)} nodes of {told}")


def _components(reader: Reader) -> list[tuple[str, ...]]:
    """The nodes of each component of a heterogeneous job; none for another job, or where Slurm does not tell them all."""
    size = reader.get(COMPONENTS)
    if size < 2:
        return []
    variables = [_of_component(COMPONENT_NODES, number) for number in range(min(size, MOST_COMPONENTS))]
    return [reader.get(variable) for variable in variables] if all(map(reader.given, variables)) else []


def _of_component(variable: Variable[T], number: int) -> Variable[T]:
    """By its number; of Slurm before 20.02 a component was a pack."""
    name = variable.names[0][:-1]
    names = (f"{name}{number}", f"{name.replace('_HET_', '_PACK_')}{number}")
    return Variable(f"{variable.value[:-1]}{number}", names, variable.parse, variable.default, variable.meaning, variable.set_by)


def _of_components(reader: Reader, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names in the order in which srun numbers them: by component. It sorts them where it lists them."""
    components = _components(reader)
    if reader.get(COMPONENTS) > 1 and not components:
        reader.problem(
            f"{reader.told(COMPONENTS)}: a heterogeneous job, of which {COMPONENT_NODES.names[0]} and the others do not name the nodes: "
            f"say what they are with {HOSTS.names[0]}, {ANY_NODE_INDEX.names[0]} and {ANY_SLOTS.names[0]}"
        )
    whole = [host for component in components for host in component]
    here = [host for host in whole if host in set(names)]
    if len(here) < len(whole):
        _say_other_components(reader, len(here), len(whole))
    return tuple(here) if len(here) == len(names) else names


def _say_other_components(reader: Reader, here: int, whole: int) -> None:
    """Without --het-group srun starts on the first component alone."""
    seen = f"{reader.told(COMPONENTS)}: {here} of the {whole} nodes of a heterogeneous job"
    remedy = ON_ALL_COMPONENTS.format(reader.get(COMPONENTS) - 1)
    if reader.given(STEP_ID) or reader.by_user(NODE_INDEX):
        reader.warn(f"{seen}; {remedy} starts on all")
    else:
        reader.problem(f"{seen}, and no {STEP_ID.names[0]} of srun's: it did not start this ranklaunch, so it is alone; expected {remedy}")


def _slots_of_components(reader: Reader, hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Where nodes of several components are in it, by what each was asked for; () where nobody says that, or the user says more."""
    components = [{*component} & {*hosts} for component in _components(reader)]
    gpus = [_of_component(COMPONENT_GPUS, number) for number in range(len(components))]
    if sum(map(bool, components)) < 2 or reader.by_user(SLOTS) or not any(map(reader.given, gpus)):
        return ()
    counts = {host: reader.get(variable) for component, variable in zip(components, gpus) for host in component}
    reader.ledger.note(SLOTS.value, showing.show([counts[host] for host in hosts]), "the components' GPUs")
    return tuple(counts[host] for host in hosts)


def _refuse_many_tasks(reader: Reader, nodes: int) -> None:
    """srun starts its tasks all at once, and one ranklaunch starts the ranks of a node."""
    tasks = reader.get(TASKS)
    if not reader.given(STEP_ID) or max(tasks, default=1) == 1 or reader.by_user(NODE_INDEX):
        return
    each = str(tasks[0]) if len(set(tasks)) == 1 else ",".join(map(str, tasks))
    reader.problem(
        f"{reader.told(TASKS)}: srun starts ranklaunch {max(tasks)} times on a node, and each would start all of the node's ranks; "
        f"expected one: {ONE_EACH.format(nodes)}, with --slots {showing.clipped(each)} for as many ranks; "
        "or --per-rank, with which each stands before one rank"
    )


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    if len(hosts) == 1 and not reader.by_user(NODE_INDEX):
        return base.of_one_node(reader, NODE_INDEX)
    index = reader.get(NODE_INDEX)
    _refuse_without_srun(reader, hosts)
    if index >= len(hosts):
        reader.problem(f"{reader.told(NODE_INDEX)}: expected 0 to {len(hosts) - 1}, for {len(hosts)} nodes")
    elif not reader.by_user(NODE_INDEX) and not reader.given(HOSTS):
        _refuse_other_name(reader, hosts[index])
    return min(index, len(hosts) - 1)


def _refuse_without_srun(reader: Reader, hosts: tuple[str, ...]) -> None:
    if reader.by_user(NODE_INDEX) or reader.given(STEP_ID):
        return
    reader.problem(
        f"{reader.source(NODE_NAMES)} names {len(hosts)} nodes, but there is no {STEP_ID.names[0]} of srun's: it did not start this "
        f"ranklaunch, so it is alone; expected one on each node: {ONE_EACH.format(len(hosts))}"
    )


def _refuse_other_name(reader: Reader, host: str) -> None:
    name = reader.get(NODE_NAME)
    if name and name != host and reader.get(NODE_NAMES):
        reader.problem(
            f"{reader.told(NODE_INDEX)} is {host} in {reader.told(NODE_NAMES)}, but {reader.told(NODE_NAME)}: "
            f"unset the wrong one or set {ANY_NODE_INDEX.names[0]}"
        )


def _slots(reader: Reader, hosts: tuple[str, ...]) -> tuple[int, ...]:
    """Slurm tells a node of its own GPUs alone. Where those of the nodes differ, the muster finds out, and --slots says it."""
    if reader.given(SLOTS):
        return spread(reader, SLOTS, reader.get(SLOTS), len(hosts))
    for variable, number in ((GPU_IDS, len(reader.get(GPU_IDS))), (GPUS_PER_NODE, reader.get(GPUS_PER_NODE))):
        if reader.given(variable):
            reader.ledger.note(SLOTS.value, str(number), reader.source(variable))
            return (number,) * len(hosts)
    tasks = reader.get(TASKS)
    if not reader.given(STEP_ID) and len(tasks) == len(hosts) and reader.given(ASKED_TASKS):
        reader.ledger.note(SLOTS.value, showing.show(tasks), reader.source(TASKS))
        return tasks
    if not reader.given(STEP_ID) and max(tasks, default=1) > 1:
        reader.warn(f"{reader.told(TASKS)} counts processors, since nobody asked for tasks: one process; --slots says how many a node has")
    reader.record(SLOTS)
    if any(re.fullmatch("(nvidia|davinci)[0-9]+", name) for name in reader.files.names("/dev")):
        reader.warn(
            f"/dev has accelerators, but none of {', '.join((*SLOTS.names[1:], *GPU_IDS.names, *GPUS_PER_NODE.names))} gives the job any; "
            "--slots says how many processes a node has"
        )
    return (0,) * len(hosts)


def _name(reader: Reader) -> str:
    """With the ids that no other job and no other step has: the nodes know each other by it."""
    if reader.given(JOB_NAME):
        return reader.get(JOB_NAME)
    name = f"{reader.get(SLURM_NAME) or NAME}-{_id(reader)}"
    reader.ledger.note(JOB_NAME.value, name, ", ".join(v.names[0] for v in (JOB_ID, STEP_ID) if reader.given(v)))
    return name


def _id(reader: Reader) -> str:
    step = reader.get(STEP_ID)
    return reader.get(JOB_ID) + (f".{step}" if step else "")


def _log_dir(reader: Reader, nodes: int, index: int) -> str:
    """The disk is shared as a rule, by the nodes and by jobs that start in one folder: each has a folder of its own below."""
    own = "" if reader.given(LOG_DIR) else re.sub("[^A-Za-z0-9._-]", "_", _id(reader))
    return settings.log_dir(reader, index if nodes > 1 else None, own)
