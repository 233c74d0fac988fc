"""Ending of a node: its suspect at that moment, and the verdict that follows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from ranklaunch import errors
from ranklaunch.errors import DEFECT
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.children import SERVICE, UNJUDGED, Child, End
from ranklaunch.supervise.record import now
from ranklaunch.system.memory import Memory
from ranklaunch.system.signals import STOPPING, name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Culprit, Ending, Failure, Note, Verdict, Victim

if TYPE_CHECKING:
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.children import Daemon

Explain = Callable[[Child, str], Optional[Failure]]
InnerJudgement = Callable[[Process], Optional[Judgement]]  # of a process that is a ranklaunch run itself, else None


def failed(exit_code: int, reason: str = "", pid: int | None = None) -> Ending:
    """Return the ending of a node that failed.

    reason: "" if the end of a child gives the reason. pid: pid of this child, None without one.
    """
    return Ending(Judgement("failed", exit_code, reason), pid=pid)


def first_suspect(
    plan: Plan, ending: Ending, wall: Callable[[float], float], child: Child | None = None, rank: Watched | None = None
) -> Suspect:
    """Return the suspect of an ending at once, without reading outputs and records.

    child: the child whose end decided. rank: the rank of this child, if the end of that rank decided.
    """
    if not child:
        return _own_suspect(plan, ending, wall(ending.at))
    if rank:  # the launcher may still live, and has no exit status then
        failure, at = rank.failure(), rank.ended_at
    else:
        number, at = (child.end.signal, child.end.at) if child.end else (0, ending.at)
        failure = Failure(child.process.rank, child.failure_code, number, child.identity.pid)
    return replace(reported_suspect(plan, child, failure, wall(at)), outcome=ending.outcome, exit_code=ending.exit_code)


def reported_suspect(plan: Plan, child: Child, failure: Failure, at: float) -> Suspect:
    """Return the suspect from a launcher's report of a failed rank. at: seconds since 1970."""
    culprit = _culprit(plan, child, failure, at)
    return Suspect(culprit.node, at, "failed", culprit.exit_code, "", culprit)


def stopped_by(number: int) -> str:
    return f"stopped by {name_of(number)}"


def _own_suspect(plan: Plan, ending: Ending, at: float) -> Suspect:
    """Return the suspect for an end by ranklaunch itself: a stop request, a wait past its deadline, a kill."""
    suspect = blame.suspect_of(ending, plan.job.node_index, at)
    suspect = replace(suspect, reason=errors.reason(suspect.reason))
    return blame.of_ranklaunch(suspect, plan.job.node.host, several=len(plan.job.everyone) > 1, killed=ending.killed, hung=ending.hung)


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
    """Return the node of a failed rank. mpirun on this node also reports ranks of other nodes."""
    known = next((node for node in (failure.node, child.process.node) if node is not None), None)
    if known is not None:
        return known
    job = plan.job
    if failure.rank is None or child.process.rank is not None or failure.rank in job.node.ranks:
        return job.node_index
    return next((node.index for node in job.nodes if failure.rank in node.ranks), job.node_index)


def placed(plan: Plan, text: str) -> str:
    """Return a text, with this node in front on a job of several nodes."""
    return f"{blame.place(plan.job.node_index, plan.job.node.host)}: {text}" if len(plan.job.everyone) > 1 else text


def decoded(tail: bytes) -> str:
    return tail.decode(errors="replace")


def ending_of(child: Child) -> Ending | None:
    """Return the failure of the node caused by the end of a child, None for a success."""
    if child.failure_code:
        return failed(child.code_of_job, pid=child.identity.pid)
    if child.announced and child.announced.alive:
        return failed(128 + signal.SIGKILL, _left_running(child, child.announced.alive))
    if child.role == SERVICE and not child.process.may_end:
        return failed(DEFECT, f"{child.process.name} ended while the ranks needed it")
    return None


def may_be_stopped(child: Child) -> bool:
    """Return True if a service may have ended because the job is being stopped.

    Slurm signals all processes, so the signal may reach a service before this process; sshd then ends with 0.
    """
    return child.role == SERVICE and (not child.ended.code or child.ended.signal in STOPPING)


def _left_running(launcher: Child, ranks: Sequence[Watched]) -> str:
    """Return the failure reason for a launcher that ended with 0 before its ranks."""
    numbers = ", ".join(str(rank.rank) for rank in ranks)
    which, them = (f"ranks {numbers} were", "them") if len(ranks) > 1 else (f"rank {numbers} was", "it")
    return f"{launcher.process.name} ended with 0 while {which} still running: the process that ran {them} was killed, most likely"


def is_stop_too(plan: Plan, ending: Ending, end: End | None, number: int, now: float) -> bool:
    """Return True if a stop request also applies to an attempt that is already ending by a failure.

    Then no restart follows; or the signal went to the ranks as well (Slurm) and killed one first.
    end: end of the child that decided, None while the child lives. now: monotonic seconds.
    """
    together = end and end.signal == number and now - end.at < blame.OF_A_STOP_S
    return ending.outcome == "failed" and bool(plan.rounds or together)


@dataclass(frozen=True)
class Circumstances:
    """Facts of the supervisor for a judgement, besides its processes.

    memory: kernel kills for lack of memory since the start. explain: finds the failed rank in a launcher's output. told: returns
    the judgement of a process that is a ranklaunch run itself, else None. tail_of_rank: returns the last output of a rank. wall:
    converts monotonic seconds to seconds since 1970 by node 0's clock. daemons: killed daemons that carried ranks of other
    nodes' launchers. stop: signal and time of the first stop request.
    """

    memory: Memory
    explain: Explain
    told: InnerJudgement
    tail_of_rank: Callable[[int | None], bytes]
    wall: Callable[[float], float]
    daemons: Sequence[Daemon] = ()
    stop: tuple[int, float] | None = None


def judgement(
    ending: Ending,
    suspects: Sequence[Suspect],
    finishes: Sequence[Finish],
    notes: Sequence[Note],
    circumstances: Circumstances,
    child: Child | None = None,
) -> Judgement:
    """Return this node's own judgement, which is the job's judgement if there are no other nodes.

    notes: notes on the failure, for the verdict. child: the child whose end decided.
    """
    inner = circumstances.told(child.process) if child else None
    if inner and child and inner.exit_code == child.ended.code:
        return inner
    own = ending.judgement
    if ending.outcome == "succeeded":
        return Judgement(own.outcome, own.exit_code, own.reason)
    if not suspects:
        return Judgement(own.outcome, own.exit_code, errors.reason(own.reason), notes=tuple(note.text for note in notes))
    return blame.judge(suspects, finishes, notes)


def verdict_of(
    plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, started: str
) -> Verdict:
    """Return the verdict of this node: the judgement of the job (`common`), and the victims on this node."""
    victims = () if common.outcome == "succeeded" else tuple(_victims(plan, common, ending, ended, circumstances))
    return Verdict(common, victims, started, now())


def _is_culprit(culprit: Culprit | None, child: Child, plan: Plan) -> bool:
    """Return True if a process is the culprit, or simulates the culprit's node."""
    if child.process.node is not None:
        return bool(culprit and child.process.node == culprit.node)
    return bool(culprit and culprit.node == plan.job.node_index and culprit.pid == child.identity.pid)


def _victims(plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> Iterable[Victim]:
    culprit = common.culprit
    for rank, number in sorted(set(_ended_by_launchers(ending, ended, circumstances))):
        if not (culprit and (culprit.node, culprit.rank) == (plan.job.node_index, rank)):
            yield Victim(plan.job.node_index, rank, name_of(number), f"rank {rank}")
    signalled = [child for child in ended if child.identity.pid != ending.pid and child.role not in UNJUDGED and child.ended.told]
    for child in sorted((each for each in signalled if not _is_culprit(culprit, each, plan)), key=_by_rank):
        node = plan.job.node_index if child.process.node is None else child.process.node
        yield Victim(node, child.process.rank, name_of(child.ended.told[-1]), child.process.name)


def _by_rank(child: Child) -> tuple[bool, int]:
    return child.process.rank is None, child.process.rank or 0


def _ended_by_launchers(ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> Iterable[tuple[int, int]]:
    """Yield rank and signal of each rank that a launcher ended.

    Sources: ends observed here, and the report of the launcher whose end decided.
    """
    for child in ended:
        victims = dict(_observed_victims(child))
        if child.identity.pid == ending.pid and child.ended.code and child.reader and not child.announced:
            failure = circumstances.explain(child, decoded(child.reader.output.tail))
            victims.update(failure.victims if failure else ())
        yield from victims.items()


def _observed_victims(launcher: Child) -> Iterable[tuple[int, int]]:
    """Yield rank and signal of each rank that ended after a signal of its launcher.

    Ends of announced ranks are all observed, unless the launcher reaped one first.
    """
    first = launcher.ended.told[0] if launcher.ended.told else signal.SIGTERM  # the launcher passes its signal on to the ranks
    for end in launcher.below.ended if launcher.below else ():
        if end.rank is not None and not end.by_itself and (not launcher.announced or end.signal or end.status is None):
            yield end.rank, end.signal or first
