"""Which nodes take part, with which of their devices, in DeepSpeed's own words: --include and --exclude, --num_nodes and --num_gpus.

They are read before anything is planned, so that nodes, ranks and the muster are those that are left; DeepSpeed itself is then told no
more than what a hostfile of these nodes does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.adapters.launchers.shared.base import with_hosts
from ranklaunch.adapters.launchers.shared.deepspeed.options import Option
from ranklaunch.errors import nearest
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Node
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, SLOTS
from ranklaunch.showing import clipped
from ranklaunch.values import replace

Chosen = tuple[tuple[str, tuple[int, ...]], ...]  # hosts, and slots of each; () for all of them

LOCALHOST = "localhost"  # as DeepSpeed calls the node of a job without a hostfile
_HOST = re.compile(r"[^\s:,\0]+")
_SLOTS = re.compile(r" *[0-9]{1,4} *(?:, *[0-9]{1,4} *)*")


def _chosen(text: str) -> Chosen:
    found: dict[str, list[int]] = {}
    for item in text.strip().split("@"):
        host, colon, slots = item.strip().partition(":")
        if not _HOST.fullmatch(host) or (colon and not _SLOTS.fullmatch(slots)):
            msg = "expected HOST or HOST:SLOT,SLOT, with @ between several"
            raise ValueError(msg)
        found.setdefault(host, []).extend(map(int, slots.split(",")) if colon else ())
    return tuple((host, tuple(sorted({*slots}))) for host, slots in found.items())


INCLUDE: Variable[Chosen] = Variable(
    "include", ("RANKLAUNCH_INCLUDE",), _chosen, (),
    "nodes that take part, and which of their slots, as DeepSpeed writes it: h0@h1:0,2 is all of h0 and two slots of h1",
    option="--include",
)  # fmt: skip
EXCLUDE: Variable[Chosen] = Variable(
    "exclude", ("RANKLAUNCH_EXCLUDE",), _chosen, (), "nodes, or slots of nodes, that take no part, written as for --include",
    option="--exclude",
)  # fmt: skip
NUM_NODES = Variable(
    "num_nodes", ("RANKLAUNCH_NUM_NODES",), parse.positive, 1, "so many of the job's nodes take part, from the first", option="--num-nodes",
    default_text="all",
)  # fmt: skip
NUM_GPUS = Variable(
    "num_gpus", ("RANKLAUNCH_NUM_GPUS",), parse.positive, 1, "so many slots of each node take part, from the first; no GPUs need be there",
    option="--num-gpus", default_text="all",
)  # fmt: skip
VARIABLES: tuple[Variable[object], ...] = (INCLUDE, EXCLUDE, NUM_NODES, NUM_GPUS)
# What DeepSpeed calls them. -1 is its default for the last two.
_NAMES: dict[Variable[object], tuple[str, ...]] = {
    INCLUDE: ("--include",), EXCLUDE: ("--exclude",), NUM_NODES: ("--num_nodes",), NUM_GPUS: ("--num_gpus", "--num_accelerators"),
}  # fmt: skip
OPTIONS = tuple(name for names in _NAMES.values() for name in names)


def narrowed(job: Job, reader: Reader, extra: Sequence[Option], source: str) -> Job:
    """The job as it is after the filters. extra: options for DeepSpeed, of the variable source, of which its filters are read too. Of a job
    that cannot be made out, nothing more is worth saying."""
    for variable, names in _NAMES.items():
        _offer(reader, variable, [option for option in extra if option.name in names and option.value not in ("", "-1")], source)
    given = [variable for variable in VARIABLES if reader.given(variable)]
    if not given:
        return job
    by_name, by_number = [v for v in given if v in (INCLUDE, EXCLUDE)], [v for v in given if v in (NUM_NODES, NUM_GPUS)]
    for one, other in [*zip(by_name, by_name[1:]), *zip(by_name, by_number)]:
        told = f"{reader.candidates(one)[0].quoted} beside {reader.candidates(other)[0].quoted}"
        reader.problem(f"{told}: DeepSpeed takes one of them: a choice of nodes and slots, what that leaves out, or numbers of them")
    reader.check()
    left = _numbered(job, reader) if by_number else _named(job, reader, INCLUDE if given[0] is INCLUDE else EXCLUDE)
    if not any(left):
        reader.problem(f"{reader.told(given[0])}: nothing is left of the job's {job.world_size} slots")
    reader.check()
    return _of_those(job, reader, left, reader.told(given[0]))


def words(job: Job, *, by_hosts: bool) -> str:
    """What DeepSpeed must be told where a hostfile does not say it all, in its own grammar. by_hosts: the nodes too."""
    if not by_hosts and not any(node.devices for node in job.nodes):
        return ""
    named = with_hosts(job).nodes if len(job.nodes) > 1 else (job.nodes[0]._replace(host=LOCALHOST),)
    return "@".join(f"{node.host}:{','.join(map(str, node.devices))}" if node.devices else node.host for node in named)


def capacity(node: Node) -> int:
    """What a hostfile must say of a node, so that its devices are there."""
    return max(node.devices) + 1 if node.devices else node.slots


def _offer(reader: Reader, variable: Variable[object], found: Sequence[Option], source: str) -> None:
    if found:
        reader.offer(variable.value, Candidate(f"{source} {found[-1].name}", found[-1].value))


def _numbered(job: Job, reader: Reader) -> list[tuple[int, ...]]:
    """Slots of each node, by its place."""
    nodes = reader.get(NUM_NODES) if reader.given(NUM_NODES) else len(job.nodes)
    if nodes > len(job.nodes):
        reader.problem(f"{reader.told(NUM_NODES)}: expected at most {len(job.nodes)}, the nodes of this job")
    slots = reader.get(NUM_GPUS) if reader.given(NUM_GPUS) else 0
    fewest = min(job.nodes[:nodes], key=lambda node: node.slots)
    if slots > fewest.slots and _counted(reader):
        whose = f"the slots of node {fewest.index} ({fewest.host})" if len(job.nodes) > 1 else "the slots of this node"
        reader.problem(f"{reader.told(NUM_GPUS)}: expected at most {fewest.slots}, {whose}; {SLOTS.both} says how many there are")
    return [tuple(range(slots or node.slots)) if node.index < nodes else () for node in job.nodes]


def _named(job: Job, reader: Reader, variable: Variable[Chosen]) -> list[tuple[int, ...]]:
    """The same."""
    chosen, told = dict(reader.get(variable)), reader.told(variable)
    names = {node.host: node for node in with_hosts(job).nodes}
    if len(job.nodes) == 1:
        names[LOCALHOST] = job.nodes[0]
    for text in (*_unknown(chosen, names, told), *_beyond(job, reader, chosen, names, told)):
        reader.problem(text)
    reader.check()
    by_index = {names[host].index: slots or tuple(range(names[host].slots)) for host, slots in chosen.items()}
    if variable is INCLUDE:
        return [by_index.get(node.index, ()) for node in job.nodes]
    return [tuple(slot for slot in range(node.slots) if slot not in by_index.get(node.index, ())) for node in job.nodes]


def _unknown(chosen: Iterable[str], names: Mapping[str, Node], told: str) -> Iterator[str]:
    for host in chosen:
        if host not in names:
            yield f"{told}: no node of this job is called {clipped(host)}{nearest(host, names)}; they are {clipped(', '.join(names))}"


def _beyond(job: Job, reader: Reader, chosen: Mapping[str, tuple[int, ...]], names: Mapping[str, Node], told: str) -> Iterator[str]:
    """Slots that are not there. Where nobody has counted a node's, its devices are those that are named."""
    if not _counted(reader):
        return
    seen = _seen(reader) if len(job.nodes) == 1 else frozenset()
    for host, slots in chosen.items():
        missing = [slot for slot in slots if host in names and slot >= names[host].slots and slot not in seen]
        if missing:
            last = names[host].slots - 1
            has = f"slots 0 to {last}" if last else "slot 0 alone"
            yield f"{told}: {clipped(host)} has no slot {missing[0]}, it has {has}; {SLOTS.both} says how many there are"


def _counted(reader: Reader) -> bool:
    reading = reader.ledger.reading(SLOTS.value)
    return not (reading and reading.source == "default")


def _seen(reader: Reader) -> frozenset[int]:
    """Numbers of this node's devices, of which DeepSpeed sees all, whatever a variable chooses among them."""
    files = (re.fullmatch("(?:nvidia|davinci)([0-9]{1,4})", name) for name in reader.files.names("/dev"))
    visible = ",".join(reader.env.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")).split(",")
    return frozenset({*(int(file[1]) for file in files if file), *(int(word) for word in visible if re.fullmatch(" *[0-9]{1,4} *", word))})


def _of_those(job: Job, reader: Reader, left: Sequence[tuple[int, ...]], told: str) -> Job:
    """The nodes with what is left of their slots in their order, then those that have none."""
    active: list[Node] = []
    idle: list[Node] = []
    first = 0
    for node, slots in zip(job.nodes, left):
        if slots:
            devices = () if slots == tuple(range(len(slots))) else slots
            active.append(node._replace(index=len(active), slots=len(slots), first_rank=first, devices=devices))
            first += len(slots)
        else:
            idle.append(node)
    last = tuple(node._replace(index=len(active) + i, slots=0, first_rank=first) for i, node in enumerate(idle))
    order = [i for i, slots in enumerate(left) if slots] + [i for i, slots in enumerate(left) if not slots]
    found = replace(job, nodes=tuple(active), idle=last, node_index=order.index(job.node_index))
    return _with_another_first(found, job, reader, told) if order[0] else found


def _with_another_first(found: Job, job: Job, reader: Reader, told: str) -> Job:
    """Where the others meet is then at another node, and what the platform says of node 0 is of none."""
    if not found.master:
        reader.problem(f"{told}: without node 0 ({job.master}) another one is the first, which has no name: name all by {HOSTS.both}")
    reader.ledger.note(MASTER_ADDR.value, found.master, told)
    return replace(found, own_address="", own_master=False)
