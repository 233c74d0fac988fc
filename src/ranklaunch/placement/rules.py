"""Rules that find ranks working alone, two ranks with one place, and ranks that start ranks. Pure functions.

Ranks here are placed heads (docs/supervision.md): processes started by a launcher or ranklaunch, with a place from its variables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.fields import NOTHING
from ranklaunch.placement.model import Head, Key
from ranklaunch.placement.success import Node

STARTS_S = 60.0  # from the start of a rank to that of its own launcher; a launcher started later may be an evaluation, not a second job
MOST_PLACES = 64  # rows about its ranks that a node sends to the others
_LOOPBACK = re.compile(r"127\.[0-9.]+|localhost|::1|\[::1\]|0\.0\.0\.0|::")


@dataclass(frozen=True)
class Job:
    """Numbers of the plan for a comparison with the places of ranks.

    nodes: number of nodes. world: number of ranks of all nodes. slots: slots of this node. is_local: True if node 0 has a loopback
    address, as in a simulated job.
    """

    nodes: int
    world: int
    slots: int
    is_local: bool = False


@dataclass(frozen=True)
class Alone:
    """Ranks of a launcher that work for their node only.

    launcher: name of the launcher. process: the launcher, or the starter of the rank. heads: the ranks. why: reason as the end of a
    sentence. argv: command line of the launcher, () if not recorded.
    """

    launcher: str
    process: Key
    heads: tuple[Key, ...]
    why: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Twice:
    """Planned ranks that each started ranks of their own.

    ranks: numbers of the planned ranks. launcher: name of the launcher that the first one started. want: resource that the inner ranks
    both need. argv: command line of that launcher, () if not recorded.
    """

    ranks: tuple[int, ...]
    launcher: str
    want: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Consecutive ranks of one job on a node, from first to last. world: size of the job. master, port: address of the rendezvous."""

    world: int
    master: str
    port: str
    first: int
    last: int


def is_whole(node: Node, job: Job) -> bool:
    """Return True if a launcher started a rank whose world is the plan's, or has ranks on several nodes."""
    return any(_is_placed_by_launcher(head, node) and not _alone(head, node, job) and head.world is not None for head in node.heads)


def alone(node: Node, job: Job) -> Alone | None:
    """Return the last launcher whose ranks work for this node only, or meet at a loopback address; None for a job of one node."""
    if job.nodes < 2:
        return None
    for head in reversed(node.heads):
        why = _alone(head, node, job) if _is_placed_by_launcher(head, node) else ""
        if why:
            heads = tuple(each.process for each in node.heads if each.parent == head.parent)
            return Alone(head.launcher, head.parent, heads, why, node.argv_of(head.parent))
    return None


def _alone(head: Head, node: Node, job: Job) -> str:
    """Return why a rank works for its node only, as the end of a sentence; "" if it does not."""
    if head.world is None:
        return ""
    local = head.local_world or sum(each.parent == head.parent for each in node.heads)
    if head.world != job.world and head.world <= local:
        return f"its world has {head.world} of the {job.world} ranks of the job"
    is_loopback = _LOOPBACK.fullmatch(head.master) and not job.is_local
    return f"its ranks meet at {head.master}, which is another host on each node" if is_loopback else ""


def _is_placed_by_launcher(head: Head, node: Node) -> bool:
    return node.is_placed(head) and head.is_of_launcher


# Two ranks of one place


def place_twice(node: Node, living: Collection[Key]) -> tuple[Head, Head] | None:
    """Return two living ranks with different tops and the same place (rank, world, master and port); None if there are none."""
    by_place: dict[tuple[int, int, str, str], Head] = {}
    for head in _with_place(node, living):
        first = by_place.setdefault((head.rank or 0, head.world or 0, head.master, head.port), head)
        if first.top != head.top:
            return first, head
    return None


def places(node: Node, living: Collection[Key], job: Job) -> tuple[Place, ...]:
    """Return the places of living ranks, for a comparison with those of other nodes. Ranks that work for this node only are left out."""
    rows: dict[tuple[int, str, str], list[int]] = {}
    for head in _with_place(node, living):
        if not _alone(head, node, job):
            rows.setdefault((head.world or 0, head.master, head.port), []).append(head.rank or 0)
    return tuple(itertools.islice(_places(rows), MOST_PLACES))


def _places(rows: Mapping[tuple[int, str, str], list[int]]) -> Iterator[Place]:
    for (world, master, port), ranks in rows.items():
        for _, group in itertools.groupby(enumerate(sorted(set(ranks))), key=lambda each: each[1] - each[0]):
            numbers = [rank for _, rank in group]
            yield Place(world, master, port, numbers[0], numbers[-1])


def common(one: Sequence[Place], other: Sequence[Place]) -> Place | None:
    """Return a place that ranks of both nodes have, None if there is none."""
    for a, b in itertools.product(one, other):
        first, last = max(a.first, b.first), min(a.last, b.last)
        if (a.world, a.master, a.port) == (b.world, b.master, b.port) and first <= last:
            return Place(a.world, a.master, a.port, first, last)
    return None


def _with_place(node: Node, living: Collection[Key]) -> Iterator[Head]:
    for head in node.heads:
        known = head.rank is not None and (head.world or 0) > 1 and head.master and head.port
        if known and head.process in living and node.is_placed(head):
            yield head


# Ranks that start ranks


def twice(node: Node, living: Collection[Key], job: Job, visible: Mapping[Key, str] = NOTHING) -> Twice | None:
    """Return planned ranks that each started a launcher, if the ranks of these launchers need the same slots, devices or port.

    visible: devices visible to a head, for nodes with accelerators.
    """
    inner = _started_by_ranks(node, living)
    outer = {head.top: head for head in reversed(node.heads) if node.is_placed(head) and head.rank is not None}
    starters = [(outer[top], heads) for top, heads in inner.items() if top in outer and heads[0].at - outer[top].at < STARTS_S]
    want = _want([heads for _, heads in starters], job, visible) if len(starters) > 1 else ""
    if not want:
        return None
    first = starters[0][1][0]
    return Twice(tuple(sorted(head.rank or 0 for head, _ in starters)), first.launcher, want, node.argv_of(first.parent))


def _started_by_ranks(node: Node, living: Collection[Key]) -> dict[Key, list[Head]]:
    """Return the living ranks of launchers that ranks have started, by the top of the outer rank."""
    inner: dict[Key, list[Head]] = {}
    for head in node.heads:
        if head.within and head.process in living and head.is_of_launcher:
            inner.setdefault(head.within, []).append(head)
    return inner


def _want(jobs: Sequence[Sequence[Head]], job: Job, visible: Mapping[Key, str]) -> str:
    """Return a resource that the ranks of two inner jobs both need, "" if there is none."""
    ports = [{f"port {head.port} of {head.master}" for head in heads if head.master and head.port} for heads in jobs]
    shared = _shared(ports)
    if shared:
        return min(shared)
    count = sum(map(len, jobs))
    if count > job.slots:
        return f"{count} slots of the {job.slots} of this node"
    devices = [{f"{visible[head.process]} {head.local_rank}" for head in heads if head.process in visible} for heads in jobs]
    return "the same devices" if _shared(devices) else ""


def _shared(sets: Sequence[set[str]]) -> set[str]:
    return next(filter(None, (one & other for one, other in itertools.combinations(sets, 2))), set())
