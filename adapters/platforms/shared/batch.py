"""What batch systems whose nodes share a disk have in common: Slurm, LSF, PBS and Flux."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ranklaunch.adapters.platforms.shared import base, own_place, several
from ranklaunch.errors import counted as number_of
from ranklaunch.files import absolute
from ranklaunch.read import parse, settings
from ranklaunch.read.job import Job, Program
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, JOB_NAME, LOG_DIR, NODE_INDEX, NODES, PLACING, SLOTS, VISIBLE_GPUS, devices, make_job
from ranklaunch.showing import clipped
from ranklaunch.typed import NamedTuple
from ranklaunch.values import replace

_MOST_BYTES = 16 * 1024 * 1024


class Batch(NamedTuple):
    """A job as its batch system knows it. job: id, which names its log folder. attempt: 0 where the batch system does not count them."""

    platform: str
    job: str
    name: str
    attempt: int = 0


class Tasks(NamedTuple):
    """Processes that a platform has started for a job.

    counts: number on each node, () where unknown or uneven. here: number of this one on its node, from 0. variables: source of both.
    rank: variable with the number of this one in the job, None where there is none. node: place of this node in counts.
    """

    counts: Sequence[int]
    here: int
    variables: Sequence[Variable[object]]
    rank: Variable[int] | None = None
    node: int = 0


def even(total: int, nodes: int) -> tuple[int, ...]:
    """Return the number of tasks of each node, () where the nodes cannot have the same number."""
    return (total // nodes,) * nodes if total % nodes == 0 else ()


def listed(reader: Reader, path: str) -> dict[str, int]:
    """Return the hosts of a file with a line for each slot, in its order, and their slots; {} where the file cannot be read."""
    path = absolute(path, reader.cwd)
    try:
        text = reader.files.text(path, _MOST_BYTES) or ""
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return {}
    return counted(reader, path, text.split("\n"))


def counted(reader: Reader, source: str, names: Iterable[str]) -> dict[str, int]:
    """Return how often each host is named. A name that is none is a problem, and {} is returned."""
    found = Counter[str]()
    for name in filter(None, map(str.strip, names)):
        try:
            found[parse.host(name)] += 1
        except ValueError as error:
            reader.problem(f"{source}: {error}, found {name[:60]!r}")
            return {}
    return found


def hosts(reader: Reader, found: Sequence[str], source: str, number: Variable[int] = NODES) -> tuple[str, ...]:
    """Return the hosts of all nodes: the user's, else those that the batch system lists. number: of nodes, else as many as hosts."""
    named = reader.get(HOSTS) or found
    if named and not reader.given(number):
        reader.ledger.note(NODES.value, str(len(named)), reader.source(HOSTS) if reader.given(HOSTS) else source)
    nodes = reader.get(number) if reader.given(number) else max(1, len(named))
    return several.hosts(reader, nodes, found, source)


def index(
    reader: Reader, variable: Variable[int], hosts: Sequence[str], tasks: Tasks, command: str, script: str = "", here: str = ""
) -> int:
    """Return the index of this node. Refuse the job's script on one of several nodes, and another number of tasks than one on each.

    command: line that starts one ranklaunch on each node. script: sign that nothing has started one on each node.
    here: name of this node among the hosts, where it is known.
    """
    nodes = len(hosts)
    if here in hosts and nodes > 1 and not reader.given(variable):
        reader.offer(variable.value, Candidate(f"{here} is this host", str(hosts.index(here))))
    if reader.by_user(variable):
        return base.index(reader, nodes, variable)
    if script and nodes > 1:
        refuse_script(reader, f"{nodes} nodes", script, command)
    elif not script and (set(tasks.counts) != {1} or tasks.here):
        refuse_tasks(reader, tasks, nodes, command)
    elif nodes > 1 and not reader.given(variable):
        this, others = clipped(own_place.told(reader)), clipped(", ".join(hosts))
        reader.problem(f"{this}, is none of {others}; {variable.both} says which it is, from 0")
    else:
        _refuse_other_host(reader, variable, hosts, here)
        return base.index(reader, nodes, variable)
    return min(reader.get(variable), nodes - 1)


def refuse_script(reader: Reader, nodes: str, sign: str, command: str) -> None:
    reader.problem(
        f"{nodes}, and {sign}: this is the job's script or shell, which runs on one node alone; expected one ranklaunch on each: {command}"
    )


def refuse_tasks(reader: Reader, tasks: Tasks, nodes: int, command: str) -> None:
    signs = " and ".join(reader.told(variable) for variable in tasks.variables if reader.given(variable))
    remedy = "; or --per-rank, with which each stands before one rank" if tasks.rank else ""
    reader.problem(
        f"{signs} on {number_of(nodes, 'node')}: expected one ranklaunch on each node, which starts all ranks there: {command}, with "
        f"--slots for their number{remedy}"
    )


def _refuse_other_host(reader: Reader, variable: Variable[int], hosts: Sequence[str], here: str) -> None:
    number = reader.get(variable) if here and len(hosts) > 1 else len(hosts)
    if number < len(hosts) and hosts[number] != here:
        reader.problem(
            f"{reader.told(variable)} is {hosts[number]} of {clipped(', '.join(hosts))}, but this is {here}: expected the hosts in the "
            f"order of these numbers, all of one job; or set {NODE_INDEX.names[0]}"
        )


def own_name(reader: Reader, hosts: Sequence[str]) -> str:
    """Return the one of these hosts that this node is, "" where that is unknown."""
    places = own_place.find(reader, hosts)
    return hosts[places[0]] if len(places) == 1 else ""


def slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    """Return the user's slots, else the GPUs of this node: those in /dev, else those that the batch system has chosen for the job."""
    chosen = 0 if reader.given(SLOTS) or devices(reader) else settings.visible_devices(reader, VISIBLE_GPUS)
    if chosen:  # a container may hide the device files
        reader.offer(SLOTS.value, Candidate(VISIBLE_GPUS.names[0], str(chosen)))
    return several.slots(reader, SLOTS, nodes)


def name(reader: Reader, called: str, job: str, source: str) -> str:
    """Return the name of the job, with the id that no other job has: by their name the nodes find each other."""
    reader.offer(JOB_NAME.value, Candidate(source, f"{called}-{job}"))
    return reader.get(JOB_NAME)


def job(
    reader: Reader,
    program: Program,
    batch: Batch,
    hosts: Sequence[str],
    index: int,
    slots: Sequence[int],
    accelerator: tuple[str, str] = ("cpu", "default"),
) -> Job:
    """Return the job with a log folder of its own."""
    nodes = len(hosts)
    made = make_job(
        reader,
        program,
        platform=batch.platform,
        name=batch.name,
        attempt=batch.attempt or attempt(reader, batch.job, nodes, index),
        hosts=hosts,
        slots=slots,
        node_index=index,
        accelerator=accelerator,
    )
    return replace(made, log_dir=log_dir(reader, batch.job, nodes, index))


def log_dir(reader: Reader, job: str, nodes: int, index: int) -> str:
    """Return the log folder of a node: as nodes and jobs may share a disk, each has one of its own, unless the user names another."""
    return settings.log_dir(reader, index if nodes > 1 else None, _own_folder(reader, job))


def attempt(reader: Reader, job: str, nodes: int = 1, index: int = 0) -> int:
    """Return one more than the attempts in the job's folder: its id stays where it starts anew."""
    return base.attempt(reader, nodes, index, _own_folder(reader, job))


def _own_folder(reader: Reader, job: str) -> str:
    return "" if reader.given(LOG_DIR) else re.sub("[^A-Za-z0-9._-]+", "_", job).strip("_")


# A ranklaunch for each rank: each of them is a node of one slot (docs/adr/0017)


def job_of_ranks(reader: Reader, program: Program, known: Batch, hosts: Sequence[str], tasks: Tasks) -> Job:
    """Return the job whose nodes are its ranks. hosts: of the machines, of which the first has rank 0."""
    rank, ranks = tasks.rank or NODE_INDEX, max(1, sum(tasks.counts))
    of_host = tasks.counts[tasks.node] if tasks.node < len(tasks.counts) else 0
    sources = ", ".join((*map(reader.source, tasks.variables), rank.names[-1]))
    _refuse_with_ranks(reader, of_host, tasks.here, sources)
    number = base.index(reader, ranks, rank)
    reader.ledger.note(NODES.value, str(ranks), sources)
    made = job(reader, program, known, (hosts[0], *("",) * (ranks - 1)), number, (1,) * ranks)
    # In a plan for another node only the number of the rank is known.
    here = number % of_host if reader.by_user(rank) and of_host else tasks.here
    return replace(made, among=(here, of_host))


def _refuse_with_ranks(reader: Reader, of_host: int, here: int, sources: str) -> None:
    told = reader.told(base.PER_RANK)
    if here >= of_host:
        reader.problem(f"{told}: {sources} do not say how many ranks this host has and which of them this is; expected one on each host")
    if reader.by_user(NODES) or (reader.by_user(SLOTS) and set(reader.get(SLOTS)) != {1}):
        reader.problem(f"{told}: {sources} say how many ranks there are, each with one slot: leave {NODES.both} and {SLOTS.both} out")
    for variable in PLACING:
        if reader.given(variable) and reader.by_user(variable):
            reader.problem(f"{reader.told(variable)} with {told}: the platform has placed the ranks; expected one ranklaunch on each host")
