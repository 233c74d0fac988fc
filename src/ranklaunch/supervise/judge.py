"""From the processes that ended, and from what they wrote, to the suspects of this node and to its verdict."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType

from ranklaunch import errors, showing
from ranklaunch.plan.model import Plan, Process
from ranklaunch.supervise.output.pipe import last_lines
from ranklaunch.supervise.ranks.child import DECIDING, UNJUDGED, Child
from ranklaunch.supervise.record import now
from ranklaunch.system import disk
from ranklaunch.system.memory import Memory
from ranklaunch.system.signals import STOPPING, TOLD, name_of
from ranklaunch.typed import TYPE_CHECKING, Optional
from ranklaunch.values import Value, replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Culprit, Failure, KnownError, Verdict, Victim

if TYPE_CHECKING:
    from ranklaunch.ends.model import NodeEnds
    from ranklaunch.supervise.ranks.below import Watched
    from ranklaunch.supervise.ranks.children import Daemon

Explain = Callable[[Child, str], Optional[Failure]]
Told = Callable[[Process], Optional[Judgement]]

OF_A_STOP_S = 2.0  # between a stop request and the end of a rank that it was meant for as well
_OF_OTHERS = (signal.SIGKILL, *STOPPING, signal.SIGUSR1, signal.SIGUSR2)  # of which no words of the process that they end tell why
MOST_ARGUMENTS = 1000  # of the program, that are looked at for folders
AFTER = 1e-6  # seconds: for suspects of one moment, so that their order is kept


class Ending(Value):
    """What decided on this node. child: whose end it was; the reason is then made from how it ended. rank: that of a launcher's. culprit:
    who is to blame without one. from_elsewhere: another node said so. at: monotonic. killed: ranklaunch was. hung: the job was."""

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


class Circumstances(Value):
    """What the supervisor knows beside the processes themselves. memory: what the kernel has killed for memory since the start.
    explain: which rank failed, by a launcher's own output. end_of_rank: how a rank of it ended, where that was seen.
    told: what a process that is itself a ranklaunch has found. wall: monotonic seconds, as times are, to those since 1970, by node 0's.
    wrote: of each rank the last that it had written when the end began, and when. daemons: those that carried ranks here and were killed.
    stop: the signal of the first stop request, and when. ends: all ends of this node with the records of their processes, with times by
    the same `wall`; None if they could not be read."""

    memory: Memory
    explain: Explain
    told: Told
    end_of_rank: Callable[[Child, int], Failure | None]
    tail_of_rank: Callable[[int | None], bytes]
    wall: Callable[[float], float]
    wrote: Callable[[], Iterable[tuple[int, bytes, float]]] = tuple
    daemons: Sequence[Daemon] = ()
    stop: tuple[int, float] | None = None
    ends: Callable[[Circumstances], NodeEnds | None] = lambda circumstances: None


def judgement(
    ending: Ending, suspects: Sequence[Suspect], finishes: Sequence[Finish], seen: tuple[str, ...], circumstances: Circumstances
) -> Judgement:
    """This node's own, which is the job's where there is no other node to ask. seen: notes()."""
    told = circumstances.told(ending.child.process) if ending.child else None
    if told and ending.child and told.exit_code == ending.child.ended.code:
        return told
    if ending.outcome == "succeeded":
        return Judgement(ending.outcome, ending.exit_code, ending.reason)
    if not suspects:
        return Judgement(ending.outcome, ending.exit_code, errors.reason(ending.reason), notes=seen)
    return blame.judge(suspects, finishes, seen)


def notes(plan: Plan, ending: Ending, found: Sequence[Suspect] = ()) -> tuple[str, ...]:
    """What was seen here that may have to do with a failure. Who had finished before it is noted by whoever judges."""
    if ending.outcome == "succeeded":
        return ()
    own = [placed(plan, errors.reason(ending.reason))] if ending.culprit else []
    return (*own, *full_disks(plan), *_of_arguments(plan, found), *_waited_for(plan, found))


def _waited_for(plan: Plan, found: Sequence[Suspect]) -> Iterable[str]:
    try:
        from ranklaunch.verdict import endings  # only failures need it
    except (OSError, ImportError):  # no descriptor left
        return ()
    return endings.waited_for(found, plan.job.node.ranks)


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


def suspects(plan: Plan, ending: Ending, ended: Sequence[Child], circumstances: Circumstances) -> list[Suspect]:
    """Everything on this node that ended by itself and not well. Whom we or a launcher ended is a victim, unless what it had written
    by then names a cause."""
    began = circumstances.wall(0.0)  # asked once: a busy machine's second answer could put what came later before what came first
    circumstances = replace(circumstances, wall=lambda at: began + at)
    is_own = not ending.child and not ending.from_elsewhere and ending.outcome != "succeeded"
    found = [_of_ending(plan, ending, circumstances.wall(ending.at))] if is_own else []
    found += [_of_daemon(plan, each, circumstances.wall(each.at)) for each in circumstances.daemons if each.at < ending.at]
    for child in ended:
        if child.failure_code and child.role not in UNJUDGED:
            found += _of_child(plan, child, circumstances)
    found = _explained(plan, ending, found, ended, circumstances)
    if any(each.culprit for each in found):
        found = _words().with_memory(found, circumstances.memory, plan.job.node_index)
        found = _words().with_failures(found, lambda each: _words().written_by(each, plan, ended, circumstances.tail_of_rank))
    if not found and not plan.processes and circumstances.memory.kills:
        found.append(_unseen(plan, circumstances.memory, circumstances.wall(ending.at)))
    return _without_stopped(plan, found, circumstances) if circumstances.stop else found


def _explained(plan: Plan, ending: Ending, found: list[Suspect], ended: Sequence[Child], circumstances: Circumstances) -> list[Suspect]:
    """By exceptions: those that processes recorded, and for processes without records those that their outputs show."""
    node = circumstances.ends(circumstances) if ending.outcome == "failed" else None
    if node:
        from ranklaunch.diagnose import raised
        from ranklaunch.supervise import by_records

        found = by_records.explained(found, raised.explanations(node), plan, ended, _culprit)
    return _with_parting(plan, ending, found, ended, circumstances)


def _with_parting(plan: Plan, ending: Ending, found: list[Suspect], ended: Sequence[Child], circumstances: Circumstances) -> list[Suspect]:
    if ending.outcome != "failed":
        return found
    try:
        from ranklaunch.supervise.output import parting  # only failures need it
    except (OSError, ImportError):  # no descriptor left
        return found
    return parting.with_parting(found, ended, plan, ending, circumstances, _culprit)


def _without_stopped(plan: Plan, found: list[Suspect], circumstances: Circumstances) -> list[Suspect]:
    """Who stops ranklaunch may stop its ranks too, as Slurm does: a rank that died of the same signal at the same time was stopped,
    and did not fail, although its end was seen first."""
    assert circumstances.stop
    number, at = circumstances.stop[0], circumstances.wall(circumstances.stop[1])
    stopped = [s for s in found if s.culprit and s.culprit.signal == name_of(number) and abs(s.at - at) < OF_A_STOP_S]
    if not stopped:
        return found
    request = Suspect(plan.job.node_index, min(at, *(s.at for s in stopped)), "stopped", 128 + number, stopped_by(number))
    return [request, *(s for s in found if s not in stopped and s.outcome != "stopped")]


def _unseen(plan: Plan, memory: Memory, at: float) -> Suspect:
    """Of a rank that another node has started here, and sees the end of: that it was for memory is known here alone."""
    job = plan.job
    culprit = Culprit(job.node_index, None, None, 137, "SIGKILL", True, (), "a process", job.node.host, blame.iso(at))
    return Suspect(job.node_index, at, "failed", 137, f"{blame.sentence(culprit)}{memory.described}", culprit)


def _of_daemon(plan: Plan, daemon: Daemon, at: float) -> Suspect:
    """Its launcher, on another node, has lost it, and cannot know why."""
    node, code = plan.job.node_index, 128 + daemon.signal
    culprit = Culprit(node, None, daemon.pid, code, name_of(daemon.signal), False, (), daemon.name, plan.job.node.host, blame.iso(at))
    return Suspect(node, at, "failed", code, "", culprit)


def first_word(plan: Plan, ending: Ending, wall: Callable[[float], float]) -> Suspect:
    """What is known in the moment of the ending, before anything is looked into."""
    child = ending.child
    if not child:
        return _of_ending(plan, ending, wall(ending.at))
    if ending.rank:
        return _of_rank(plan, child, ending.rank, ending.rank.code, b"", None, wall(ending.rank.ended_at))
    failure = Failure(child.process.rank, child.failure_code, child.ended.signal, child.identity.pid)
    culprit = _culprit(plan, child, failure, (), None, wall(child.ended.at))
    return Suspect(culprit.node, wall(child.ended.at), ending.outcome, ending.exit_code, "", culprit)


def of_launcher(plan: Plan, child: Child, failure: Failure, at: float) -> Suspect:
    """What one has told of a rank before it has ended itself."""
    culprit = _culprit(plan, child, failure, (), None, at)
    return Suspect(culprit.node, at, "failed", culprit.exit_code, "", culprit)


def stopped_by(number: int) -> str:
    return f"stopped by {name_of(number)}"


def full_disks(plan: Plan) -> Iterable[str]:
    """File systems on which nothing more can be stored: a cause that often nobody has written down, for the same reason. Nobody waits for
    one that does not answer."""
    try:
        from ranklaunch.system.bounded import within  # at a failure alone
    except (OSError, ImportError):  # no descriptor left
        return ()
    told = within(lambda: json.dumps(disk.full((*stored_in(plan), *named_by(plan)))).encode())
    return are_full(plan, json.loads(told or b"[]"))


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
    """Of ranklaunch itself: asked to stop, in vain waiting, killed."""
    job, culprit = plan.job, ending.culprit
    if ending.killed:
        culprit = Culprit(job.node_index, None, None, 137, "SIGKILL", False, (), "ranklaunch", job.node.host, blame.iso(at))
    reason = "" if ending.culprit else placed(plan, errors.reason(ending.reason))
    return Suspect(culprit.node if culprit else job.node_index, at, ending.outcome, ending.exit_code, reason, culprit)


def placed(plan: Plan, text: str) -> str:
    """A text with the node that it is about, where there are several."""
    return f"{blame.place(plan.job.node_index, plan.job.node.host)}: {text}" if len(plan.job.everyone) > 1 else text


def _of_child(plan: Plan, child: Child, circumstances: Circumstances) -> Iterable[Suspect]:
    said = child.said if (child.ended.told or child.had_said_all) and not child.had_begun_to_tell else None
    tail = child.last_words() if said is None else said
    told = _words().placed_by(plan, child, _words().explained(decoded(tail), plan, lambda text: circumstances.explain(child, text)))
    itself = not child.ended.told or bool(told and child.tells_of_ranks and told.exit_code != TOLD)  # it had said so before it was told
    circumstances = replace(circumstances, stop=None if itself else circumstances.stop)
    if seen := list(_of_ranks(plan, child, told, circumstances)):
        yield from seen
        if child.below and not child.announced:
            yield from _below(plan, child, seen[0].exit_code, {each.culprit.rank for each in seen if each.culprit}, circumstances)
        return
    failure = told or Failure(child.process.rank, child.ended.code, child.ended.signal, child.identity.pid)
    at = circumstances.wall(child.ended_at_of(failure.rank) if failure.at is None else failure.at)
    of_rank = circumstances.tail_of_rank(failure.rank) if failure.rank is not None else b""
    apart = told and plan.outputs and failure.rank in plan.outputs.keys  # what its launcher writes is no rank's own word
    by_another = child.launcher.starts_ranks and failure.pid == child.identity.pid and failure.signal in _OF_OTHERS
    own = of_rank or (_words().of_ranks(tail, plan, told, child.pids_of_ranks) if told and itself and not (apart or by_another) else b"")
    shared = child.launcher.starts_ranks and not of_rank
    unexplained = by_another or _words().tells_only_of_end(own)  # what its ranks wrote, or said it of others, is not why
    error = None if unexplained else _words().known(own if told else tail, plan, itself, shared, failure.exit_code)
    error = error or (_words().of_wrong_call(tail, plan) if told else None)
    # Out by itself when it was told, and had written why; a shell ends with 143 when its program has died of SIGTERM.
    of_signal = child.ended.signal or child.ended.code in {128 + number for number in child.ended.told}
    on_its_way = error and error.kind == blame.CAUSE and not of_signal
    victims, untold = failure.victims, not told and itself
    ranks = [*_below(plan, child, failure.exit_code, {failure.rank}, circumstances, victims, untold)] if child.role in DECIDING else []
    if not (told or error or child.ended.signal):  # it says neither which has failed nor why; one of them may say so itself
        at = max([at, *(each.at + AFTER for each in ranks if each.culprit and each.culprit.error)])
    if itself or _killed_by_another(child) or on_its_way:
        culprit = _culprit(plan, child, failure, last_lines(own if apart else own or tail), error, at)
        said = own if told and not by_another else None
        culprit, reason = _words().with_reason(culprit, plan, child, said, of_rank if told else tail, shared=shared)
        yield Suspect(culprit.node, at, "failed", culprit.exit_code if told else child.code_of_job, reason, culprit)
    yield from ranks


def _of_ranks(plan: Plan, child: Child, told: Failure | None, circumstances: Circumstances) -> Iterable[Suspect]:
    """The ranks of a launcher of which it was seen how they ended, judged like processes of our own; where it tells more of them, those of
    one that was ended before it could. told: what it has told of one."""
    seen = plan.outputs if child.announced else child.ended.told
    ranks = child.below if seen else None
    for rank in ranks.ended if ranks else ():
        tail = circumstances.tail_of_rank(rank.rank)
        error = _words().known(tail, plan, rank.failed, code=rank.code)
        exited = rank.code not in (0, TOLD) and not rank.signal  # as far as is known: its launcher may have fetched its end before us
        if rank.failed or (exited and error and error.kind == blame.CAUSE and not (circumstances.stop and child.had_taken(rank))):
            code = told.exit_code if told and told.rank == rank.rank and rank.code is None else rank.code
            yield _of_rank(plan, child, rank, code, tail, error, circumstances.wall(rank.ended_at))


def _of_rank(plan: Plan, child: Child, rank: Watched, code: int | None, tail: bytes, error: KnownError | None, at: float) -> Suspect:
    failure = Failure(rank.rank, 1 if code is None else code, rank.signal, rank.pid, name=rank.name)
    culprit = _culprit(plan, child, failure, last_lines(tail), error, at)
    reason = _words().reported(culprit, tail) if error else ""
    return Suspect(culprit.node, at, "failed", culprit.exit_code, reason, culprit)


def _below(
    plan: Plan, child: Child, code: int, seen: Collection[int | None], circumstances: Circumstances,
    victims: Iterable[tuple[int, int]] = (), untold: bool = False,
) -> Iterable[Suspect]:  # fmt: skip
    """Ranks of a launcher that it has ended, or not seen as the first, and whose own words name a cause, or that have failed by themselves
    for sure. victims: as in Failure. untold: it has ended by itself, and named nobody: then whatever a rank wrote last may be why."""
    by_files = child.below if not child.announced else None
    ended, by_themselves = (by_files.ended, by_files.failed) if by_files else ([], [])
    held = [each for each in by_themselves if each.surely and each.signal != signal.SIGTERM]  # which may have been sent before it was held
    sure = [*held, *(each for each in by_themselves if child.ends_ranks and each.signal not in (signal.SIGTERM, signal.SIGKILL))]
    failed = {each.rank: circumstances.wall(each.ended_at) for each in sure}
    by_launcher = {rank: Failure(rank, 128 + number, number) for rank, number in victims}
    well = {each.rank for each in ended if each.aborted or (circumstances.stop and child.had_taken(each))}
    for rank in apart.keys if (apart := plan.outputs or plan.kept) else ():
        end = circumstances.end_of_rank(child, rank)
        counts = rank not in seen and rank not in well and (not end or end.exit_code)
        alone = counts and rank in failed
        end = end or by_launcher.get(rank)
        if end and (end.signal == signal.SIGTERM or end.exit_code == TOLD) and not alone:
            continue  # it was told to end; of an exception that was ending it then, with_parting knows
        error = _words().known(circumstances.tail_of_rank(rank) if counts else b"", plan, by_itself=bool(alone) or untold)
        # Where another is named, an exception that no entry knows may have been caught, of a rank whose end nobody knows.
        if alone or (error and error.kind == blame.CAUSE and (end or error.meaning or not {*seen} - {None})):
            at = failed[rank] if alone else circumstances.wall(child.ended.at) + AFTER
            failure = end or Failure(rank, 1 if 128 <= code <= 192 else code)  # not the code of a signal
            culprit = _culprit(plan, child, failure, last_lines(circumstances.tail_of_rank(rank)), error, at)
            yield Suspect(culprit.node, at, "failed", culprit.exit_code, "", culprit)


def _killed_by_another(child: Child) -> bool:  # by the kernel for memory, most likely, while it was saving what it had
    return child.ended.signal == signal.SIGKILL and signal.SIGKILL not in child.ended.told and not child.dismissed


def decoded(tail: bytes) -> str:
    return tail.decode(errors="replace")


def _words() -> ModuleType:
    from ranklaunch.supervise import words  # large, and only failures need it

    return words


def _culprit(plan: Plan, child: Child, failure: Failure, lines: tuple[str, ...], error: KnownError | None, at: float) -> Culprit:
    failure = _words().of_named(failure, error, plan) if error else failure
    node = _node(plan, child, failure)
    return Culprit(
        node=node,
        rank=failure.rank,
        pid=failure.pid,
        exit_code=failure.exit_code,
        signal=name_of(failure.signal) if failure.signal else None,
        out_of_memory=False,
        last_lines=errors.quoted(lines),
        name=failure.name or child.process.name,
        host=plan.job.everyone[node].host if len(plan.job.everyone) > max(1, node) else "",
        time=blame.iso(at),
        error=error and replace(error, line=showing.printable(errors.quoted((error.line,))[0])),
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
