"""Ranks working alone, two ranks of one place, and ranks with ranks of their own. Pure.

Ranks are placed heads (docs/supervision.md): processes started by a launcher or ranklaunch, placed by the starter's variables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.fields import NOTHING
from ranklaunch.placement.model import Head, Key
from ranklaunch.placement.success import Node

STARTS_S = 60.0  # from the start of a rank to that of its launcher, where the rank does nothing else: later it may be an evaluation
MOST_PLACES = 64  # rows that a node tells of its ranks
_LOOPBACK = re.compile(r"127\.[0-9.]+|localhost|::1|\[::1\]|0\.0\.0\.0|::")


@dataclass(frozen=True)
class Job:
    """The plan, as far as places of ranks are compared with it. world: ranks of all nodes. slots: of this node. is_local: node 0's name is
    a loopback address, as in a simulated job."""

    nodes: int
    world: int
    slots: int
    is_local: bool = False


@dataclass(frozen=True)
class Alone:
    """Ranks of a launcher, alone on their node. launcher: its name; process: the launcher, or the starter of the rank; argv:
    its command line, as far as recorded. why: the end of a sentence."""

    launcher: str
    process: Key
    heads: tuple[Key, ...]
    why: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Twice:
    """Ranks with inner ranks of their own. ranks: their numbers. launcher: name of the started program; argv: its command
    line, as far as recorded. want: common need of both."""

    ranks: tuple[int, ...]
    launcher: str
    want: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Ranks of one job that follow each other: from first to last. master, port: of the rendezvous."""

    world: int
    master: str
    port: str
    first: int
    last: int


def is_whole(node: Node, job: Job) -> bool:
    """Return True if a launcher's rank has the plan's world, or one of several nodes."""
    return any(_is_placed_by_launcher(head, node) and not _alone(head, node, job) and head.world is not None for head in node.heads)


def alone(node: Node, job: Job) -> Alone | None:
    """Return the last launcher of a job of several nodes whose ranks work for this node only, or meet at a loopback address."""
    if job.nodes < 2:
        return None
    for head in reversed(node.heads):
        why = _alone(head, node, job) if _is_placed_by_launcher(head, node) else ""
        if why:
            heads = tuple(each.process for each in node.heads if each.parent == head.parent)
            return Alone(head.launcher, head.parent, heads, why, node.argv_of(head.parent))
    return None


def _alone(head: Head, node: Node, job: Job) -> str:
    """Return why a rank works alone, "" for one that does not."""
    if head.world is None:
        return ""
    local = head.local_world or sum(each.parent == head.parent for each in node.heads)
    if head.world != job.world and head.world <= local:
        return f"its world has {head.world} of the {job.world} ranks of the job"
    is_elsewhere = _LOOPBACK.fullmatch(head.master) and not job.is_local
    return f"its ranks meet at {head.master}, which is another host on each node" if is_elsewhere else ""


def _is_placed_by_launcher(head: Head, node: Node) -> bool:
    return node.is_placed(head) and head.is_of_launcher


# Two ranks of one place


def place_twice(node: Node, living: Collection[Key]) -> tuple[Head, Head] | None:
    """Return two ranks that live, with different tops, and have one place: rank, world, master and port."""
    by_place: dict[tuple[int, int, str, str], Head] = {}
    for head in _with_place(node, living):
        first = by_place.setdefault((head.rank or 0, head.world or 0, head.master, head.port), head)
        if first.top != head.top:
            return first, head
    return None


def places(node: Node, living: Collection[Key], job: Job) -> tuple[Place, ...]:
    """Return the places of living ranks, for a comparison with those of other nodes. Ranks that work alone are no others' peers."""
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
    """Return a place that ranks of two nodes have, None for none."""
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
    """Return planned ranks that each wait for a launcher of their own, if the ranks of these launchers want the same slots, devices or
    port.

    visible: devices visible to a head, for nodes with accelerators.
    """
    inner = _started_by_ranks(node, living)
    outer = {head.top: head for head in reversed(node.heads) if node.is_placed(head) and head.rank is not None}
    starters = [(outer[top], below) for top, below in inner.items() if top in outer and below[0].at - outer[top].at < STARTS_S]
    want = _want([below for _, below in starters], job, visible) if len(starters) > 1 else ""
    if not want:
        return None
    first = starters[0][1][0]
    return Twice(tuple(sorted(head.rank or 0 for head, _ in starters)), first.launcher, want, node.argv_of(first.parent))


def _started_by_ranks(node: Node, living: Collection[Key]) -> dict[Key, list[Head]]:
    """Return the living ranks of launchers that ranks have started, by the tops of these ranks."""
    inner: dict[Key, list[Head]] = {}
    for head in node.heads:
        if head.within and head.process in living and head.is_of_launcher:
            inner.setdefault(head.within, []).append(head)
    return inner


def _want(jobs: Sequence[Sequence[Head]], job: Job, visible: Mapping[Key, str]) -> str:
    """Return what the ranks of two inner jobs both want, "" for nothing."""
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
