"""Slurm. One ranklaunch on each node, started by srun with --ntasks-per-node=1; a node of the job is a node of srun's step.

Source of the variables: https://slurm.schedmd.com/srun.html and https://slurm.schedmd.com/sbatch.html, "Output environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ranklaunch.adapters.platforms.shared import batch, hostlist
from ranklaunch.adapters.platforms.shared.facts import LISTED_SLOTS, Fact, copied, of_hosts
from ranklaunch.env import parse, settings
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import HOSTS, NODE_INDEX, NODES, SLOTS
from ranklaunch.showing import clipped


def _gpus(value: str) -> int:
    """Return the sum of 4, a100:4, or a100:2,v100:2."""
    return sum(parse.whole(part.rpartition(":")[2], 0, parse.MOST_SLOTS) for part in value.split(","))


def _listed(value: str) -> int:
    return len(parse.names(value))


JOB_ID = platform_text("slurm_job", ("SLURM_JOB_ID", "SLURM_JOBID"), "id of the job", agree=True)
STEP_ID = platform_text("slurm_step", ("SLURM_STEP_ID", "SLURM_STEPID"), "id of srun's step", agree=True)
STEP_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_step", ("SLURM_STEP_NODELIST",), hostlist.hosts, (), "nodes of srun's step, with Slurm's ranges", "platform",
)  # fmt: skip
JOB_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_job", ("SLURM_JOB_NODELIST", "SLURM_NODELIST"), hostlist.hosts, (), "nodes of the job, where there is no step", "platform",
)  # fmt: skip
SIZE = Variable(
    "size_of_step", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), parse.positive, 1,
    "number of nodes: of srun's step, else of the job", "platform",
)  # fmt: skip
NODE_NAME = platform_text(
    "node_name", ("SLURMD_NODENAME",), "name of this node: its place among the names must be its index", per_node=True
)
TASKS: Variable[tuple[int, ...]] = Variable(
    "tasks_per_node", ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), hostlist.counts, (),
    "tasks that srun starts on each node: one; without srun, the slots where there is no GPU", "platform",
)  # fmt: skip
ASKED_TASKS = platform_text(
    "asked_tasks",
    ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
    "tasks that sbatch or salloc was asked for; without, SLURM_TASKS_PER_NODE counts processors",
)
RANK = replace(settings.NODE_INDEX.also("SLURM_PROCID"), per_node=False)
TASK_HERE = platform_count("task_here", ("SLURM_LOCALID",), "number of srun's task on its node, where each is one of ours")
GPUS = SLOTS.also("SLURM_GPUS_ON_NODE")
GPU_IDS = Variable(
    "gpu_ids", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), _listed, 0, "GPUs of this node, where their number is not said", "platform",
    default_text="none",
)  # fmt: skip
GPUS_PER_NODE = Variable(
    "gpus_per_node", ("SLURM_GPUS_PER_NODE",), _gpus, 0, "GPUs that were asked for, where nothing says which there are", "platform",
)  # fmt: skip
COMPONENTS = platform_count("components", ("SLURM_HET_SIZE",), "components of a heterogeneous job")
COMPONENT_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_component_0", ("SLURM_JOB_NODELIST_HET_GROUP_0",), hostlist.hosts, (),
    "nodes of a heterogeneous job's first component; each has such a variable, by its number", "platform",
)  # fmt: skip
COMPONENT_GPUS = Variable(
    "gpus_of_component_0", ("SLURM_GPUS_PER_NODE_HET_GROUP_0",), _gpus, 0,
    "GPUs that were asked for on each node of a heterogeneous job's first component; each may have such a variable", "platform",
)  # fmt: skip


# By the values of the launchers' own variables.
PORTS = tuple(platform_count(value, (), "port by the job's number") for value in ("master_port", "muster_port", "sshd_port"))
ONE_EACH = "srun --ntasks={} --ntasks-per-node=1 ranklaunch run ..."  # without --ntasks, srun takes sbatch's
OWN_STEPS = "42949672[89][0-9]"  # of Slurm: the shell of salloc, the script of sbatch, what holds a job's processes
_NO_STEP = f"no {STEP_ID.name} of srun"


class Slurm(batch.System):
    OWN = (
        JOB_ID, STEP_ID, STEP_NODES, JOB_NODES, SIZE, NODE_NAME, TASKS, ASKED_TASKS, RANK, TASK_HERE, GPU_IDS, GPUS_PER_NODE, COMPONENTS,
        COMPONENT_NODES, COMPONENT_GPUS,
    )  # fmt: skip
    JOB_ID = JOB_ID

    def facts(self, reader: Reader) -> Iterator[Fact]:
        if re.fullmatch(OWN_STEPS, reader.get(STEP_ID).strip()):
            # The shell of salloc is a step of one task on the first node. SLURM_NNODES is the step's or the job's, by the cluster's setup.
            reader.leave_aside("SLURM_STEP", "SLURM_NNODES")
        hosts: tuple[str, ...] = ()
        if not reader.is_set(HOSTS):
            listed = STEP_NODES if reader.is_set(STEP_NODES) else JOB_NODES
            hosts = _in_order(reader, listed)
            yield from of_hosts(reader.source(listed), hosts)
            yield from _own_index(reader, hosts)
            yield from islice(copied(reader, NODES, SIZE), 1)
        yield from _slots(reader, hosts)
        yield from _ports(reader)

    def job_id(self, reader: Reader) -> str:
        """Return JOB.STEP, or JOB in a script."""
        return ".".join(filter(None, (reader.get(JOB_ID), reader.get(STEP_ID))))

    def tasks(self, reader: Reader, nodes: int) -> batch.Tasks:
        index = NODE_INDEX.also("SLURM_NODEID")
        return batch.Tasks(
            counts=reader.get(TASKS) or (1,) * nodes,
            here=reader.get(TASK_HERE),
            variables=(TASKS, TASK_HERE),
            rank=RANK,
            node=0 if reader.by_user(index) else reader.get(index),
            script="" if reader.is_set(STEP_ID) else _NO_STEP,
            command=ONE_EACH.format(nodes),
        )


def _ports(reader: Reader) -> Iterator[Fact]:
    """Yield ports for this job alone, by its number: another job may have the same first node."""
    job = reader.seen(JOB_ID)
    if re.fullmatch("[0-9]{1,12}", job):
        for place, variable in enumerate(PORTS):
            first = settings.FIRST_PORT + place
            source = f"{first} + {JOB_ID.name} % {settings.JOBS} * {settings.PORTS_OF_A_JOB}"
            yield variable, source, first + int(job) % settings.JOBS * settings.PORTS_OF_A_JOB


def _own_index(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    here = reader.get(NODE_NAME)
    if here in hosts:
        yield NODE_INDEX, f"place of {here} among the hosts", hosts.index(here)
    elif here and len(hosts) > 1 and not reader.by_user(NODE_INDEX):
        others = clipped(", ".join(hosts))
        reader.problem(f"{reader.described(NODE_NAME)} is none of {others}: these are another job's; unset them or set {NODE_INDEX.name}")


def allocated(env: Mapping[str, str], nodes: int, gpus: int) -> dict[str, str]:
    """Return an environment as in a step of srun on node 0 of an allocation. Names of hosts and the job's number are made up."""
    hosts = f"node[1-{nodes}]" if nodes > 1 else "node1"
    number, tasks = str(nodes), f"1(x{nodes})"
    step = {
        JOB_ID.name: "0", STEP_ID.name: "0", JOB_NODES.name: hosts, STEP_NODES.name: hosts, NODE_NAME.name: "node1",
        **dict.fromkeys(SIZE.names, number), "SLURM_NTASKS": number, **dict.fromkeys(TASKS.names, tasks),
        **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", TASK_HERE.name), "0"),
        **({"SLURM_GPUS_ON_NODE": str(gpus), "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus)))} if gpus else {}),
    }  # fmt: skip
    leftover = ("SLURM_", "CUDA_VISIBLE_DEVICES")
    return {**{name: value for name, value in env.items() if not name.startswith(leftover)}, **step}


# Heterogeneous jobs


def _components(reader: Reader) -> dict[str, int]:
    """Return the nodes of a heterogeneous job in the order of srun's numbers, with the GPUs that were asked for on each.

    {} for another job, and if Slurm does not name the nodes of all components.
    """
    components: dict[str, int] = {}
    for number in range(reader.get(COMPONENTS)):
        nodes = reader.get(_of_component(COMPONENT_NODES, number))
        if not nodes:
            return {}
        components.update(dict.fromkeys(nodes, reader.get(_of_component(COMPONENT_GPUS, number))))
    return components


def _of_component(first: Variable[Any], number: int) -> Variable[Any]:
    """Return the variable of component 0 for another component."""
    value, name = f"{first.value[:-1]}{number}", f"{first.name[:-1]}{number}"
    return Variable(value, (name,), first.parse, first.default, first.meaning, "platform")


def _in_order(reader: Reader, listed: Variable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the nodes in the order in which srun numbers them. Refuse a list of another job's nodes: its variables are left over."""
    names, components = reader.get(listed), _components(reader)
    whole, here = components or dict.fromkeys(reader.get(JOB_NODES)), {*names}
    strange = sorted(here - whole.keys())
    if reader.is_set(COMPONENTS) and not components:
        reader.problem(
            f"{reader.described(COMPONENTS)}: a heterogeneous job, of which {COMPONENT_NODES.name} and the others do not name the nodes: "
            f"say what they are with {HOSTS.name}, {NODE_INDEX.name} and {SLOTS.name}"
        )
    elif whole and strange:
        reader.problem(
            f"{reader.described(listed)} names {strange[0]}, which is no node of {reader.described(JOB_NODES)}: unset the other job's"
        )
    elif len(here) < len(whole):
        some = f"{reader.described(listed)}: {len(here)} of the {len(whole)} nodes of the job"
        # Without --het-group srun starts on the first component alone.
        on_all = f"srun --het-group=0-{reader.get(COMPONENTS) - 1} --ntasks-per-node=1 ranklaunch run ..."
        if reader.is_set(STEP_ID) or reader.by_user(NODE_INDEX):
            reader.warn(f"{some}; {on_all} starts on all" if components else some)
        else:
            batch.refuse_script(reader, some, _NO_STEP, on_all)
    return tuple(host for host in components if host in here) if components else names


# Slots


def _slots(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    """Yield the slots. Slurm tells a node of its own GPUs alone; where the nodes differ, the muster finds out."""
    components = _components(reader)
    gpus = [components.get(host, 0) for host in hosts]
    asked = next(filter(reader.is_set, (GPU_IDS, GPUS_PER_NODE)), None)
    if any(gpus):
        yield LISTED_SLOTS, "the components' GPUs", gpus
    elif asked and not reader.is_set(GPUS):
        yield SLOTS, reader.candidates(asked)[0].source, reader.get(asked)
    elif not reader.is_set(GPUS):
        yield SLOTS, *_by_tasks(reader)


def _by_tasks(reader: Reader) -> tuple[str, object]:
    """Return the tasks that sbatch was asked for as slots, else none: nothing gives the job a GPU. With the source."""
    tasks = () if reader.is_set(STEP_ID) else reader.get(TASKS)
    if tasks and reader.is_set(ASKED_TASKS):
        return reader.source(TASKS), tasks
    if max(tasks, default=1) > 1:
        reader.warn(
            f"{reader.described(TASKS)} counts processors, since nobody asked for tasks: one process; --slots says how many a node has"
        )
    if any(re.fullmatch("(nvidia|davinci)[0-9]+", name) for name in reader.files.names("/dev")):
        reader.warn(
            f"/dev has accelerators, but none of {', '.join((*GPUS.names[1:], *GPU_IDS.names, *GPUS_PER_NODE.names))} gives the job any; "
            "--slots says how many processes a node has"
        )
    return "Slurm, which gives no device", 0
