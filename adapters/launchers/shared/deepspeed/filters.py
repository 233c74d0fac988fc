"""Choice of nodes and devices with DeepSpeed's options: --include and --exclude, --num_nodes and --num_gpus.

The choice is made before the plan, so the plan and the muster have only the chosen nodes and ranks. DeepSpeed itself then gets only the
part of the choice that a hostfile of these nodes cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ranklaunch.adapters.launchers.shared.base import with_hosts
from ranklaunch.adapters.launchers.shared.user_options import Option
from ranklaunch.env import parse
from ranklaunch.env.job import Job, Node
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import HOSTS, MASTER_ADDR, SLOTS
from ranklaunch.errors import nearest
from ranklaunch.showing import clipped

Slots = tuple[int, ...]
Chosen = tuple[tuple[str, Slots], ...]  # hosts with their chosen slots, () for all slots

LOCALHOST = "localhost"  # DeepSpeed's name for the node of a job without a hostfile
_ITEM = r"\s*([^\s:,\0]+)(?::( *[0-9]{1,4} *(?:, *[0-9]{1,4} *)*))?\s*"


def _chosen(text: str) -> Chosen:
    chosen = []
    for item in text.split("@"):
        parts = re.fullmatch(_ITEM, item)
        if not parts:
            msg = "expected HOST or HOST:SLOT,SLOT, with @ between several"
            raise ValueError(msg)
        host, written = parts.groups()
        slots = set(map(int, written.split(","))) if written else ()
        chosen.append((host, tuple(sorted(slots))))
    return tuple(chosen)


INCLUDE: Variable[Chosen] = Variable(
    "include", ("RANKLAUNCH_INCLUDE",), _chosen, (),
    "nodes that take part, and which of their slots, in DeepSpeed's form: h0@h1:0,2 is all of h0 and slots 0 and 2 of h1",
    option="--include",
)  # fmt: skip
EXCLUDE: Variable[Chosen] = Variable(
    "exclude", ("RANKLAUNCH_EXCLUDE",), _chosen, (), "nodes, or slots of nodes, that take no part, written as for --include",
    option="--exclude",
)  # fmt: skip
NUM_NODES = Variable(
    "num_nodes", ("RANKLAUNCH_NUM_NODES",), parse.positive, 1, "number of the job's nodes that take part, from the first",
    option="--num-nodes", default_text="all",
)  # fmt: skip
NUM_GPUS = Variable(
    "num_gpus", ("RANKLAUNCH_NUM_GPUS",), parse.positive, 1,
    "number of slots of each node that take part, from the first; also on nodes without GPUs",
    option="--num-gpus", default_text="all",
)  # fmt: skip
VARIABLES = (INCLUDE, EXCLUDE, NUM_NODES, NUM_GPUS)
OPTIONS: Mapping[str, Variable[object]] = {  # by DeepSpeed's option
    "--include": INCLUDE, "--exclude": EXCLUDE, "--num_nodes": NUM_NODES, "--num_gpus": NUM_GPUS, "--num_accelerators": NUM_GPUS,
}  # fmt: skip


def narrowed(job: Job, reader: Reader, extra: Iterable[Option], source: str) -> Job:
    """Return the job with the chosen nodes and slots. extra: options for DeepSpeed. source: variable that has these options.

    Raises ConfigError at once for an impossible choice: further checks of such a job would be useless.
    """
    for option in extra:
        if option.name in OPTIONS and option.value not in ("", "-1"):  # -1 is DeepSpeed's default for the numbers
            reader.offer(OPTIONS[option.name], f"{source} {option.name}", option.value)
    filters = [variable for variable in VARIABLES if reader.is_set(variable)]
    if not filters:
        return job
    first = filters[0]
    if len(filters) > 1 and first in (INCLUDE, EXCLUDE):
        quoted = " beside ".join(reader.candidates(variable)[0].quoted for variable in filters)
        reader.problem(f"{quoted}: DeepSpeed takes only one kind: --include, --exclude, or the numbers --num_nodes and --num_gpus")
    chosen = _chosen_slots(job, reader, first)
    described = reader.described(first)
    if not any(chosen):
        reader.problem(f"{described}: none of the job's {job.world_size} slots remain")
    reader.check()
    return _with_slots(job, reader, chosen, described)


def _chosen_slots(job: Job, reader: Reader, first: Variable[object]) -> list[Slots]:
    """Return the slots of each node that take part. first: the setting that makes the choice."""
    slots = _numbered(job, reader) if first in (NUM_NODES, NUM_GPUS) else _named(job, reader, EXCLUDE if first is EXCLUDE else INCLUDE)
    if first is not INCLUDE or job.has_peers:  # on one node, DeepSpeed itself refuses devices that are not visible
        _refuse_missing(job, reader, slots, reader.described(first))
    if first is not EXCLUDE:
        return slots
    return [tuple(slot for slot in range(node.slots) if slot not in excluded) for node, excluded in zip(job.nodes, slots)]


def words(job: Job, *, by_hosts: bool) -> str:
    """Return the choice in the form of --include, "" if the hostfile is enough. by_hosts: the nodes must be named too."""
    if not by_hosts and not any(node.devices for node in job.nodes):
        return ""
    nodes = with_hosts(job).nodes if job.has_peers else (job.nodes[0]._replace(host=LOCALHOST),)
    return "@".join(f"{node.host}:{','.join(map(str, node.devices))}" if node.devices else node.host for node in nodes)


def capacity(node: Node) -> int:
    """Return the number of slots for a node in the hostfile, so that it includes the highest chosen device."""
    return max((node.slots - 1, *node.devices)) + 1


def _numbered(job: Job, reader: Reader) -> list[Slots]:
    """Return the slots of each node by --num_nodes and --num_gpus."""
    nodes = reader.get(NUM_NODES) if reader.is_set(NUM_NODES) else len(job.nodes)
    slots = reader.get(NUM_GPUS) if reader.is_set(NUM_GPUS) else 0
    if nodes > len(job.nodes):
        reader.problem(f"{reader.described(NUM_NODES)}: expected at most {len(job.nodes)}, the nodes of this job")
    return [tuple(range(slots or node.slots)) if node.index < nodes else () for node in job.nodes]


def _named(job: Job, reader: Reader, variable: Variable[Chosen]) -> list[Slots]:
    """Return the slots of each node that --include or --exclude names."""
    nodes = {node.host: node for node in with_hosts(job).nodes}
    if not job.has_peers:
        nodes[LOCALHOST] = job.nodes[0]
    named: list[Slots] = [()] * len(job.nodes)
    for host, slots in reader.get(variable):
        if host in nodes:
            named[nodes[host].index] = slots or tuple(range(nodes[host].slots))
        else:
            hint = f"{nearest(host, nodes)}; they are {clipped(', '.join(nodes))}"
            reader.problem(f"{reader.described(variable)}: no node of this job is called {clipped(host)}{hint}")
    reader.check()
    return named


def _refuse_missing(job: Job, reader: Reader, named: Sequence[Slots], described: str) -> None:
    """Refuse named slots that a node does not have. With the default number of slots, every named slot is accepted."""
    reading = reader.ledger.reading(SLOTS.value)
    lacking = [node for node, slots in zip(with_hosts(job).nodes, named) if slots and slots[-1] >= node.slots]
    if lacking and not (reading and reading.source == "default"):
        node = lacking[0]
        has = f"{clipped(node.host)} has no slot {named[node.index][-1]}, it has slots 0 to {node.slots - 1}"
        reader.problem(f"{described}: {has}; {SLOTS.both} sets the number of slots")


def _with_slots(job: Job, reader: Reader, chosen: Sequence[Slots], described: str) -> Job:
    """Return the job with the chosen slots of its nodes. Nodes without slots come last and are idle."""
    order = sorted(job.nodes, key=lambda node: not chosen[node.index])
    nodes: list[Node] = []
    first_rank = 0
    for index, node in enumerate(order):
        slots = chosen[node.index]
        devices = () if slots == tuple(range(len(slots))) else slots
        nodes.append(node._replace(index=index, slots=len(slots), first_rank=first_rank, devices=devices))
        first_rank += len(slots)
    active = sum(map(bool, chosen))
    result = replace(job, nodes=tuple(nodes[:active]), idle=tuple(nodes[active:]), node_index=order.index(job.node))
    if chosen[0]:
        return result
    # Without node 0, the rendezvous is at another node, and the platform's facts about node 0 do not hold.
    if not result.master:
        reader.problem(f"{described}: without node 0 ({job.master}) the first node is one without a name: name all nodes by {HOSTS.both}")
    reader.note(MASTER_ADDR, result.master, described)
    return replace(result, own_address="", own_master=False)
