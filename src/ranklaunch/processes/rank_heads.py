"""Rank heads (first Python process of each rank) and launchers of this node, by their records, else by /proc."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from ranklaunch.ends.model import LAUNCHER, RANK, Record
from ranklaunch.env.parse import is_loopback
from ranklaunch.env.settings import HEAD_IS_PROGRAM, RANK_HEAD
from ranklaunch.placement import model
from ranklaunch.placement.model import OURS, Head, Key, Launcher
from ranklaunch.placement.rules import Job
from ranklaunch.placement.success import Node
from ranklaunch.plan.model import PROGRAM, Plan
from ranklaunch.processes.children import DECIDING, Child
from ranklaunch.processes.records import Records
from ranklaunch.system import tree

MOST_ENVIRONMENT = 512 * 1024  # bytes


def job_of(plan: Plan) -> Job:
    """Return the numbers of nodes and ranks of a plan, for the placement rules."""
    job = plan.job
    slots = plan.slots or tuple(node.slots for node in job.nodes)
    return Job(len(job.nodes), sum(slots), slots[job.node_index], is_loopback(job.master))


class Placed:
    """Heads and launchers of one round, found up to now. folder: records of the round."""

    def __init__(self, folder: str, plan: Plan) -> None:
        self.folder = folder
        self._starts_ranks = plan.runs != PROGRAM
        self._files = Records(folder)
        self._heads: dict[Key, Head] = {}
        self._launchers: dict[Key, Launcher] = {}
        self._ends: dict[Key, list[Record]] = {}

    def look(self, seconds: float = 60.0) -> None:
        """Read new records, for at most `seconds`."""
        for record in self._files.new(seconds):
            if record.kind == LAUNCHER:
                self._launchers[record.process] = model.launcher(record)
            elif record.kind != RANK:
                self._ends.setdefault(record.process, []).append(record)
            elif (head := model.head(record)) is not None:
                self._heads[record.process] = head
        if not os.path.isdir(self.folder):
            self._scan()

    def node(self, children: Sequence[Child]) -> Node:
        """Return the heads and launchers found up to now. children: children of ranklaunch, living and ended."""
        heads = sorted(self._heads.values(), key=attrgetter("at"))
        launchers = sorted(self._launchers.values(), key=attrgetter("at"))
        codes = {process: code for process, records in self._ends.items() if (code := model.raised_code(records)) is not None}
        own = frozenset((child.identity.pid, child.identity.start) for child in children if child.role in DECIDING)
        return Node(tuple(heads), tuple(launchers), codes, own, self._starts_ranks)

    def living(self) -> Collection[Key]:
        """Return the living heads, their topmost processes, the processes that placed them, and the launchers."""
        of_heads = (process for head in self._heads.values() for process in (head.top, head.parent))
        return {process for process in {*self._heads, *self._launchers, *of_heads} if tree.state(tree.Identity(*process)) not in "XZ"}

    def ends(self, process: Key) -> Sequence[Record]:
        """Return the records of a process about its exceptions and its exit."""
        return self._ends.get(process, ())

    def may_be_head(self, process: tree.Identity) -> bool:
        """Return True for a Python process outside of ranks without a record of its start, or without a rank in its environment yet."""
        entry = tree.entry(process.pid)
        known = process in self._heads or process in self._launchers
        if known or not entry or entry.start != process.start or not entry.name.startswith("python"):
            return False
        return not os.path.isdir(self.folder) or variables_of(process.pid).get(RANK_HEAD, "") in ("", HEAD_IS_PROGRAM)

    def _scan(self) -> None:
        """Find living ranks and launchers by their variables and command lines: there are no records."""
        from ranklaunch.adapters.launchers.shared.starters import Starters  # most jobs have records

        starters, ticks = Starters(), os.sysconf("SC_CLK_TCK")
        for process, parent, variables, within in _placed(os.getpid()):
            if process in self._heads:
                continue
            starter = starters.of_words(tree.command(parent[0])[:-1], {})
            launcher = OURS if parent[0] == os.getpid() else starter.name if starter else ""
            head = model.placed(process, process, parent, launcher, variables, process[1] / ticks)
            self._heads[process] = replace(head, within=within)


def _placed(root: int) -> Iterator[tuple[Key, Key, Mapping[str, str], Key | None]]:
    """Yield the topmost process of each rank: its key, its parent, its rank variables, and the top of the enclosing rank or None."""
    children = tree.by_parent()
    todo: list[tuple[int, Key, Mapping[str, str], Key | None]] = [(root, (root, tree.identify(root).start), {}, None)]
    while todo:
        pid, parent, inherited, within = todo.pop()
        for child, entry in children.get(pid, ()):
            key, env = (child, entry.start), variables_of(child)
            variables = {name: env[name] for name in model.VARIABLES if name in env}
            is_top = entry.state not in "ZX" and variables != inherited and model.has_rank(variables)
            if is_top:
                yield key, parent, variables, within
            todo.append((child, key, variables if is_top else inherited, key if is_top else within))


def variables_of(pid: int) -> dict[str, str]:
    """Return the environment of a process at its exec; {} if it cannot be read."""
    pairs = tree.read(f"/proc/{pid}/environ", MOST_ENVIRONMENT).decode(errors="replace").split("\0")
    return {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}
