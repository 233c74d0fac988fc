"""From what ended, and in which order, to the verdict."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional

from ranklaunch.plan import Plan, Process
from ranklaunch.supervise.child import Child
from ranklaunch.supervise.record import now
from ranklaunch.supervise.signals import name_of
from ranklaunch.verdict import Culprit, Failure, Verdict, Victim

Explain = Callable[[Process, str], Optional[Failure]]


@dataclass(frozen=True)
class Ending:
    """What decided. child: whose end it was; the reason is then made from how it ended."""

    outcome: str
    exit_code: int
    reason: str
    child: Child | None = None


@dataclass(frozen=True)
class Evidence:
    """What the supervisor knows beside the processes themselves. started: when it began. oom_kills: how often the kernel has killed
    for memory since. explain: which rank failed, by a launcher's own output."""

    started: str
    oom_kills: int
    explain: Explain
    last_lines_of_rank: Callable[[int], tuple[str, ...]]


def verdict(plan: Plan, ending: Ending, ended: Iterable[Child], evidence: Evidence) -> Verdict:
    failure = _failure(ending.child, evidence) if ending.child else None
    culprit = _culprit(plan, ending.child, failure, evidence) if ending.child and failure else None
    victims = () if ending.outcome == "succeeded" else tuple(_victims(plan, ending, ended, failure))
    return Verdict(
        outcome=ending.outcome,
        exit_code=culprit.exit_code if culprit else ending.exit_code,
        reason=ending.reason or (_sentence(culprit) if culprit else ""),
        culprit=culprit,
        victims=victims,
        started=evidence.started,
        ended=now(),
    )


def name(culprit: Culprit) -> str:
    return f"rank {culprit.rank}" if culprit.rank is not None else culprit.name


def everything(plan: Plan) -> str:
    """What a node has to do, as the subject of a sentence."""
    job = plan.job
    if plan.method == "simulate":
        return f"all {len(job.nodes)} nodes"
    if job.node.slots == 1 or plan.method == "plain":
        return "the program"
    return f"all {job.node.slots} ranks" if len(job.nodes) == 1 else f"all {job.node.slots} ranks of node {job.node_index}"


def _failure(child: Child, evidence: Evidence) -> Failure:
    """The process that failed first or, where a launcher started the ranks, the rank that its own output names."""
    assert child.reader
    told = evidence.explain(child.process, child.reader.output.tail.decode(errors="replace")) if child.code else None
    return told or Failure(child.process.rank, child.code, child.signal, child.identity.pid)


def _culprit(plan: Plan, child: Child, failure: Failure, evidence: Evidence) -> Culprit:
    assert child.reader
    lines = evidence.last_lines_of_rank(failure.rank) if failure.rank is not None else ()
    return Culprit(
        node=next(node for node in (failure.node, child.process.node, plan.job.node_index) if node is not None),
        rank=failure.rank,
        pid=failure.pid,
        exit_code=failure.exit_code,
        signal=name_of(failure.signal) if failure.signal else None,
        out_of_memory=failure.signal == signal.SIGKILL and evidence.oom_kills > 0,
        last_lines=failure.last_lines or lines or child.reader.output.last_lines(),
        name=child.process.name,
    )


def _victims(plan: Plan, ending: Ending, ended: Iterable[Child], failure: Failure | None) -> Iterable[Victim]:
    for rank, number in sorted(failure.victims) if failure else ():
        yield Victim(plan.job.node_index, rank, name_of(number), f"rank {rank}")
    told = [child for child in ended if child is not ending.child and child.signalled]
    for child in sorted(told, key=lambda c: (c.process.rank is None, c.process.rank or 0)):
        node = plan.job.node_index if child.process.node is None else child.process.node
        yield Victim(node, child.process.rank, name_of(child.signalled[-1]), child.process.name)


def _sentence(culprit: Culprit) -> str:
    who = f"{name(culprit)} on node {culprit.node}"
    if culprit.out_of_memory:
        return f"{who} was killed by {culprit.signal}: out of memory, by the kernel's own count"
    if culprit.signal:
        return f"{who} was killed by {culprit.signal}"
    return f"{who} exited with code {culprit.exit_code}"
