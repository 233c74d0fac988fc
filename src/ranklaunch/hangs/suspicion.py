"""Suspects of a hang: ranks that the other ranks may wait for. RULES is a list: the first rule that names a rank decides.

Suspects are no culprits: no process has failed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ranklaunch.errors import numbered

FEW = 0.1  # a group stands out with at most this share of the ranks,
LEAST_FEW = 2  # or with at most so many ranks, if these are less than half
MOST_SUSPECTS = 64
MOST_SHOWN = 160  # characters of a group's stack
NOBODY = "no rank stands out"
MOST_FRAMES = 20  # of a stack, the innermost
_LIBRARY = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|^<frozen|^(?:torch|threading|selectors|socket|multiprocessing)[/.]")
STOPPED, STUCK = "T", "D"
ENDED = ("", "Z")
_MODULE = "<module>"  # outermost frame of a main thread's stack, unless an uncaught exception has ended the program
_STATES = {
    STOPPED: "its process is stopped (state T)",
    STUCK: "its process is stuck in the kernel (state D)",
    "": "its process is gone",
    "Z": "its process has ended, and its parent has not reaped it",
}


class Raised(NamedTuple):
    """Exception recorded by a rank whose process still runs.

    | field | meaning |
    | --- | --- |
    | silent_s | seconds since the exception |
    | sure | True if the exception will end the program |
    | traceback, line | traceback or its end, and its last line; "" if left out |
    | pid | of the process, None if unknown |
    | of_thread | True if the exception has ended a thread of the rank, but not the program |
    """

    rank: int
    silent_s: float
    sure: bool
    traceback: str
    line: str
    pid: int | None = None
    of_thread: bool = False


class Known(NamedTuple):
    """State of one rank.

    | field | meaning |
    | --- | --- |
    | state | as in /proc; "" for a process that is gone, "?" for unknown |
    | cpu, full | cores in use; True if it has used, or waited for, full cores all the time |
    | step | last step in its output, -1 for none |
    | stack | of the main thread, one frame a line, the innermost first; "" for none |
    | file | file with the stack |
    | call | source line of the innermost frame |
    | names | ranks that do not answer, by its last time-out message |
    """

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
    """Ranks that a recorder names because they are not in the lowest unfinished collective. what: the reason in words. file: of the
    recorder. differs: True if they are in another operation, False if they are only late."""

    ranks: tuple[int, ...]
    what: str
    file: str = ""
    differs: bool = False


class Suspect(NamedTuple):
    """Rank that the others may wait for. why: the reason in words. rule: name of the rule that names the rank. raised: the exception, if it
    will end the program."""

    rank: int
    node: int
    why: str
    file: str = ""
    raised: Raised | None = None
    rule: str = ""


class Evidence(NamedTuple):
    """Evidence about a hang. known: all known ranks. recorded: ranks named by the recorders of collectives. lagging: ranks named by NCCL's
    RAS. mute: ranks whose recorders do not answer."""

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
    then larger groups before smaller ones."""
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


def uncaught_exception(evidence: Evidence) -> Iterable[Suspect]:
    """A rank raised an exception that nobody caught, and has not ended: a library waits for the others at its exit."""
    named = tuple(caught_exception(evidence))
    return named if any(each.raised for each in named) else ()


def missing_in_collective(evidence: Evidence) -> Iterable[Suspect]:
    """The recorders of the collectives (flight recorder) name the rank that has not come, or is in another operation."""
    return _named_by_recorder(evidence.recorded, evidence.known)


def behind_in_collectives(evidence: Evidence) -> Iterable[Suspect]:
    """NCCL's RAS names the rank that has launched fewer operations than the others."""
    return _named_by_recorder(evidence.lagging, evidence.known)


def named_by_timeouts(evidence: Evidence) -> Iterable[Suspect]:
    """Time-out messages of other ranks name the rank that did not answer."""
    named = [rank for each in evidence.known for rank in each.names if rank != each.rank]
    at = {each.rank: each for each in evidence.known}
    for rank in sorted({*named}) if len({*named}) < len(evidence.known) else ():
        node, file = (at[rank].node, at[rank].file) if rank in at else (-1, "")
        yield Suspect(rank, node, "time-out messages of other ranks name it", file)


def stopped_or_stuck(evidence: Evidence) -> Iterable[Suspect]:
    """The process of a rank is stopped (state T), or stuck in the kernel (state D), and this is not so for all ranks."""
    for state in (STOPPED, STUCK):
        yield from _in_state(evidence.known, state)


def exception_of_thread(evidence: Evidence) -> Iterable[Suspect]:
    """Other ranks have ended, and an exception has ended a thread of a rank that runs on: the rank may wait for the thread's result. The
    ended ranks come after this rank, unless the rank runs on outside collectives."""
    threads = tuple(_by_exception([each for each in evidence.known if not each.raised or each.raised.of_thread], len(evidence.known)))
    named = tuple(at_exit(evidence)) or tuple(gone(evidence))
    if threads and named:
        yield from threads
        yield from (each for each in named if each.rank not in {one.rank for one in threads})


def at_exit(evidence: Evidence) -> Iterable[Suspect]:
    """Most ranks have ended and one runs on; or some have, and the running ones wait in no collective: they hang at their
    exit. A rank without a stack counts as ended if another has one: its interpreter has ended, and it waits in
    MPI_Finalize."""
    running = _running(evidence.known)
    most_ended = 2 * len(running) < len(evidence.known)
    alone = all(each.stack and not each.inside for each in running)
    if len(running) < len(evidence.known) and (most_ended or alone):
        why = "most others have ended" if most_ended else "others have ended, and it waits in no collective"
        for each in running:
            at = f": {summary(each)}" if each.stack else ""
            yield Suspect(each.rank, each.node, f"it still runs, while {why}{at}", each.file)


def gone(evidence: Evidence) -> Iterable[Suspect]:
    """The process of a rank has ended, and the processes of other ranks wait."""
    for state in ENDED:
        yield from _in_state(evidence.known, state)


def caught_exception(evidence: Evidence) -> Iterable[Suspect]:
    """A rank raised an exception, and its stack does not show that its program went on; or an exception ended one of its threads."""
    return _by_exception(evidence.known, len(evidence.known))


def outside_collective(evidence: Evidence) -> Iterable[Suspect]:
    """The stack of a rank is outside collectives, and the stacks of other ranks are inside one."""
    yield from map(_elsewhere, _outside([each for each in evidence.known if each.stack], 0))


def elsewhere(evidence: Evidence) -> Iterable[Suspect]:
    """The stack of a rank is equal to the stacks of few others: at most a tenth of the ranks, or two of at least five."""
    stacks = [each for each in evidence.known if each.stack]
    for group in alike(stacks).values():
        yield from map(_elsewhere, group if _are_few(len(group), len(stacks)) else ())


def unlike_in_cpu(evidence: Evidence) -> Iterable[Suspect]:
    """A rank uses a full core while the others wait, or waits while the others use a full core each: libraries spin while they wait."""
    measured = [each for each in evidence.known if each.cpu is not None]
    busy = [each for each in measured if each.full or (each.cpu or 0) >= 0.5]
    idle = [each for each in measured if each not in busy]
    for group, why in ((busy, "it uses a full core while the others wait"), (idle, "it waits while the others use a full core each")):
        if _are_few(len(group), len(measured)):
            yield from (Suspect(each.rank, each.node, why, each.file) for each in group)


def behind_in_steps(evidence: Evidence) -> Iterable[Suspect]:
    """The last step that a rank printed is before the last step of the others, and these are at least half of the ranks."""
    stepped = [each for each in evidence.known if each.step >= 0]
    last = max((each.step for each in stepped), default=0)
    behind = [each for each in stepped if each.step < last]
    if 2 * len(behind) <= len(stepped):
        yield from (Suspect(each.rank, each.node, f"its last step is {each.step}, that of others {last}", each.file) for each in behind)


def recorder_without_answer(evidence: Evidence) -> Iterable[Suspect]:
    """The flight recorder of a rank gives no dump, unlike the other ranks' recorders: a loop may let no other thread of the rank run."""
    return _named_by_recorder(evidence.mute, evidence.known)


Rule = Callable[[Evidence], Iterable[Suspect]]
RULES: tuple[Rule, ...] = (
    uncaught_exception, missing_in_collective, behind_in_collectives, named_by_timeouts, stopped_or_stuck, exception_of_thread, at_exit,
    gone, caught_exception, outside_collective, elsewhere, unlike_in_cpu, behind_in_steps, recorder_without_answer,
)  # fmt: skip


# Parts of rules


def _running(known: Sequence[Known]) -> list[Known]:
    """Return the running ranks.

    Living ranks without a stack do not count as running, if at most half of all ranks have a stack and these are outside collectives:
    the ranks without a stack wait in MPI_Finalize.
    """
    running = [each for each in known if not each.ended]
    with_stack = [each for each in running if each.stack]
    in_finalize = with_stack and 2 * len(with_stack) <= len(known) and not any(each.inside for each in with_stack)
    return with_stack if in_finalize else running


def _by_exception(known: Sequence[Known], of: int) -> Iterable[Suspect]:
    """Yield ranks with an exception, the oldest first, unless all ranks have one. of: number of all ranks.

    A rank whose stack still shows its program has caught the exception, and is left out, unless the exception ended a thread.
    """
    yield from _named_for([(each, each.raised) for each in known if each.raised and _has_ended_its_program(each)], of)


def _has_ended_its_program(known: Known) -> bool:
    """Return False if the stack still shows the program's module: the program caught the exception."""
    return bool(known.raised and known.raised.of_thread) or _MODULE not in known.stack


def _named_for(raisers: Sequence[tuple[Known, Raised]], of: int) -> Iterable[Suspect]:
    """Yield the ranks of `raisers` as suspects, unless these are all `of` ranks: then no rank stands out."""
    if len(raisers) == of:
        return
    for each, raised in sorted(raisers, key=_order):
        event = "an exception has ended a thread of it" if raised.of_thread else "it raised an exception"
        why = f"{event}{' that nobody caught' if raised.sure else ''}{raised.line and f': {raised.line}'}"
        yield Suspect(each.rank, each.node, why, each.file, raised if raised.sure else None)


def _order(raiser: tuple[Known, Raised]) -> tuple[bool, float]:
    """Return the sort key of a rank with an exception: sure exceptions first, then the earliest."""
    return not raiser[1].sure, -raiser[1].silent_s


def _named_by_recorder(missing: Iterable[Missing], known: Iterable[Known]) -> Iterable[Suspect]:
    """Yield the ranks that a recorder names, with the recorder's reason."""
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
    """Return True if a group of `count` out of `of` ranks is small enough to stand out. by_kind: any size below all stands out, because the
    difference itself shows who is waited for."""
    return 0 < count < of and (by_kind or (2 * count < of and (count <= FEW * of or count <= LEAST_FEW)))


def alike(known: Iterable[Known]) -> dict[str, list[Known]]:
    """Return groups of ranks at the same place; ranks without a stack are left out.

    Line numbers count only in the innermost frame of the user's program: in library code, a root rank and its peers may wait in one
    function that they called from different lines.
    """
    result: dict[str, list[Known]] = {}
    for each in known:
        if each.stack:
            result.setdefault(_place(each), []).append(each)
    return result


def _place(known: Known) -> str:
    """Return a key that is equal for ranks at the same place: functions, the line of the user's innermost frame, and the collective."""
    lines = [line.strip() for line in known.stack.splitlines()[:MOST_FRAMES]]
    users = next((i for i, line in enumerate(lines) if not _LIBRARY.search(line)), -1)
    masked = (re.sub(r"0x[0-9a-fA-F]+" if i == users else r"0x[0-9a-fA-F]+|\d+", "0", line) for i, line in enumerate(lines))
    return "\n".join((*masked, known.inside))


def summary(known: Known) -> str:
    """Return the place of a rank as text: all_reduce at train.py:88.

    The name is the collective, or without one the function that the user's code has called; the line is in the user's code.
    """
    stack = frames(known.stack)
    users = next((i for i, frame in enumerate(stack) if not _LIBRARY.search(frame.file)), 0 if stack else -1)
    if users < 0:
        return next((line.strip() for line in known.stack.splitlines() if line.strip()), "")[:MOST_SHOWN]
    name = known.inside or stack[max(0, users - 1)].function
    return f"{name} at {stack[users].file.rpartition('/')[2]}:{stack[users].line}"[:MOST_SHOWN]


# Stacks that wait for other ranks: in collectives, in messages between ranks, in a rendezvous, or for a device that runs collectives.
#
# A stack is recognised by the function and the file of one of its frames, or by the source line of its innermost frame: C functions, such
# as mpi4py's Allreduce, have no frame of their own. Names that any program may use (wait, join, recv) prove nothing: data loaders and
# locks have them too.

# A frame as py-spy writes it, or as faulthandler writes it.
_FRAME = re.compile(r'(?P<name>\S+) \((?P<file>[^()]+):(?P<line>\d+)\)|File "(?P<filed>[^"]+)", line (?P<lined>\d+) in (?P<named>.+)')
_COLLECTIVE = (
    r"(?:grouped_|hierarchical_|coalesced_|neighbor_|i)?"
    r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_(?:object|tensor|data|parameters|optimizer)\w*|barrier)\w*"
    r"|monitored_barrier|wait_for_everyone|batch_isend_irecv|ring_exchange|init_process_group|initialize_distributed|init_parallel_env"
)
_FUNCTION = re.compile(rf"(?i)_*(?:{_COLLECTIVE}|broadcast|synchronize)")
_BACKWARD = "backward"
# (pattern of the file; pattern of its functions that wait, None for all; name to show, "" for the function's name)
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
    """Frame of a stack."""

    function: str
    file: str
    line: str


def frames(stack: str) -> list[Frame]:
    """Return the frames of a stack, the innermost first. stack: one frame a line."""
    matched = [match for line in stack.splitlines()[:MOST_FRAMES] if (match := _FRAME.search(line))]
    return [Frame(each["name"] or each["named"], each["file"] or each["filed"], each["line"] or each["lined"]) for each in matched]


def inside(stack: str, call: str = "") -> str:
    """Return the name of the collective that a stack waits in, the outermost of several; "" for none.

    call: source line of the innermost frame, "" if unknown.
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
