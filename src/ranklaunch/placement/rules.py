"""Ranks that work alone, two ranks of one place, and ranks that start ranks of their own. Pure.

Ranks are placed heads (docs/supervision.md): what a launcher or ranklaunch started, by the variables that it gave them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ranklaunch.fields import NOTHING
from ranklaunch.placement.model import OURS, Head, Key
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
    """The ranks of a launcher work alone on their node. launcher: its name; process: it, or what started the rank; argv: its command line,
    as far as it was recorded. why: the end of a sentence."""

    launcher: str
    process: Key
    heads: tuple[Key, ...]
    why: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Twice:
    """Ranks that start ranks of their own. ranks: their numbers. launcher: name of what they start; argv: its command line, as far as it
    was recorded. want: what both want."""

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
            argv = next((each.argv for each in node.launchers if each.process == head.parent), ())
            return Alone(head.launcher, head.parent, heads, why, argv)
    return None


def _alone(head: Head, node: Node, job: Job) -> str:
    if head.world is None or head.world == job.world:
        return "" if head.world is None or job.is_local or not _is_loopback(head.master) else _at(head)
    local = head.local_world or sum(each.parent == head.parent for each in node.heads)
    if head.world <= local:
        return f"its world has {head.world} of the {job.world} ranks of the job"
    return "" if job.is_local or not _is_loopback(head.master) else _at(head)


def _at(head: Head) -> str:
    return f"its ranks meet at {head.master}, which is another host on each node"


def _is_placed_by_launcher(head: Head, node: Node) -> bool:
    return node.is_placed(head) and head.launcher not in ("", OURS)


def _is_loopback(host: str) -> bool:
    return bool(_LOOPBACK.fullmatch(host))


# Two ranks of one place


def place_twice(node: Node, living: Collection[Key]) -> tuple[Head, Head] | None:
    """Return two ranks that live, with different tops, and have one place: rank, world, master and port."""
    found: dict[tuple[int, int, str, str], Head] = {}
    for head in _with_place(node, living):
        first = found.setdefault((head.rank or 0, head.world or 0, head.master, head.port), head)
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
    """Return ranks of the plan that each wait for a launcher of their own, whose ranks want the same slots, devices or port.

    visible: devices that a head sees, for nodes with accelerators.
    """
    inner: dict[Key, list[Head]] = {}
    for head in node.heads:
        if head.within and head.process in living and head.launcher not in ("", OURS):
            inner.setdefault(head.within, []).append(head)
    outer = {head.top: head for head in reversed(node.heads) if node.is_placed(head) and head.rank is not None}
    starters = [(outer[top], below) for top, below in inner.items() if top in outer and below[0].at - outer[top].at < STARTS_S]
    if len(starters) < 2:
        return None
    want = _want([below for _, below in starters], job, visible)
    ranks = tuple(sorted(head.rank or 0 for head, _ in starters))
    first = starters[0][1][0]
    argv = next((each.argv for each in node.launchers if each.process == first.parent), ())
    return Twice(ranks, first.launcher, want, argv) if want else None


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
