"""Ranks that failed while they were being stopped. What decided came before, so they are victims; but they did not do what a rank does
then, such as saving."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ranklaunch.plan.model import Plan
from ranklaunch.supervise import words
from ranklaunch.supervise.ranks.child import RANK, Child
from ranklaunch.system import tree
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.blame import Suspect

SIGNALS = range(128, 128 + 65)  # codes that say of which signal it was that something ended


def notes(
    plan: Plan,
    ended: Iterable[Child],
    suspects: Sequence[Suspect],
    tail_of: Callable[[int | None], bytes],
    caught: Callable[[tree.Identity], bool],
    *,
    from_elsewhere: bool = False,
) -> list[str]:
    """A sentence for each, and one for those that are too many. suspects: those of this node; where it has decided, enough is said of the
    first. caught: whether a process had a way to hear the signal: another one that ends with a code of its own had done so before it came.
    from_elsewhere: another node has decided."""
    job = plan.job
    first = [] if from_elsewhere else blame.ordered(list(suspects))[:1]
    said = {suspect.culprit.rank for suspect in first if suspect.culprit and suspect.culprit.node == job.node_index}
    place = f" on {blame.place(job.node_index, job.node.host)}" if len(job.everyone) > 1 else ""
    found = sorted({(rank, code, log) for child in ended for rank, code, log in _failed(plan, child, tail_of, caught) if rank not in said})
    return blame.few([blame.failed_while_stopped(rank, place, code, log) for rank, code, log in found])


def _failed(
    plan: Plan, child: Child, tail_of: Callable[[int | None], bytes], caught: Callable[[tree.Identity], bool]
) -> Iterator[tuple[int, int, str]]:
    """Rank, code and the name of its log: of a rank, and of those of a launcher that were seen to end."""
    rank, end = child.process.rank, child.ended
    heard = child.role == RANK and end.told and caught(child.identity)
    if heard and rank is not None and _by_itself(plan, end.code, end.signal, child.last_words()):
        yield rank, end.code, os.path.basename(child.process.log)
    seen = child.announced or child.below
    for each in seen.ended if seen else ():
        if each.rank is not None and not each.by_itself and _by_itself(plan, each.code or 0, each.signal, tail_of(each.rank)):
            yield each.rank, each.code or 0, os.path.basename(folders.rank_log("", each.rank))


def _by_itself(plan: Plan, code: int, number: int, tail: bytes) -> bool:
    """With an error that is not another rank's."""
    if not code or number or code in SIGNALS:
        return False
    error = words.known(tail, plan)
    return not error or error.kind == blame.CAUSE
