"""From the processes that ended, and from what they wrote, to the suspects of this node and to its verdict."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from ranklaunch import errors
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.child import UNJUDGED, Child
from ranklaunch.supervise.record import now
from ranklaunch.system import disk, tree
from ranklaunch.system.memory import Memory
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame, folders
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import WHOLE, Because, Culprit, Failure, Note, Verdict, Victim

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds, RankEnd
    from ranklaunch.processes.child_ranks import Watched
    from ranklaunch.processes.children import Daemon
    from ranklaunch.system.bounded import Apart

Explain = Callable[[Child, str], Optional[Failure]]
Told = Callable[[Process], Optional[Judgement]]

MOST_ARGUMENTS = 1000  # of the program, that are looked at for folders


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


def notes(plan: Plan, ending: Ending, found: Sequence[Suspect] = (), look: Apart | None = None) -> tuple[Note, ...]:
    """Return notes on what was seen here and may have to do with a failure. Node 0 notes who had finished before the failure. look: at the
    file systems, begun before."""
    if ending.outcome == "succeeded":
        return ()
    own = [placed(plan, errors.reason(ending.reason))] if ending.culprit and ending.hung else []
    return (*map(Note, (*own, *full_disks(plan, look), *_of_arguments(plan, found))), *_together(plan, found))


def notes_of_stop(
    plan: Plan, ending: Ending, node: NodeEnds | None, found: Sequence[Suspect], heard: Callable[[tree.Identity], bool]
) -> Sequence[Note]:
    """Return notes about ranks that failed during the stop. heard: True for a process that had a handler for the signal."""
    if ending.outcome == "succeeded" or not node:
        return ()
    try:
        from ranklaunch.diagnose import stopped  # only failures need it
        from ranklaunch.supervise.diagnosis import Catalogue
    except (OSError, ImportError):  # no descriptor left
        return ()
    logs = {process.rank: os.path.basename(process.log) for process in plan.processes if process.rank is not None}

    def log_of(rank: int) -> str:
        return logs.get(rank) or os.path.basename(folders.rank_log("", rank))

    def had_heard(end: RankEnd) -> bool:
        return heard(tree.Identity(end.pid or 0, end.start or 0))

    return stopped.notes(node, found, Catalogue(plan), had_heard, log_of)


def _together(plan: Plan, found: Sequence[Suspect]) -> Iterable[Note]:
    """Yield what the ends of the ranks of this node say together."""
    try:
        from ranklaunch.verdict import endings  # only failures need it
    except (OSError, ImportError):  # no descriptor left
        return
    node = plan.job.node
    yield from map(Note, endings.waited_for(found, node.ranks))
    if len(plan.job.nodes) > 1:
        yield from (Note(text, WHOLE) for text in endings.of_whole_node(found, node.ranks, blame.place(node.index, node.host)))


def _of_arguments(plan: Plan, found: Sequence[Suspect]) -> Iterable[str]:
    """Where the program has refused its command line, it may be for an option that was meant for ranklaunch."""
    culprits = [suspect.culprit for suspect in found if suspect.culprit]
    options = {word.partition("=")[0] for word in plan.job.program.args if word.startswith("--")}
    named = {word for culprit in culprits for line in culprit.last_lines for word in re.findall(r"--[\w-]+", line)}
    if options & named or (options and any(culprit.exit_code == errors.USAGE for culprit in culprits)):
        try:
            from ranklaunch.plan.hints import behind  # it knows all adapters

            yield from filter(None, [behind.hint(plan.job.program)])
        except (OSError, ImportError):  # no descriptor left
            pass


def verdict(plan: Plan, common: Judgement, ending: Ending, ended: Sequence[Child], circumstances: Circumstances, started: str) -> Verdict:
    """What all nodes say, and what happened on this one."""
    victims = () if common.outcome == "succeeded" else tuple(_victims(plan, common, ending, ended, circumstances))
    said = (common.outcome, common.exit_code, common.reason, common.culprit)
    return Verdict(*said, victims, started, now(), common.failures, common.notes, common.because)


def suspects(plan: Plan, ending: Ending, node: NodeEnds | None, wall: Callable[[float], float]) -> list[Suspect]:
    """Return everything on this node that failed by itself, whoever is to blame first. node: its ends; None if they could not be read: then
    only the ending itself counts."""
    if ending.outcome == "succeeded":
        return []
    try:
        from ranklaunch.diagnose.suspects import diagnose  # only failures need it
        from ranklaunch.supervise.diagnosis import Catalogue

        if node:
            return diagnose(node, Catalogue(plan))
    except (OSError, ImportError):  # no descriptor left
        pass
    return [] if ending.from_elsewhere else [first_word(plan, ending, wall)]


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


def look_at_disks(plan: Plan) -> Apart | None:
    """Begin to look at the file systems of the job, in a process of its own: nobody waits for one that does not answer."""
    try:
        from ranklaunch.system.bounded import Apart  # at a failure alone

        return Apart(lambda: json.dumps(disk.full((*stored_in(plan), *named_by(plan)))).encode())
    except (OSError, ImportError):  # no descriptor left
        return None


def full_disks(plan: Plan, look: Apart | None = None) -> Iterable[str]:
    """Yield file systems on which nothing more can be stored: a cause that often nobody has written down, for the same reason."""
    look = look or look_at_disks(plan)
    if not look:
        return ()
    from ranklaunch.system import bounded  # look has loaded it

    return are_full(plan, json.loads(look.answer(bounded.LOOK_S) or b"[]"))


def stored_in(plan: Plan) -> tuple[str, ...]:
    """Folders in which a job stores something."""
    return plan.job.log_dir, ".", "/tmp", "/dev/shm"


def named_by(plan: Plan) -> tuple[str, ...]:
    """Folders of RANKLAUNCH_PROGRESS_FILE, and folders that the program's arguments name: mostly that of its checkpoints is among them."""
    values = (word.partition("=")[2] or word for word in plan.job.program.args[:MOST_ARGUMENTS])
    return (*(os.path.dirname(path) for path in plan.marks), *(value for value in values if value.startswith("/")))


def are_full(plan: Plan, found: Iterable[tuple[str, str]]) -> Iterable[str]:
    """found: as disk.full has it."""
    for folder, usage in found:
        yield f"{placed(plan, '')}the file system of {folder} is full: {usage}"


def _of_ending(plan: Plan, ending: Ending, at: float) -> Suspect:
    """Return ranklaunch's own end: asked to stop, in vain waiting, killed."""
    job, reason = plan.job, errors.reason(ending.reason)
    own = Suspect(job.node_index, at, ending.outcome, ending.exit_code, reason, ending.culprit, because=ending.because)
    return blame.of_ranklaunch(own, job.node.host, several=len(job.everyone) > 1, killed=ending.killed, hung=ending.hung)


def placed(plan: Plan, text: str) -> str:
    """A text with the node that it is about, where there are several."""
    return f"{blame.place(plan.job.node_index, plan.job.node.host)}: {text}" if len(plan.job.everyone) > 1 else text


def decoded(tail: bytes) -> str:
    return tail.decode(errors="replace")


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
