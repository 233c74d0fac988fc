"""Ranks that failed while they were being stopped. What decided came before, so they are victims; but they did not do what a rank does
then, such as saving."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ranklaunch import showing
from ranklaunch.catalogue import parts, uncaught
from ranklaunch.catalogue.survival import shows_steps
from ranklaunch.evidence.stacks import FATAL
from ranklaunch.plan.model import Plan
from ranklaunch.supervise import words
from ranklaunch.supervise.ranks.child import RANK, Child
from ranklaunch.system import tree
from ranklaunch.verdict import blame, endings, folders
from ranklaunch.verdict.blame import Suspect

_MOST = 4  # ranks that had said something before
_OF_A_STOP = (signal.SIGTERM, signal.SIGABRT)
SIGNALS = range(128, 128 + 65)  # codes that say of which signal it was that something ended


def notes(
    plan: Plan,
    ended: Iterable[Child],
    suspects: Sequence[Suspect],
    tail_of: Callable[[int | None], bytes],
    caught: Callable[[tree.Identity], bool],
    *,
    from_elsewhere: bool = False,
    asked: bool = False,
) -> list[str]:
    """A sentence for each, and one for those that are too many. suspects: those of this node; where it has decided, enough is said of the
    first. caught: whether a process had a way to hear the signal: another one that ends with a code of its own had done so before it came.
    from_elsewhere: another node has decided, of what, whoever judges knows. asked: the job was asked to stop, and has not failed."""
    job = plan.job
    first = [] if from_elsewhere else blame.ordered(list(suspects))[:1]
    said = {suspect.culprit.rank for suspect in first if suspect.culprit and suspect.culprit.node == job.node_index}
    place = functools.partial(_place, plan)
    found = sorted(
        {(rank, code, log) for child in ended for rank, code, log in _failed(plan, child, tail_of, caught, asked) if rank not in said}
    )
    failed = [blame.failed_while_stopped(rank, place(rank), code, log) for rank, code, log in found]
    known = {*said, *(rank for rank, _, _ in found)}
    if asked or from_elsewhere or (first and first[0].is_consequence):
        untold = [each for child in ended for each in _not_ended(child, plan, tail_of) if each[0] not in known]
        before = [*islice(_said_before(plan, untold, asked), _MOST)]
        failed += [endings.still_there(rank, place(rank), what=what) for rank, what in before]
        quiet = [] if not first or asked or before or _timed_out(first[0]) else [*islice(_quiet(plan, untold), 2)]
        if len(quiet) == 1:  # of several, each may be any
            rank, line = quiet[0]
            failed.append(endings.still_there(rank, place(rank), line=line))
    return blame.few(failed)


def _place(plan: Plan, rank: int) -> str:
    """The node of a rank, which of mpirun's may be another one."""
    job = plan.job
    node = next((node for node in job.nodes if rank in node.ranks), job.node)
    return f" on {blame.place(node.index, node.host)}" if len(job.everyone) > 1 else ""


def _not_ended(child: Child, plan: Plan, tail_of: Callable[[int | None], bytes]) -> Iterator[tuple[int, bytes]]:
    """Ranks that had not when they were told to, with what they wrote last."""
    if child.role == RANK and child.ended.told and child.process.rank is not None:
        yield child.process.rank, child.said or b""
    seen = child.below
    ended = {each.rank: each for each in seen.ended} if seen else {}
    of_launcher = [*plan.outputs.keys] if plan.outputs and child.ended.told else [*ended]
    for rank in of_launcher:
        end, tail = ended.get(rank), b"" if rank is None else tail_of(rank)
        if rank is not None and not (end and end.by_itself):
            yield rank, (tail.rpartition(FATAL.encode())[0] or tail) if end and end.aborted else tail


def _said_before(plan: Plan, untold: Iterable[tuple[int, bytes]], asked: bool) -> Iterator[tuple[int, str]]:
    """Those that had said something of a failure by then, of which others may have lost them: an exit hook may take its time, and a rank
    may wait for a thread of its own that has failed, whatever it did after that. asked: the exception alone with which the output ends, as
    of a rank that waits for its peers then."""
    for rank, tail in untold:
        error = words.known(tail, plan) if not asked or _ends_by_exception(tail, rank) else None
        what = "it had said"
        if not error and not asked:
            who, said = parts.last_part(tail.decode(errors="replace"))
            error, what = words.known(said.encode(), plan) if said else None, f"{who} had failed"
        if error and error.kind == blame.CAUSE:
            yield rank, f"{what}: {showing.printable(error.line)[: blame.SEEN]}"


def _quiet(plan: Plan, untold: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Those that told of no error, nor of a lost peer, and wrote no step last: one may have been ending well, without the others."""
    for rank, tail in untold:
        line = showing.last_line(tail.decode(errors="replace").splitlines()).strip()
        if line and not shows_steps(line) and not words.known(tail, plan):
            yield rank, showing.printable(line)[: blame.SEEN]


def _timed_out(suspect: Suspect) -> bool:
    """Which is the end of a wait for those that are not there yet, and others look into."""
    error = suspect.culprit.error if suspect.culprit else None
    return bool(error and blame.TIMEOUT in error.name)


def _ends_by_exception(tail: bytes, rank: int) -> bool:
    said = uncaught.ends_by_exception(tail.decode(errors="replace"), rank)[1]
    return bool(said) and uncaught.begins_as_program(uncaught.bare_lines(said))


def _failed(
    plan: Plan, child: Child, tail_of: Callable[[int | None], bytes], caught: Callable[[tree.Identity], bool], asked: bool
) -> Iterator[tuple[int, int, str]]:
    """Rank, code and the name of its log: of a rank, and of those of a launcher that were seen to end."""
    rank, end = child.process.rank, child.ended
    if rank is not None and child.role == RANK and end.told:
        code = _own_code(plan, rank, end.code, end.signal, child.last_words(), asked)
        if code and (caught(child.identity) or end.signal):
            yield rank, code, os.path.basename(child.process.log)
    seen = child.below
    for each in seen.ended if seen else ():
        if each.rank is not None and not each.by_itself:
            code = _own_code(plan, each.rank, each.code or 0, each.signal, tail_of(each.rank), asked)
            yield from [(each.rank, code, os.path.basename(folders.rank_log("", each.rank)))] if code else []


def _own_code(plan: Plan, rank: int, code: int, number: int, tail: bytes, asked: bool) -> int:
    """That of an error that is not another rank's; 0 where there is none. Where the signal of a stop has found it on its way out after an
    exception that nobody caught, as of its save, that is Python's; after a failure elsewhere it may have been what it failed of before."""
    if asked and (number in _OF_A_STOP or code in map(_as_code, _OF_A_STOP)):
        code, number = int(uncaught.ends_by_exception(tail.decode(errors="replace"), rank)[0] == uncaught.CERTAIN), 0
    if not code or number or code in SIGNALS:
        return 0
    error = words.known(tail, plan)
    return code if not error or error.kind == blame.CAUSE else 0


def _as_code(number: int) -> int:
    return 128 + number
