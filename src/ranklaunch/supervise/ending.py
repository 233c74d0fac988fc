"""Ending of a node: the first event that ends its work, the suspect that it names at once, and the verdict that follows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from ranklaunch import errors
from ranklaunch.errors import DEFECT
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.children import SERVICE, UNJUDGED, Child
from ranklaunch.supervise.record import now
from ranklaunch.system.memory import Memory
from ranklaunch.system.signals import STOPPING, name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Because, Culprit, Failure, Note, Verdict, Victim

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.children import Daemon

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


def verdict_of(
    plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, started: str
) -> Verdict:
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
    signalled = [child for child in ended if child is not ending.child and child.role not in UNJUDGED and child.ended.told]
    for child in sorted((each for each in signalled if not _is(culprit, each, plan)), key=_by_rank):
        node = plan.job.node_index if child.process.node is None else child.process.node
        yield Victim(node, child.process.rank, name_of(child.ended.told[-1]), child.process.name)


def _by_rank(child: Child) -> tuple[bool, int]:
    return child.process.rank is None, child.process.rank or 0


def _ended_by_launchers(ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> Iterable[tuple[int, int]]:
    """Yield rank and signal of the ranks that launchers ended: as their ends were seen, and as the launcher of the ending reports."""
    for child in ended:
        victims = dict(_seen_victims(child))
        if child is ending.child and child.ended.code and child.reader and not child.announced:
            failure = circumstances.explain(child, decoded(child.reader.output.tail))
            victims.update(failure.victims if failure else ())
        yield from victims.items()


def _seen_victims(launcher: Child) -> Iterable[tuple[int, int]]:
    """Yield rank and signal of each rank that was seen to end by its launcher. Of announced ranks each end is seen, unless the launcher
    was faster and has fetched the status."""
    first = launcher.ended.told[0] if launcher.ended.told else signal.SIGTERM  # sent to the launcher, and by it to its ranks
    for end in launcher.below.ended if launcher.below else ():
        if end.rank is not None and not end.by_itself and (not launcher.announced or end.signal or end.status is None):
            yield end.rank, end.signal or first
