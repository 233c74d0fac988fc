"""Verdict of this node: the common judgement, with the victims of this node."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ranklaunch import errors
from ranklaunch.plan.model import Plan
from ranklaunch.processes.child import UNJUDGED, Child
from ranklaunch.supervise.ending import Ending, Explain, Told, decoded
from ranklaunch.supervise.record import now
from ranklaunch.system.memory import Memory
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Culprit, Note, Verdict, Victim

if TYPE_CHECKING:
    from ranklaunch.processes.children import Daemon


@dataclass(frozen=True)
class Circumstances:
    """What the supervisor knows beside the processes themselves. memory: what the kernel has killed for memory since the start.
    explain: which rank failed, by a launcher's own output. told: what a process that is itself a ranklaunch has found. wall: monotonic
    seconds, as times are, to those since 1970, by node 0's. daemons: those that carried ranks here and were killed. stop:
    the signal of the first stop request, and when."""

    memory: Memory
    explain: Explain
    told: Told
    tail_of_rank: Callable[[int | None], bytes]
    wall: Callable[[float], float]
    daemons: Sequence[Daemon] = ()
    stop: tuple[int, float] | None = None


def judgement(
    ending: Ending, suspects: Sequence[Suspect], finishes: Sequence[Finish], seen: Sequence[Note], circumstances: Circumstances
) -> Judgement:
    """Return this node's own judgement, which is the job's without other nodes. seen: notes()."""
    told = circumstances.told(ending.child.process) if ending.child else None
    if told and ending.child and told.exit_code == ending.child.ended.code:
        return told
    if ending.outcome == "succeeded":
        return Judgement(ending.outcome, ending.exit_code, ending.reason)
    if not suspects:
        return Judgement(ending.outcome, ending.exit_code, errors.reason(ending.reason), notes=tuple(note.text for note in seen))
    return blame.judge(suspects, finishes, seen)


def of_node(plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, started: str) -> Verdict:
    """What all nodes say, and what happened on this one."""
    victims = () if common.outcome == "succeeded" else tuple(_victims(plan, common, ending, ended, circumstances))
    said = (common.outcome, common.exit_code, common.reason, common.culprit)
    return Verdict(*said, victims, started, now(), common.failures, common.notes, common.because)


def _is(culprit: Culprit | None, child: Child, plan: Plan) -> bool:
    """Whether a process is the culprit, or plays its node."""
    if child.process.node is not None:
        return bool(culprit and child.process.node == culprit.node)
    return bool(culprit and culprit.node == plan.job.node_index and culprit.pid == child.identity.pid)


def _victims(plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> Iterable[Victim]:
    culprit = common.culprit
    for rank, number in sorted(set(_ended_by_launchers(ending, ended, circumstances))):
        if not (culprit and (culprit.node, culprit.rank) == (plan.job.node_index, rank)):
            yield Victim(plan.job.node_index, rank, name_of(number), f"rank {rank}")
    others = [child for child in ended if child is not ending.child and child.role not in UNJUDGED and child.ended.told]
    for child in sorted((c for c in others if not _is(culprit, c, plan)), key=lambda c: (c.process.rank is None, c.process.rank or 0)):
        node = plan.job.node_index if child.process.node is None else child.process.node
        yield Victim(node, child.process.rank, name_of(child.ended.told[-1]), child.process.name)


def _ended_by_launchers(ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> Iterable[tuple[int, int]]:
    """(rank, signal): as they were seen, or as the launcher tells."""
    for child in ended:
        seen = child.below
        told = [(each.rank, each) for each in seen.ended if each.rank is not None and not each.by_itself] if seen else []
        first = child.ended.told[0] if child.ended.told else signal.SIGTERM  # what a launcher was told, and then its ranks
        if child.announced:  # its ranks' ends are seen, unless it was faster and has fetched them
            yield from ((rank, each.signal or first) for rank, each in told if each.signal or each.status is None)
            continue
        found = {rank: each.signal or first for rank, each in told}
        if child is ending.child and child.ended.code and child.reader:
            failure = circumstances.explain(child, decoded(child.reader.output.tail))
            found.update(failure.victims if failure else ())
        yield from found.items()
