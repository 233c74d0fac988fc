"""Slurm. srun with --ntasks-per-node=1 starts one ranklaunch on each node; the job's nodes are those of srun's step.

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
    """Return the number of GPUs in 4, a100:4 or a100:2,v100:2 (4 in each case)."""
    return sum(parse.whole(part.rpartition(":")[2], 0, parse.MOST_SLOTS) for part in value.split(","))


def _listed(value: str) -> int:
    return len(parse.names(value))


JOB_ID = platform_text("slurm_job", ("SLURM_JOB_ID", "SLURM_JOBID"), "id of the job", agree=True)
STEP_ID = platform_text("slurm_step", ("SLURM_STEP_ID", "SLURM_STEPID"), "id of srun's step", agree=True)
STEP_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_step", ("SLURM_STEP_NODELIST",), hostlist.hosts, (), "nodes of srun's step, with Slurm's ranges", "platform",
)  # fmt: skip
JOB_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_job", ("SLURM_JOB_NODELIST", "SLURM_NODELIST"), hostlist.hosts, (), "nodes of the job, if there is no step", "platform",
)  # fmt: skip
SIZE = Variable(
    "size_of_step", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), parse.positive, 1,
    "number of nodes: of srun's step, else of the job", "platform",
)  # fmt: skip
NODE_NAME = platform_text("node_name", ("SLURMD_NODENAME",), "name of this node; its position in the node list is the index", per_node=True)
TASKS: Variable[tuple[int, ...]] = Variable(
    "tasks_per_node", ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), hostlist.counts, (),
    "tasks of srun on each node, which must be one; without srun, the slots of nodes without GPUs", "platform",
)  # fmt: skip
ASKED_TASKS = platform_text(
    "asked_tasks",
    ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
    "tasks requested from sbatch or salloc; if unset, SLURM_TASKS_PER_NODE counts processors",
)
RANK = replace(settings.NODE_INDEX.also("SLURM_PROCID"), per_node=False)
TASK_HERE = platform_count("task_here", ("SLURM_LOCALID",), "number of srun's task on its node, from 0")
GPUS = SLOTS.also("SLURM_GPUS_ON_NODE")
GPU_IDS = Variable(
    "gpu_ids", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), _listed, 0, "ids of this node's GPUs, counted if SLURM_GPUS_ON_NODE is not set",
    "platform", default_text="none",
)  # fmt: skip
GPUS_PER_NODE = Variable(
    "gpus_per_node", ("SLURM_GPUS_PER_NODE",), _gpus, 0, "requested GPUs of each node, if no variable has the actual ones", "platform",
)  # fmt: skip
COMPONENTS = platform_count("components", ("SLURM_HET_SIZE",), "components of a heterogeneous job")
COMPONENT_NODES: Variable[tuple[str, ...]] = Variable(
    "nodes_of_component_0", ("SLURM_JOB_NODELIST_HET_GROUP_0",), hostlist.hosts, (),
    "nodes of a heterogeneous job's component 0; each component has such a variable, with its number at the end", "platform",
)  # fmt: skip
COMPONENT_GPUS = Variable(
    "gpus_of_component_0", ("SLURM_GPUS_PER_NODE_HET_GROUP_0",), _gpus, 0,
    "requested GPUs on each node of a heterogeneous job's component 0; each component may have such a variable", "platform",
)  # fmt: skip


# Named as the values of the launchers' own variables.
PORTS = tuple(platform_count(value, (), "port from the job's number") for value in ("master_port", "muster_port", "sshd_port"))
ONE_EACH = "srun --ntasks={} --ntasks-per-node=1 ranklaunch run ..."  # without --ntasks, srun takes sbatch's number
OWN_STEPS = "42949672[89][0-9]"  # Slurm's reserved steps: the shell of salloc, the script of sbatch, the extern step
_NO_STEP = f"no {STEP_ID.name} of srun"


class Slurm(batch.System):
    OWN = (
        JOB_ID, STEP_ID, STEP_NODES, JOB_NODES, SIZE, NODE_NAME, TASKS, ASKED_TASKS, RANK, TASK_HERE, GPU_IDS, GPUS_PER_NODE, COMPONENTS,
        COMPONENT_NODES, COMPONENT_GPUS,
    )  # fmt: skip
    JOB_ID = JOB_ID

    def facts(self, reader: Reader) -> Iterator[Fact]:
        if re.fullmatch(OWN_STEPS, reader.get(STEP_ID).strip()):
            # The shell of salloc is a step of one task on the first node. SLURM_NNODES is the step's or the job's: clusters differ.
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
        """Return JOB.STEP, or JOB outside a step."""
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
    """Yield ports of this job's own, computed from the job's number: another job may have the same first node."""
    job = reader.seen(JOB_ID)
    if re.fullmatch("[0-9]{1,12}", job):
        for offset, variable in enumerate(PORTS):
            first = settings.FIRST_PORT + offset
            source = f"{first} + {JOB_ID.name} % {settings.JOBS} * {settings.PORTS_OF_A_JOB}"
            yield variable, source, first + int(job) % settings.JOBS * settings.PORTS_OF_A_JOB


def _own_index(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    here = reader.get(NODE_NAME)
    if here in hosts:
        yield NODE_INDEX, f"place of {here} among the hosts", hosts.index(here)
    elif here and len(hosts) > 1 and not reader.by_user(NODE_INDEX):
        listed = clipped(", ".join(hosts))
        reader.problem(f"{reader.described(NODE_NAME)} is none of {listed}: these are another job's; unset them or set {NODE_INDEX.name}")


def allocated(env: Mapping[str, str], nodes: int, gpus: int) -> dict[str, str]:
    """Return `env` with the variables of a step of srun on node 0 of such an allocation. Hosts and the job's number are made up."""
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
    """Return the nodes of a heterogeneous job in srun's order, each with its requested GPUs.

    {} for a job that is not heterogeneous, and if Slurm does not name the nodes of all components.
    """
    components: dict[str, int] = {}
    for number in range(reader.get(COMPONENTS)):
        nodes = reader.get(_of_component(COMPONENT_NODES, number))
        if not nodes:
            return {}
        components.update(dict.fromkeys(nodes, reader.get(_of_component(COMPONENT_GPUS, number))))
    return components


def _of_component(first: Variable[Any], number: int) -> Variable[Any]:
    """Return the variable of another component, made from component 0's."""
    value, name = f"{first.value[:-1]}{number}", f"{first.name[:-1]}{number}"
    return Variable(value, (name,), first.parse, first.default, first.meaning, "platform")


def _in_order(reader: Reader, listed: Variable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the step's nodes in the order in which srun numbers them. Refuse nodes of another job, whose variables were inherited."""
    names, components = reader.get(listed), _components(reader)
    of_job, of_step = components or dict.fromkeys(reader.get(JOB_NODES)), {*names}
    foreign = sorted(of_step - of_job.keys())
    if reader.is_set(COMPONENTS) and not components:
        reader.problem(
            f"{reader.described(COMPONENTS)}: a heterogeneous job, but {COMPONENT_NODES.name} and its like do not name all nodes: set "
            f"{HOSTS.name}, {NODE_INDEX.name} and {SLOTS.name}"
        )
    elif of_job and foreign:
        reader.problem(
            f"{reader.described(listed)} names {foreign[0]}, which is no node of {reader.described(JOB_NODES)}: unset the other job's"
        )
    elif len(of_step) < len(of_job):
        part = f"{reader.described(listed)}: {len(of_step)} of the {len(of_job)} nodes of the job"
        # Without --het-group srun starts on the first component alone.
        on_all = f"srun --het-group=0-{reader.get(COMPONENTS) - 1} --ntasks-per-node=1 ranklaunch run ..."
        if reader.is_set(STEP_ID) or reader.by_user(NODE_INDEX):
            reader.warn(f"{part}; {on_all} starts on all" if components else part)
        else:
            batch.refuse_script(reader, part, _NO_STEP, on_all)
    return tuple(host for host in components if host in of_step) if components else names


# Slots


def _slots(reader: Reader, hosts: Sequence[str]) -> Iterator[Fact]:
    """Yield the slots. A node knows only its own GPUs from Slurm; the muster refuses a job whose nodes plan different slots."""
    components = _components(reader)
    gpus = [components.get(host, 0) for host in hosts]
    variable = next(filter(reader.is_set, (GPU_IDS, GPUS_PER_NODE)), None)
    if any(gpus):
        yield LISTED_SLOTS, "the components' GPUs", gpus
    elif variable and not reader.is_set(GPUS):
        yield SLOTS, reader.candidates(variable)[0].source, reader.get(variable)
    elif not reader.is_set(GPUS):
        yield SLOTS, *_by_tasks(reader)


def _by_tasks(reader: Reader) -> tuple[str, object]:
    """Return the source of the slots, and the slots of a job without GPUs: the tasks requested from sbatch, else 0."""
    tasks = () if reader.is_set(STEP_ID) else reader.get(TASKS)
    if tasks and reader.is_set(ASKED_TASKS):
        return reader.source(TASKS), tasks
    if max(tasks, default=1) > 1:
        reader.warn(
            f"{reader.described(TASKS)} counts processors, since the job requested no tasks: one process on each node; set another number "
            "with --slots"
        )
    if any(re.fullmatch("(nvidia|davinci)[0-9]+", name) for name in reader.files.names("/dev")):
        reader.warn(
            f"/dev has accelerators, but none of {', '.join((*GPUS.names[1:], *GPU_IDS.names, *GPUS_PER_NODE.names))} gives the job any; "
            "set the number of processes of a node with --slots"
        )
    return "Slurm, which gives no device", 0
