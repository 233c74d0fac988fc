"""How the ranks of this node have ended, as far as anybody knows: a launcher mostly hears of an end, and makes it forgotten, before
ranklaunch can look."""

from __future__ import annotations

from collections.abc import Sequence

from ranklaunch.plan.model import PROGRAM, Plan
from ranklaunch.processes.child import LAUNCHER, Child
from ranklaunch.supervise import judge
from ranklaunch.system.signals import name_of


def seen(plan: Plan, ended: Sequence[Child]) -> dict[int, str]:
    """By rank, the name of the signal that killed it, else "". ended: ranklaunch's own children, of which a program that starts its ranks
    itself stands for the first."""
    return {rank: name_of(number) if number else "" for rank, (_, number) in _found(plan, ended).items()}


def well(plan: Plan, ended: Sequence[Child], number: int) -> set[int]:
    """Ranks that have ended with 0, or by themselves as one says it that ends because of this signal."""
    return {rank for rank, end in _found(plan, ended).items() if end in ((0, 0), (128 + number, 0))}


def _found(plan: Plan, ended: Sequence[Child]) -> dict[int, tuple[int | None, int]]:
    """By rank, the exit code and the signal, 0 for none."""
    own = {child.process.rank: (child.ended.code, child.ended.signal) for child in ended if child.process.rank is not None}
    programs = [child for child in ended if child.role == LAUNCHER and plan.runs == PROGRAM]
    own.update((plan.job.node.first_rank, (child.ended.code, child.ended.signal)) for child in programs)
    ends = (each for child in ended if child.below for each in child.below.ended if each.status is not None)
    return {**{each.rank: (each.code, each.signal) for each in ends if each.rank is not None}, **own}


def told_well(ended: Sequence[Child], explained: judge.Explain, *, of_all_nodes: bool = False) -> bool:
    """Whether launchers say of all their ranks that they have ended with 0, for none that has killed a rank ends so without a word of it.
    of_all_nodes: and there are launchers with ranks on all of them."""
    launchers = [child for child in ended if child.role == LAUNCHER and child.launcher.starts_ranks]
    reach = any(child.launcher.CARRIERS for child in launchers) if of_all_nodes else bool(launchers)
    return reach and not any(child.failure_code or explained(child, _words(child)) for child in launchers)


def _words(child: Child) -> str:
    return judge.decoded(child.reader.output.tail) if child.reader else ""
