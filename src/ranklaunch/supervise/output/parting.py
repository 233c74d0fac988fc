"""Ranks that an exception was ending when another rank was seen to end, or when they were told to. They had failed when they said so; what
they then take down, which takes PyTorch some tenths of a second, is what other ranks notice, who may be gone sooner."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from ranklaunch.catalogue.tracebacks import BEGINS, IGNORED, at_fault
from ranklaunch.catalogue.uncaught import CERTAIN, LIKELY, ends_by_exception, plain
from ranklaunch.plan.model import Plan
from ranklaunch.supervise import words
from ranklaunch.supervise.output.pipe import last_lines
from ranklaunch.supervise.ranks.child import Child
from ranklaunch.system.signals import STOPPING
from ranklaunch.typed import TYPE_CHECKING
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit, Failure

if TYPE_CHECKING:
    from ranklaunch.supervise.judge import Circumstances, Ending
    from ranklaunch.supervise.ranks.below import Watched

WAY_OUT_S = {CERTAIN: 5.0, LIKELY: 2.0}  # that peers may take to notice
GRAIN_S = 0.05  # of the times that files have


def with_parting(
    found: Sequence[Suspect],
    ended: Sequence[Child],
    plan: Plan,
    ending: Ending,
    circumstances: Circumstances,
    culprit: Callable[..., Culprit],
) -> list[Suspect]:
    """found: what is suspect on this node. culprit: as judge makes one, of a process, a failure, lines, an error and a time."""
    wall = circumstances.wall
    result = list(found)
    # Of a launcher's ranks the one that it names, where the failure was here.
    named = None if ending.from_elsewhere else next(iter(blame.ordered(found)), None)
    wrote = [(*each, *ends_by_exception(each[1].decode(errors="replace"), each[0])) for each in circumstances.wrote()]
    first, of_rank = min([(ending.at, _rank_of(ending)), *_failed(ended)], key=lambda end: end[0])
    # Where the first to end has raised one itself, that is what the others may have noticed: at its exit a rank may wait for long.
    said_at = next((at for rank, _, at, how, _ in wrote if rank == of_rank and how == CERTAIN), first)
    for rank, tail, at, how, said in wrote:
        child = _started(rank, ended) if how and first - at >= -GRAIN_S and min(first, said_at) - at < WAY_OUT_S[how] else None
        last = _last_of(rank, child, circumstances.tail_of_rank) if child else b""
        if not child or _raised(last) > _raised(tail) or _was_at_work(last):
            continue  # what has ended it came later
        error = words.known(said.encode(errors="replace"), plan, by_itself=False)  # what it had caught before is another matter
        why = error and (error.kind == blame.CAUSE or error.name in blame.OF_ITS_OWN)
        if not error or not (why or blame.TIMEOUT in error.name):  # who waited in vain ended before others lost it
            continue
        known = [each for each in result if each.culprit and each.culprit.rank == rank]  # which with mpirun may be another node's
        by_itself, end = _end_of(rank, child)
        if known:
            result = [each for each in result if each not in known]
            told_by_launcher = named if child.process.rank != rank else None
            result += [_at(each, min(each.at, wall(at)), how, by_itself or each is told_by_launcher) for each in known]
        elif end != 0:
            failure = Failure(rank, 1, 0, child.identity.pid if child.process.rank == rank else None)
            told = culprit(plan, child, failure, last_lines(tail), error, wall(at))
            result.append(Suspect(told.node, wall(at), "failed", 1, "", told, late=how == LIKELY))
    return blame.ordered(result)


def _rank_of(ending: Ending) -> int | None:
    return ending.rank.rank if ending.rank else ending.child.process.rank if ending.child else None


def _failed(ended: Sequence[Child]) -> list[tuple[float, int | None]]:
    """When ranks of launchers have, and which, or when their launcher began to tell of one."""
    told = [(child.reported_at, None) for child in ended if child.reported_at is not None]
    return [*told, *((each.ended_at, each.rank) for child in ended for each in _ends(child) if each.code != 0)]


def _started(rank: int, ended: Sequence[Child]) -> Child | None:
    """What was started as this rank, or for it."""
    own = [child for child in ended if child.process.rank == rank]
    return next(iter(own or [child for child in ended if child.launcher.starts_ranks]), None)


def _last_of(rank: int, child: Child, tail_of: Callable[[int | None], bytes]) -> bytes:
    if child.process.rank == rank:
        return child.last_words()
    return tail_of(rank)


def _raised(tail: bytes) -> int:
    """How many exceptions it tells of that Python did not ignore."""
    lines = plain(tail.decode(errors="replace")).splitlines()
    return sum(line.endswith(BEGINS) and not lines[number - 1].startswith(IGNORED) for number, line in enumerate(lines))


def _was_at_work(tail: bytes) -> bool:
    """Whether it was ended while its program ran on, as SIGABRT has made Python say."""
    return at_fault(plain(tail.decode(errors="replace")).splitlines()) >= 0


def _end_of(rank: int, child: Child) -> tuple[bool, int | None]:
    """Whether it has ended by itself, or of what came from outside, and not of what came of another rank's end, such as a signal; and its
    exit code, None where nobody knows. A launcher tells the others when one has ended."""
    if child.process.rank == rank:
        return not (child.ended.told or child.ended.signal in (*STOPPING, signal.SIGABRT)), child.ended.code
    ends = _ends(child)
    own = next((each for each in ends if each.rank == rank), None)
    if not own:
        return False, None
    fetched = own.by_itself and own.code is None  # by the launcher, which may have told its code
    return own is ends[0] and own.signal != signal.SIGTERM and (own.failed or fetched), own.code


def _ends(child: Child) -> list[Watched]:
    """Of ranks below a launcher, in their order."""
    ranks = child.below
    return ranks.ended if ranks else []


def _at(suspect: Suspect, at: float, how: str, sure: bool) -> Suspect:
    """sure: it is known to have failed. Who died of being told to end has the code with which Python was about to end it."""
    assert suspect.culprit
    culprit = replace(suspect.culprit, time=blame.iso(at))
    if not sure or culprit.signal in ("SIGTERM", "SIGABRT"):
        suspect, culprit = replace(suspect, exit_code=1), replace(culprit, exit_code=1, signal=None)
    return replace(suspect, at=at, culprit=culprit, late=how == LIKELY and not sure)
