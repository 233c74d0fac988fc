"""Where the platform starts one ranklaunch for each rank: each of them is a node of one slot (docs/adr/0017)."""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared import base, batch
from ranklaunch.adapters.platforms.shared.base import PER_RANK
from ranklaunch.adapters.platforms.shared.batch import Batch, Tasks
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import NODE_INDEX, NODES, PLACING, SLOTS
from ranklaunch.values import replace


def job(reader: Reader, program: Program, known: Batch, hosts: Sequence[str], tasks: Tasks) -> Job:
    """Return the job whose nodes are its ranks. hosts: of the nodes."""
    rank, ranks = tasks.rank or NODE_INDEX, max(1, sum(tasks.counts))
    of_host = tasks.counts[tasks.node] if tasks.node < len(tasks.counts) else 0
    sources = ", ".join((*map(reader.source, tasks.variables), rank.names[-1]))
    _refuse(reader, of_host, tasks.here, sources)
    number = base.index(reader, ranks, rank)
    reader.ledger.note(NODES.value, str(ranks), sources)
    made = batch.job(reader, program, known, (hosts[0], *("",) * (ranks - 1)), number, (1,) * ranks)
    # In a plan for another node only the number of the rank is known.
    here = number % of_host if reader.by_user(rank) and of_host else tasks.here
    return replace(made, among=(here, of_host))


def _refuse(reader: Reader, of_host: int, here: int, sources: str) -> None:
    told = reader.told(PER_RANK)
    if here >= of_host:
        reader.problem(f"{told}: {sources} do not say how many ranks this host has and which of them this is; expected one on each host")
    if reader.by_user(NODES) or (reader.by_user(SLOTS) and set(reader.get(SLOTS)) != {1}):
        reader.problem(f"{told}: {sources} say how many ranks there are, each with one slot: leave {NODES.both} and {SLOTS.both} out")
    for variable in PLACING:
        if reader.given(variable) and reader.by_user(variable):
            reader.problem(f"{reader.told(variable)} with {told}: the platform has placed the ranks; expected one ranklaunch on each host")
