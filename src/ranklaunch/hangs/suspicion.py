"""Suspects of a hang: ranks that the other ranks may wait for. Rules are in one list: the first to name a rank decides.

Suspects are no culprits: nobody has failed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ranklaunch.errors import numbered

FEW = 0.1  # share of the ranks that a group has at most to stand out, or
LEAST_FEW = 2  # so many, where they are fewer than the others
MOST_SUSPECTS = 64
MOST_SHOWN = 160  # characters of a group's stack
NOBODY = "no rank stands out"
MOST_FRAMES = 20  # of a stack, the innermost
_LIBRARY = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|^<frozen|^(?:torch|threading|selectors|socket|multiprocessing)[/.]")
STOPPED, STUCK = "T", "D"
ENDED = ("", "Z")
_MODULE = "<module>"  # at the bottom of a main thread's stack, unless an exception that nobody caught has ended its program
_STATES = {
    STOPPED: "its process is stopped (state T)",
    STUCK: "its process is stuck in the kernel (state D)",
    "": "its process is gone",
    "Z": "its process has ended and nobody has asked for its status",
}


class Raised(NamedTuple):
    """Exception recorded by a rank whose process runs on. silent_s: seconds since then. sure: the program will end because of the
    exception, and has not ended yet. said: the traceback, or its end; line: its last line; both "" if left out. pid: of the process,
    None if unknown. of_thread: the exception has ended a thread of the rank, and no program."""

    rank: int
    silent_s: float
    sure: bool
    said: str
    line: str
    pid: int | None = None
    of_thread: bool = False


class Known(NamedTuple):
    """State of one rank. state: as in /proc, "" for a process that is gone, "?" for unknown. cpu: cores; full: True if the rank has wanted
    full cores all the time. stack: of the main thread, a frame a line, the innermost first; "" for none. call: source line of the
    innermost frame. file: of the stack. names: ranks without an answer, by the rank's last time-out message."""

    rank: int
    node: int
    state: str = "?"
    cpu: float | None = None
    full: bool = False
    step: int = -1
    stack: str = ""
    file: str = ""
    raised: Raised | None = None
    call: str = ""
    names: tuple[int, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def inside(self) -> str:
        """Name of the collective in which the rank waits for others, "" for none."""
        return inside(self.stack, self.call)


class Missing(NamedTuple):
    """Ranks named by a recorder, because they are not in the lowest unfinished collective. what: the reason in words. file: of
    the recorder. differs: they are in a different operation, and not only late."""

    ranks: tuple[int, ...]
    what: str
    file: str = ""
    differs: bool = False


class Suspect(NamedTuple):
    """rule: name of the rule that names the rank. raised: the exception that has ended its program for sure."""

    rank: int
    node: int
    why: str
    file: str = ""
    raised: Raised | None = None
    rule: str = ""


class Evidence(NamedTuple):
    """known: all known ranks. recorded: named by recorders of collectives; lagging: by NCCL's RAS; mute: recorders that do not answer."""

    known: Sequence[Known]
    recorded: Sequence[Missing] = ()
    lagging: Sequence[Missing] = ()
    mute: Sequence[Missing] = ()


def suspects(
    known: Sequence[Known], recorded: Sequence[Missing] = (), lagging: Sequence[Missing] = (), mute: Sequence[Missing] = ()
) -> tuple[Suspect, ...]:
    """Return the suspects by the first rule that names any; () if no rank stands out."""
    evidence = Evidence(known, recorded, lagging, mute)
    for rule in RULES:
        named = tuple(each._replace(rule=rule.__name__.replace("_", "-")) for each in rule(evidence))
        if named:
            return named[:MOST_SUSPECTS]
    return ()


def groups(known: Iterable[Known], first: Iterable[int] = ()) -> list[str]:
    """Return a text for each group of ranks with equal stacks: "rank 3: read at data.py:88". Groups with a rank of `first` come first,
    then the largest."""
    named = set(first)
    by_text: dict[str, list[int]] = {}
    for group in alike(known).values():
        by_text.setdefault(summary(group[0]), []).extend(each.rank for each in group)
    ordered = sorted((named.isdisjoint(ranks), -len(ranks), min(ranks), text) for text, ranks in by_text.items())
    return [f"{numbered(sorted(by_text[text]), 'rank')}: {text}" for *_, text in ordered]


def sentence(named: Sequence[Suspect]) -> str:
    """Return the suspects as one sentence, ranks with the same reason together."""
    if not named:
        return NOBODY
    by_reason: dict[str, list[int]] = {}
    for each in named:
        by_reason.setdefault(each.why, []).append(each.rank)
    return "; ".join(f"{numbered(ranks, 'rank')}: {why}" for why, ranks in by_reason.items())


# Rules


def uncaught_exception(of: Evidence) -> Iterable[Suspect]:
    """A rank raised an exception that nobody caught, and has not ended: a library waits for the others at its exit."""
    named = tuple(caught_exception(of))
    return named if any(each.raised for each in named) else ()


def missing_in_collective(of: Evidence) -> Iterable[Suspect]:
    """The recorders of the collectives (flight recorder) say which rank has not come, or is in another operation."""
    return _told(of.recorded, of.known)


def behind_in_collectives(of: Evidence) -> Iterable[Suspect]:
    """NCCL's RAS says which rank has launched fewer operations than the others."""
    return _told(of.lagging, of.known)


def named_by_timeouts(of: Evidence) -> Iterable[Suspect]:
    """Time-out messages of other ranks name the rank that did not answer."""
    named = [rank for each in of.known for rank in each.names if rank != each.rank]
    at = {each.rank: each for each in of.known}
    for rank in sorted({*named}) if len({*named}) < len(of.known) else ():
        node, file = (at[rank].node, at[rank].file) if rank in at else (-1, "")
        yield Suspect(rank, node, "time-out messages of other ranks name it", file)


def stopped_or_stuck(of: Evidence) -> Iterable[Suspect]:
    """The process of a rank is stopped (state T), or stuck in the kernel (state D), and not those of all ranks."""
    for state in (STOPPED, STUCK):
        yield from _in_state(of.known, state)


def exception_of_thread(of: Evidence) -> Iterable[Suspect]:
    """Other ranks have ended, and an exception has ended a thread of a rank that runs on: the rank may wait for the thread's result. The
    ended ranks come after this rank, unless the rank runs on outside collectives."""
    threads = tuple(_by_exception([each for each in of.known if not each.raised or each.raised.of_thread], len(of.known)))
    named = tuple(at_exit(of)) or tuple(gone(of))
    if threads and named:
        yield from threads
        yield from (each for each in named if each.rank not in {one.rank for one in threads})


def at_exit(of: Evidence) -> Iterable[Suspect]:
    """Most ranks have ended and one runs on; or some have, and the running ones wait in no collective: they hang at their
    exit. A rank without a stack counts as ended if another has one: its interpreter has ended, and it waits in
    MPI_Finalize."""
    running = _running(of.known)
    most_ended = 2 * len(running) < len(of.known)
    alone = all(each.stack and not each.inside for each in running)
    if len(running) < len(of.known) and (most_ended or alone):
        why = "most others have ended" if most_ended else "others have ended, and it waits in no collective"
        for each in running:
            at = f": {summary(each)}" if each.stack else ""
            yield Suspect(each.rank, each.node, f"it still runs, while {why}{at}", each.file)


def gone(of: Evidence) -> Iterable[Suspect]:
    """The process of a rank has ended, and those of others wait."""
    for state in ENDED:
        yield from _in_state(of.known, state)


def caught_exception(of: Evidence) -> Iterable[Suspect]:
    """A rank raised an exception, and its stack does not show that its program went on; or an exception ended one of its threads."""
    return _by_exception(of.known, len(of.known))


def outside_collective(of: Evidence) -> Iterable[Suspect]:
    """The stack of a rank is outside collectives, and those of other ranks are inside one."""
    yield from map(_elsewhere, _outside([each for each in of.known if each.stack], 0))


def elsewhere(of: Evidence) -> Iterable[Suspect]:
    """The stack of a rank is like those of few others: at most a tenth of the ranks, or two of at least five."""
    stacks = [each for each in of.known if each.stack]
    for group in alike(stacks).values():
        yield from map(_elsewhere, group if _are_few(len(group), len(stacks)) else ())


def unlike_in_cpu(of: Evidence) -> Iterable[Suspect]:
    """A rank uses a full core while the others wait, or waits while the others use a full core each: libraries spin while they wait."""
    measured = [each for each in of.known if each.cpu is not None]
    busy = [each for each in measured if each.full or (each.cpu or 0) >= 0.5]
    idle = [each for each in measured if each not in busy]
    for group, why in ((busy, "it uses a full core while the others wait"), (idle, "it waits while the others use a full core each")):
        if _are_few(len(group), len(measured)):
            yield from (Suspect(each.rank, each.node, why, each.file) for each in group)


def behind_in_steps(of: Evidence) -> Iterable[Suspect]:
    """The last step that a rank printed is before the last step of the others, and these are at least half of the ranks."""
    stepped = [each for each in of.known if each.step >= 0]
    last = max((each.step for each in stepped), default=0)
    behind = [each for each in stepped if each.step < last]
    if 2 * len(behind) <= len(stepped):
        yield from (Suspect(each.rank, each.node, f"its last step is {each.step}, that of others {last}", each.file) for each in behind)


def recorder_without_answer(of: Evidence) -> Iterable[Suspect]:
    """The flight recorder of a rank gives no dump, unlike the other ranks' recorders: a loop may let no other thread of the rank run."""
    return _told(of.mute, of.known)


Rule = Callable[[Evidence], Iterable[Suspect]]
RULES: tuple[Rule, ...] = (
    uncaught_exception, missing_in_collective, behind_in_collectives, named_by_timeouts, stopped_or_stuck, exception_of_thread, at_exit,
    gone, caught_exception, outside_collective, elsewhere, unlike_in_cpu, behind_in_steps, recorder_without_answer,
)  # fmt: skip


# Parts of rules


def _running(known: Sequence[Known]) -> list[Known]:
    """Return the ranks that run. Ranks without a stack do not, if at most half of all have one and these are outside
    collectives: the others wait in MPI_Finalize."""
    running = [each for each in known if not each.ended]
    with_stack = [each for each in running if each.stack]
    in_finalize = with_stack and 2 * len(with_stack) <= len(known) and not any(each.inside for each in with_stack)
    return with_stack if in_finalize else running


def _by_exception(known: Sequence[Known], of: int) -> Iterable[Suspect]:
    """Yield ranks with an exception, the oldest first, unless all ranks have one. A rank whose stack shows its program has caught
    the exception, unless the exception ended a thread."""
    yield from _named_for([(each, each.raised) for each in known if each.raised and _has_ended_its_program(each)], of)


def _has_ended_its_program(known: Known) -> bool:
    """Return False if the stack still shows the program's module: the program caught the exception."""
    return bool(known.raised and known.raised.of_thread) or _MODULE not in known.stack


def _named_for(raisers: Sequence[tuple[Known, Raised]], of: int) -> Iterable[Suspect]:
    """Yield the ranks of `found` as suspects, unless all `of` ranks are among them: then none stands out."""
    if len(raisers) == of:
        return
    for each, raised in sorted(raisers, key=_order):
        what = "an exception has ended a thread of it" if raised.of_thread else "it raised an exception"
        why = f"{what}{' that nobody caught' if raised.sure else ''}{raised.line and f': {raised.line}'}"
        yield Suspect(each.rank, each.node, why, each.file, raised if raised.sure else None)


def _order(raiser: tuple[Known, Raised]) -> tuple[bool, float]:
    """Return the place of a rank among suspects: sure exceptions first, then the earliest."""
    return not raiser[1].sure, -raiser[1].silent_s


def _told(missing: Iterable[Missing], known: Iterable[Known]) -> Iterable[Suspect]:
    at = {each.rank: each for each in known}
    for each in missing:
        yield from (Suspect(rank, at[rank].node if rank in at else -1, each.what, each.file) for rank in each.ranks)


def _in_state(known: Sequence[Known], state: str) -> Iterable[Suspect]:
    matching = [each for each in known if each.state == state]
    if 0 < len(matching) < len(known):
        yield from (Suspect(each.rank, each.node, _STATES[state], each.file) for each in matching)


def outside(known: Iterable[Known], waited: int) -> tuple[Suspect, ...]:
    """Return the ranks whose stacks are outside collectives. waited: number of further ranks known to wait in a collective."""
    named = map(_elsewhere, _outside([each for each in known if each.stack], waited))
    return tuple(each._replace(rule="outside-collective") for each in named)


def _outside(stacks: Sequence[Known], waited: int) -> list[Known]:
    matching = [each for each in stacks if not each.inside]
    return matching if _are_few(len(matching), len(stacks) + waited, by_kind=True) else []


def _elsewhere(known: Known) -> Suspect:
    return Suspect(known.rank, known.node, f"it is elsewhere than the others: {summary(known)}", known.file)


def _are_few(count: int, of: int, *, by_kind: bool = False) -> bool:
    """True for a group that is small enough to stand out. by_kind: the difference itself is telling, so any part of all will do."""
    return 0 < count < of and (by_kind or (2 * count < of and (count <= FEW * of or count <= LEAST_FEW)))


def alike(known: Iterable[Known]) -> dict[str, list[Known]]:
    """Return groups of ranks at the same place. Lines count in the innermost frame of the program alone: a root and its peers may wait in
    one function that they called from different lines. Ranks without a stack are left out."""
    result: dict[str, list[Known]] = {}
    for each in known:
        if each.stack:
            result.setdefault(_place(each), []).append(each)
    return result


def _place(known: Known) -> str:
    """Return what ranks at the same place have in common: functions, the line of the program that is innermost, and the collective."""
    lines = [line.strip() for line in known.stack.splitlines()[:MOST_FRAMES]]
    own = next((i for i, line in enumerate(lines) if not _LIBRARY.search(line)), -1)
    shown = (re.sub(r"0x[0-9a-fA-F]+" if i == own else r"0x[0-9a-fA-F]+|\d+", "0", line) for i, line in enumerate(lines))
    return "\n".join((*shown, known.inside))


def summary(known: Known) -> str:
    """Return the collective, or the function that the user's code has called, with the place in that code: all_reduce at train.py:88"""
    stack = frames(known.stack)
    own = next((i for i, frame in enumerate(stack) if not _LIBRARY.search(frame.file)), 0 if stack else -1)
    if own < 0:
        return next((line.strip() for line in known.stack.splitlines() if line.strip()), "")[:MOST_SHOWN]
    name = known.inside or stack[max(0, own - 1)].function
    return f"{name} at {stack[own].file.rpartition('/')[2]}:{stack[own].line}"[:MOST_SHOWN]


# Stacks that wait for other ranks: in collectives, messages between ranks, rendezvous, and in waiting for a device that runs them.
#
# A stack waits by the function and the file of one of its frames, as libraries have them, or by the source line of its innermost frame:
# calls of C, such as mpi4py's Allreduce, have no frame of their own. Names that any program uses (wait, join, recv) prove nothing: a data
# loader and a lock have them as well.

# As py-spy writes a frame, and as faulthandler does.
_FRAME = re.compile(r'(?P<name>\S+) \((?P<file>[^()]+):(?P<line>\d+)\)|File "(?P<filed>[^"]+)", line (?P<lined>\d+) in (?P<named>.+)')
_COLLECTIVE = (
    r"(?:grouped_|hierarchical_|coalesced_|neighbor_|i)?"
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_(?:object|tensor|data|parameters|optimizer)\w*|barrier)\w*"
    r"|monitored_barrier|wait_for_everyone|batch_isend_irecv|ring_exchange|init_process_group|initialize_distributed|init_parallel_env"
)
_FUNCTION = re.compile(rf"(?i)_*(?:{_COLLECTIVE}|broadcast|synchronize)")
_BACKWARD = "backward"
# (file, functions of it that wait, or None for all of them, name to show or "" for the function's own)
_PLACES: tuple[tuple[re.Pattern[str], re.Pattern[str] | None, str], ...] = tuple(
    (re.compile(file), re.compile(function) if function else None, shown)
    for file, function, shown in (
        (r"torch/distributed/(?:distributed_c10d|rendezvous|_functional_collectives|nn/functional)\.py$", "", ""),
        (r"torch/distributed/(?:fsdp|_composable|tensor|pipelining|checkpoint)/", "", ""),
        (r"torch/nn/parallel/distributed\.py$", r"_?(?:sync|forward|_pre_forward|prepare|reduce)", ""),
        (r"torch/autograd/graph\.py$", r"_engine_run_backward", _BACKWARD),  # with DDP's hooks, which wait for the others
        (r"torch/(?:cuda|accelerator)/(?:__init__|streams)\.py$", r"synchronize|wait", ""),
        (r"torch_npu/npu/(?:__init__|streams|utils)\.py$", r"synchronize|wait", ""),
        (r"deepspeed/comm/", "", ""),
        (r"deepspeed/runtime/pipe/p2p\.py$", "", ""),
        (r"megatron/core/(?:pipeline_parallel/p2p_communication|tensor_parallel/mappings)\.py$", "", ""),
        (r"horovod/", r"synchronize|poll|.*(?:all|broadcast|barrier|join)", ""),
        (r"mindspore/(?:communication|ops/communication|mint/distributed)", "", ""),
        (r"mindspore/common/(?:api|hook_handle)\.py$", r"_?_?(?:exec|run|call)", ""),  # a graph on a device, with its collectives
        (r"paddle/distributed/", r".*(?:all_|broadcast|barrier|send|recv|wait)", ""),
        (r"tensorflow/python/(?:distribute|ops/collective_ops)", "", ""),
        (r"jax/(?:_src/distributed|experimental/multihost_utils)\.py$", "", ""),
    )
)
_CALL = re.compile(
    rf"(?i)\b(?P<name>(?:{_COLLECTIVE}|bcast|broadcast|synchronize|block_until_ready))\s*\("
    r"|\b(?:comm|comm_\w{1,20}|COMM_WORLD|dist|distributed|hvd|mpi|process_group|pg|group)\.(?P<of>[a-z_]\w{1,40})\s*\("
    r"|\b(?:work|handle|request|req|reqs|future)\w{0,20}\.(?P<wait>wait(?:all)?)\s*\("
    r"|\.(?P<device>item|backward)\s*\(\s*\)"
)


class Frame(NamedTuple):
    function: str
    file: str
    line: str


def frames(stack: str) -> list[Frame]:
    """Return the frames of a stack, the innermost first. stack: a frame a line."""
    matched = [match for line in stack.splitlines()[:MOST_FRAMES] if (match := _FRAME.search(line))]
    return [Frame(each["name"] or each["named"], each["file"] or each["filed"], each["line"] or each["lined"]) for each in matched]


def inside(stack: str, call: str = "") -> str:
    """Return the name of the collective that a stack waits in, the outermost of several, or "" for none.

    call: source line at which the innermost frame stands, "" where unknown.
    """
    names = [name for frame in frames(stack) if (name := _name(frame))]
    if names:
        return names[-1]
    match = _CALL.search(call)
    return match[match.lastgroup or 0] if match else ""


def _name(frame: Frame) -> str:
    if _FUNCTION.fullmatch(frame.function):
        return frame.function
    for file, function, shown in _PLACES:
        if file.search(frame.file) and (not function or function.match(frame.function)):
            return shown or frame.function
    return ""
