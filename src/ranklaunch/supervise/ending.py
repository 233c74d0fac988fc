"""Ending of a node: the first event that ends its work, and the suspect that the ending names at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from ranklaunch import errors
from ranklaunch.errors import DEFECT
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.child import SERVICE, Child
from ranklaunch.system.signals import STOPPING, name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import Because, Culprit, Failure

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Watched

Explain = Callable[[Child, str], Optional[Failure]]
Told = Callable[[Process], Optional[Judgement]]


@dataclass(frozen=True)
class Ending:
    """What decided on this node. child: whose end it was; the reason is then made from how it ended. rank: that of a launcher's. culprit:
    who is to blame without one. from_elsewhere: another node said so. at: monotonic. killed: ranklaunch was. hung: the job was.
    because: rules that named the suspects of a hang."""

    outcome: str
    exit_code: int
    reason: str
    child: Child | None = None
    rank: Watched | None = None
    culprit: Culprit | None = None
    from_elsewhere: bool = False
    at: float = 0.0
    killed: bool = False
    hung: bool = False
    because: tuple[Because, ...] = ()


def first_word(plan: Plan, ending: Ending, wall: Callable[[float], float]) -> Suspect:
    """What is known in the moment of the ending, before anything is looked into."""
    child = ending.child
    if not child:
        return _of_ending(plan, ending, wall(ending.at))
    failure, at = Failure(child.process.rank, child.failure_code, 0, child.identity.pid), ending.at
    if ending.rank:
        failure, at = ending.rank.failure(), ending.rank.ended_at
    elif child.end:
        failure, at = replace(failure, signal=child.end.signal), child.end.at
    at = wall(at)
    culprit = _culprit(plan, child, failure, at)
    return Suspect(culprit.node, at, ending.outcome, ending.exit_code, "", culprit)


def of_launcher(plan: Plan, child: Child, failure: Failure, at: float) -> Suspect:
    """Return the suspect from a launcher's report about a rank, before the launcher itself has ended."""
    culprit = _culprit(plan, child, failure, at)
    return Suspect(culprit.node, at, "failed", culprit.exit_code, "", culprit)


def stopped_by(number: int) -> str:
    return f"stopped by {name_of(number)}"


def _of_ending(plan: Plan, ending: Ending, at: float) -> Suspect:
    """Return ranklaunch's own end: asked to stop, in vain waiting, killed."""
    job, reason = plan.job, errors.reason(ending.reason)
    own = Suspect(job.node_index, at, ending.outcome, ending.exit_code, reason, ending.culprit, because=ending.because)
    return blame.of_ranklaunch(own, job.node.host, several=len(job.everyone) > 1, killed=ending.killed, hung=ending.hung)


def _culprit(plan: Plan, child: Child, failure: Failure, at: float) -> Culprit:
    node = _node(plan, child, failure)
    return Culprit(
        node=node,
        rank=failure.rank,
        pid=failure.pid,
        exit_code=failure.exit_code,
        signal=name_of(failure.signal) if failure.signal else None,
        out_of_memory=False,
        last_lines=(),
        name=failure.name or child.process.name,
        host=plan.job.everyone[node].host if len(plan.job.everyone) > max(1, node) else "",
        time=blame.iso(at),
    )


def _node(plan: Plan, child: Child, failure: Failure) -> int:
    """Of the rank that failed: with mpirun it may be another node's."""
    told = next((node for node in (failure.node, child.process.node) if node is not None), None)
    if told is not None:
        return told
    job = plan.job
    if failure.rank is None or child.process.rank is not None or failure.rank in job.node.ranks:
        return job.node_index
    return next((node.index for node in job.nodes if failure.rank in node.ranks), job.node_index)


def placed(plan: Plan, text: str) -> str:
    """A text with the node that it is about, where there are several."""
    return f"{blame.place(plan.job.node_index, plan.job.node.host)}: {text}" if len(plan.job.everyone) > 1 else text


def decoded(tail: bytes) -> str:
    return tail.decode(errors="replace")


def ending_of(child: Child) -> Ending | None:
    """Return the failure of the node by the end of a child, None without one."""
    if child.failure_code:
        return Ending("failed", child.code_of_job, "", child)
    if child.announced and child.announced.alive:
        return Ending("failed", 128 + signal.SIGKILL, _left_running(child, child.announced.alive))
    if child.role == SERVICE and not child.process.may_end:
        return Ending("failed", DEFECT, f"{child.process.name} ended while the ranks needed it")
    return None


def may_be_stopped(child: Child) -> bool:
    """Return True if a service may have ended by a stop of the job: a signal to all processes, as Slurm sends it, may reach a service
    before this process, and sshd then ends with 0."""
    return child.role == SERVICE and (not child.ended.code or child.ended.signal in STOPPING)


def _left_running(launcher: Child, ranks: Sequence[Watched]) -> str:
    """Return the reason for a launcher that ended with 0 before its ranks."""
    numbers = ", ".join(str(rank.rank) for rank in ranks)
    which, them = (f"ranks {numbers} were", "them") if len(ranks) > 1 else (f"rank {numbers} was", "it")
    return f"{launcher.process.name} ended with 0 while {which} still running: what held {them} was killed, most likely"


def is_stop_too(plan: Plan, ending: Ending, number: int, now: float) -> bool:
    """Return True if an attempt that ends for a failure is stopped by this signal too: no round follows, or the signal went to the ranks as
    well, as Slurm sends it, and one has died of it first. now: monotonic seconds."""
    end = ending.child.end if ending.child else None  # a launcher whose rank has failed may live yet
    together = end and end.signal == number and now - end.at < blame.OF_A_STOP_S
    return ending.outcome == "failed" and bool(plan.rounds or together)
