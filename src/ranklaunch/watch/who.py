"""Who holds a job up, by the best of what is known: an exception that nobody caught, what collectives have recorded, what the kernel says
of each rank, an exception that may have been caught, then what sets one apart from the others. These are suspects: nobody has failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ranklaunch.errors import numbered
from ranklaunch.typed import NamedTuple

FEW = 0.1  # share of the ranks that a group has at most to stand out, or
LEAST_FEW = 2  # so many, where they are fewer than the others
MOST_FRAMES = 20  # of a stack, the innermost
MOST_SUSPECTS = 64
MOST_SHOWN = 160  # characters of a group's stack
NOBODY = "no rank stands out"
_WAITS = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_scatter|all_?to_?all|broadcast|barrier|\brecv|\bsend\b|_wait\b|\bwait\b|synchronize|"
    r"rendezvous|\bjoin\b|hccl|nccl|gloo|mpi_"
)
# As py-spy writes a frame, and as faulthandler does.
_FRAME = re.compile(r'(?P<name>\S+) \((?P<file>[^()]+):(?P<line>\d+)\)|File "(?P<filed>[^"]+)", line (?P<lined>\d+) in (?P<named>.+)')
_LIBRARY = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|^<frozen|^(?:torch|threading|selectors|socket|multiprocessing)[/.]")
STOPPED, STUCK = "T", "D"
ENDED = ("", "Z")
_MODULE = "<module>"  # at the bottom of a main thread's stack, unless an exception that nobody caught has ended its program
RUNS_ON = "it runs on, and most others have ended"
RUNS_ALONE = "it runs on outside communication, and others have ended"
_STATES = {
    STOPPED: "its process is stopped (state T)",
    STUCK: "its process is stuck in the kernel (state D)",
    "": "its process is gone",
    "Z": "its process has ended and nobody has asked for its status",
}


class Raised(NamedTuple):
    """An exception that a rank recorded, and that has not ended its process. silent_s: since then. sure: it ends the program, which has not
    ended yet. said: its traceback, or the end of that; line: which names it; both "" where they are not told. pid: of its process,
    where its node knows that. of_thread: it has ended a thread of the rank, and no program."""

    rank: int
    silent_s: float
    sure: bool
    said: str
    line: str
    pid: int | None = None
    of_thread: bool = False


class Known(NamedTuple):
    """Of one rank. state: as in /proc, "" where it is gone, "?" where that is unknown. cpu: cores; full: it has wanted full ones all the
    time. stack: of its main thread, a frame a line, the innermost first; "" where there is none. file: where that is."""

    rank: int
    node: int
    state: str = "?"
    cpu: float | None = None
    full: bool = False
    step: int = -1
    stack: str = ""
    file: str = ""
    raised: Raised | None = None


class Missing(NamedTuple):
    """What a recorder says: ranks that are not in the lowest collective that has not ended, or in another one. what: that in words."""

    ranks: tuple[int, ...]
    what: str
    file: str = ""


class Suspect(NamedTuple):
    """raised: the exception that has ended its program for sure."""

    rank: int
    node: int
    why: str
    file: str = ""
    raised: Raised | None = None


def suspects(
    known: Sequence[Known], recorded: Iterable[Missing] = (), lagging: Iterable[Missing] = (), mute: Iterable[Missing] = ()
) -> tuple[Suspect, ...]:
    """Return the suspects by the first kind of evidence that sets a small group of ranks apart; () for none.

    Kinds, the most trusted first: uncaught exceptions, recorders of collectives, NCCL's RAS, process states, other exceptions, stacks, CPU
    time, steps, recorders without an answer. Ranks with a thread that an exception ended go before a rank that has ended.
    """
    at = {each.rank: each for each in known}
    found = _by_uncaught(known) or (*_told(recorded, at),) or (*_told(lagging, at),)
    kinds: tuple[Callable[[Sequence[Known]], Iterable[Suspect]], ...] = (_by_state, _by_exception, _by_stack, _by_cpu, _by_step)
    for kind in kinds:
        found = found or tuple(kind(known))
    if any(each.why == RUNS_ALONE or at[each.rank].state in ENDED for each in found if each.rank in at):  # which may have done all
        of_threads = tuple(_by_exception_of_thread(known))
        found = (*of_threads, *(each for each in found if each.rank not in {one.rank for one in of_threads}))
    return (found or tuple(_told(mute, at)))[:MOST_SUSPECTS]


def groups(known: Iterable[Known]) -> list[str]:
    """Ranks with equal stacks, the largest group first: "ranks 0-2,4-63: all_reduce at train.py:88"."""
    found = sorted(alike(known).values(), key=lambda group: (-len(group), group[0].rank))
    return [f"{numbered((each.rank for each in group), 'rank')}: {_summary(group[0].stack)}" for group in found]


def sentence(found: Sequence[Suspect]) -> str:
    """Return the suspects as one sentence, ranks with the same reason together."""
    if not found:
        return NOBODY
    by_reason: dict[str, list[int]] = {}
    for each in found:
        by_reason.setdefault(each.why, []).append(each.rank)
    return "; ".join(f"{numbered(ranks, 'rank')}: {why}" for why, ranks in by_reason.items())


def _by_uncaught(known: Sequence[Known]) -> tuple[Suspect, ...]:
    """Return ranks with an exception, if one of these exceptions surely ends its program; else ()."""
    found = tuple(_by_exception(known))
    return found if any(each.raised for each in found) else ()


def _by_exception(known: Sequence[Known]) -> Iterable[Suspect]:
    """Yield ranks with an exception, the oldest first, unless all ranks have one. A rank whose stack shows its program has caught
    the exception, unless the exception ended a thread."""
    yield from _named_for([(each, each.raised) for each in known if each.raised and _has_ended_its_program(each)], len(known))


def _has_ended_its_program(known: Known) -> bool:
    """Return False if the stack still shows the program's module: the program caught the exception."""
    return bool(known.raised and known.raised.of_thread) or _MODULE not in known.stack


def _named_for(found: Sequence[tuple[Known, Raised]], of: int) -> Iterable[Suspect]:
    """Yield the ranks of `found` as suspects, unless all `of` ranks are among them: then none stands out."""
    if len(found) == of:
        return
    for each, raised in sorted(found, key=lambda one: (not one[1].sure, -one[1].silent_s)):
        what = "an exception has ended a thread of it" if raised.of_thread else "it raised an exception"
        why = f"{what}{' that nobody caught' if raised.sure else ''}{raised.line and f': {raised.line}'}"
        yield Suspect(each.rank, each.node, why, each.file, raised if raised.sure else None)


def _by_exception_of_thread(known: Sequence[Known]) -> Iterable[Suspect]:
    return _by_exception([each for each in known if not each.raised or each.raised.of_thread])


def _told(missing: Iterable[Missing], at: Mapping[int, Known]) -> Iterable[Suspect]:
    for each in missing:
        yield from (Suspect(rank, at[rank].node if rank in at else -1, each.what, each.file) for rank in each.ranks)


def _by_state(known: Sequence[Known]) -> Iterable[Suspect]:
    """Yield ranks in a state that not all share. If most ranks have ended, or the running ones wait for no peer, the running ones are the
    suspects."""
    running = [each for each in known if each.state not in ENDED]
    most_ended = 2 * len(running) < len(known)
    alone = 0 < len(running) < len(known) and all(each.stack and not _WAITS.search(_frames(each.stack)) for each in running)
    for state in (STOPPED, STUCK, *(() if most_ended or alone else ENDED)):
        found = [each for each in known if each.state == state]
        if 0 < len(found) < len(known):
            yield from (Suspect(each.rank, each.node, _STATES[state], each.file) for each in found)
    if most_ended or alone:
        why = RUNS_ON if most_ended else RUNS_ALONE
        yield from (Suspect(each.rank, each.node, why, each.file) for each in running if each.state not in (STOPPED, STUCK))


def _by_stack(known: Sequence[Known]) -> Iterable[Suspect]:
    """Yield ranks outside communication if their peers are inside; else ranks with a rare stack."""
    stacks = [each for each in known if each.stack]
    odd = _outside(stacks, 0)
    for group in () if odd else alike(stacks).values():
        odd += group if _are_few(len(group), len(stacks)) else []
    yield from map(_elsewhere, odd)


def outside(known: Iterable[Known], waited: int) -> tuple[Suspect, ...]:
    """Return the ranks whose stacks are outside communication. waited: number of further ranks known to wait in communication."""
    return tuple(map(_elsewhere, _outside([each for each in known if each.stack], waited)))


def _outside(stacks: Sequence[Known], waited: int) -> list[Known]:
    found = [each for each in stacks if not _WAITS.search(_frames(each.stack))]
    return found if _are_few(len(found), len(stacks) + waited, by_kind=True) else []


def _elsewhere(known: Known) -> Suspect:
    return Suspect(known.rank, known.node, f"it is elsewhere than the others: {_summary(known.stack)}", known.file)


def _by_cpu(known: Sequence[Known]) -> Iterable[Suspect]:
    """Yield ranks that compute while the others wait, or wait while the others spin."""
    measured = [each for each in known if each.cpu is not None]
    busy = [each for each in measured if each.full or (each.cpu or 0) >= 0.5]
    idle = [each for each in measured if each not in busy]
    for group, why in ((busy, "it uses a full core while the others wait"), (idle, "it waits while the others use a full core each")):
        if _are_few(len(group), len(measured)):
            yield from (Suspect(each.rank, each.node, why, each.file) for each in group)


def _by_step(known: Sequence[Known]) -> Iterable[Suspect]:
    """Yield ranks behind the last step that any rank has reported."""
    stepped = [each for each in known if each.step >= 0]
    last = max((each.step for each in stepped), default=0)
    behind = [each for each in stepped if each.step < last]
    if _are_few(len(behind), len(stepped)):
        yield from (Suspect(each.rank, each.node, f"its last step is {each.step}, that of others {last}", each.file) for each in behind)


def _are_few(count: int, of: int, *, by_kind: bool = False) -> bool:
    """True for a group that is small enough to stand out. by_kind: the difference itself is telling, so any part of all will do."""
    return 0 < count < of and (by_kind or (2 * count < of and (count <= FEW * of or count <= LEAST_FEW)))


def alike(known: Iterable[Known]) -> dict[str, list[Known]]:
    found: dict[str, list[Known]] = {}
    for each in known:
        if each.stack:
            found.setdefault(re.sub(r"0x[0-9a-fA-F]+|\d+", "0", _frames(each.stack)), []).append(each)
    return found


def _frames(stack: str) -> str:
    return "\n".join(line.strip() for line in stack.splitlines()[:MOST_FRAMES])


def _summary(stack: str) -> str:
    """What the user's code was in: the call that its innermost frame has made, and where; the innermost frame of all where none is its."""
    frames = [found for line in stack.splitlines()[:MOST_FRAMES] if (found := _FRAME.search(line))]
    own = next((i for i, frame in enumerate(frames) if not _LIBRARY.search(_file(frame))), 0 if frames else -1)
    if own < 0:
        return next((line.strip() for line in stack.splitlines() if line.strip()), "")[:MOST_SHOWN]
    called = frames[max(0, own - 1)]
    return f"{called['name'] or called['named']} at {_file(frames[own]).rpartition('/')[2]}:{frames[own]['line'] or frames[own]['lined']}"


def _file(frame: re.Match[str]) -> str:
    return frame["file"] or frame["filed"] or ""
