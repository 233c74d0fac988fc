"""Exception that explains the end of a rank, by the records that processes wrote down of themselves (ranklaunch.rankside). Pure.

RULES are tried in their order. The first that finds an exception decides; an exception that only tells of another failure gives way to one
that a later rule finds. A record alone proves nothing: the exit status must fit, and the exception must be the last one of its process.
The time of the failure is the time of the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ranklaunch.ends import exceptions, records
from ranklaunch.ends.model import NodeEnds, OtherProcess, RankEnd
from ranklaunch.ends.records import Record
from ranklaunch.verdict.model import Because, Of

SOON_S = 10.0  # from an exception to the end of its process, where the exit status alone does not say that the exception ended it
CHILD_S = 5.0  # from the exception of a child to the end of its rank
UNCAUGHT = 1  # exit code of Python after an exception that nobody caught


@dataclass(frozen=True)
class Explanation:
    """An exception behind the end of a process. at: seconds since 1970 by node 0's clock. line: type and message. text: the exception as
    Python prints it. sure: the exception alone ends its process, whatever came afterwards."""

    at: float
    line: str
    text: str
    because: Because
    sure: bool = True


class Exceptions(NamedTuple):
    """Last exceptions of a process and of the processes below it, as records; None for none. nested: the first of ranks below it.
    program: of the first Python below a shell."""

    main: Record | None
    thread: Record | None
    child: Record | None
    nested: Record | None = None
    program: Record | None = None


Rule = Callable[[RankEnd, Exceptions], Optional[Record]]


def in_main_thread(end: RankEnd, own: Exceptions) -> Record | None:
    """The main thread of the rank raised an exception that nobody caught.

    Such an exception ends a Python program with code 1. Another code or a signal fits too: a hook, an atexit handler or a signal that came
    while Python was ending the program. An exit code of the program's own must follow within seconds: a console goes on after exceptions.
    """
    record = own.main
    if record and not end.signal and end.exit_code != UNCAUGHT and not _soon(record, _gone(end), SOON_S):
        return None
    return record


def in_program_of_shell(end: RankEnd, own: Exceptions) -> Record | None:
    """The program that the rank's shell script runs raised an exception that nobody caught, and the script ended within seconds."""
    return own.program if own.program and _soon(own.program, _gone(end), SOON_S) else None


def in_other_thread(end: RankEnd, own: Exceptions) -> Record | None:
    """Another thread of the rank raised an exception, and the rank ended by itself within seconds, as by os._exit or a main thread that
    notices."""
    return own.thread if own.thread and not end.signal and _soon(own.thread, _gone(end), SOON_S) else None


def in_child(end: RankEnd, own: Exceptions) -> Record | None:
    """A process below the rank raised an exception, and the rank ended by itself within seconds: the Python below a shell, a worker."""
    return own.child if own.child and not end.signal and _soon(own.child, _gone(end), CHILD_S) else None


def in_nested_rank(end: RankEnd, own: Exceptions) -> Record | None:
    """A rank of a launcher that the rank had started raised an exception, and the rank ended by itself within seconds."""
    return own.nested if own.nested and not end.signal and _soon(own.nested, _gone(end), CHILD_S) else None


RULES: tuple[Rule, ...] = (in_main_thread, in_program_of_shell, in_other_thread, in_child, in_nested_rank)


def explanations(node: NodeEnds) -> Iterator[tuple[RankEnd, list[Explanation]]]:
    """Yield the ends of ranks and programs that exceptions explain, in the order of their ends, with these in the order of the rules."""
    alone = sum(end.rank is not None or not end.launcher for end in node.ends) == 1
    for end in node.ends:
        found = [] if end.launcher or end.exit_code == 0 else [*_fitting(end, node, alone=alone)]
        if found:
            yield end, found


def despite_success(node: NodeEnds) -> Iterator[tuple[int, str]]:
    """Yield ranks that ended with 0 although their program ended by an exception: the rank, and the exception with its place."""
    for end in node.ends:
        if end.rank is None or end.exit_code != 0 or end.launcher:
            continue
        programs = (process.records for process in _programs(end, node.others))
        record = next(filter(None, (last(own, "main") for own in (end.records, *programs))), None)
        if record:
            yield end.rank, exceptions.shown(exceptions.line_of(record.chain))


def _fitting(end: RankEnd, node: NodeEnds, *, alone: bool) -> Iterator[Explanation]:
    """Yield the exceptions that fit an end, in the order of the rules. alone: the only program of its node."""
    children = [record for process in _below(end, node.others, alone=alone) for record in process.records]
    nested = filter(None, (last(process.records, "main") for process in _nested(end, node.others)))
    first = min(nested, key=lambda record: record.at, default=None)
    programs = [record for process in _programs(end, node.others) for record in process.records]
    own = Exceptions(
        last(end.records, "main"), last(end.records, "thread"), last(children, "main", "process"), first, last(programs, "main")
    )  # fmt: skip
    for rule in RULES:
        record = rule(end, own)
        if record and not after_stop(record, end):
            yield _explanation(record, rule, end, node.job.node_index)


def _explanation(record: Record, rule: Rule, end: RankEnd, node: int) -> Explanation:
    chain = record.chain
    says = exceptions.shown(exceptions.line_of(chain))
    frame = chain[0].frames[-1] if chain[0].frames else None
    of = Of(node, end.rank, frame.file if frame else "", frame.line if frame else 0)
    name = rule.__name__.replace("_", "-")
    line = exceptions.shown(exceptions.bare_line_of(chain))
    return Explanation(
        record.at,
        line,
        exceptions.traceback(chain),
        Because(f"exception-{name}", says, of),
        rule in (in_main_thread, in_program_of_shell),
    )


def last(found: Iterable[Record], *sources: str) -> Record | None:
    """Return the last exception record from main, thread or process, as `sources` name them."""
    raised = [each for each in found if each.kind == records.EXCEPTION and each.chain and each.where in sources]
    return raised[-1] if raised else None


def _below(end: RankEnd, others: Sequence[OtherProcess], *, alone: bool) -> Iterator[OtherProcess]:
    """Yield the processes of a rank besides its own: those whose records name it as their top.

    Without a top, the rank number of their variables decides; without a number, they belong to the only program of a node.
    """
    for process in others:
        if any(each.kind == records.LAUNCHER for each in process.records):
            continue
        tops = [each.top.key for each in process.records if each.top]
        named = alone if process.rank is None else process.rank == end.rank
        if (end.pid, end.start) in tops if tops else named:
            yield process


def _programs(end: RankEnd, others: Sequence[OtherProcess]) -> Iterator[OtherProcess]:
    """Yield the heads of a rank whose own process is a shell."""
    yield from (each for each in others if any(record.kind == records.RANK and _is_top(end, record) for record in each.records))


def _is_top(end: RankEnd, record: Record) -> bool:
    return record.top is not None and record.top.key == (end.pid, end.start)


def _nested(end: RankEnd, others: Sequence[OtherProcess]) -> Iterator[OtherProcess]:
    """Yield the heads of ranks that a launcher below a rank has started. The launcher's own exception names the top of the rank."""
    launchers = {(process.pid, process.start) for process in others if any(_is_top(end, record) for record in process.records)}
    for process in others:
        if any(each.kind == records.RANK and each.parent and each.parent.key in launchers for each in process.records):
            yield process


def _gone(end: RankEnd) -> float | None:
    """Return when a process ended or was told to, None if nobody knows."""
    times = [sent.at for sent in end.sent if sent.at is not None]
    return min(times) if times else end.at


def _soon(record: Record, gone: float | None, seconds: float) -> bool:
    return gone is None or gone - record.at < seconds


def after_stop(record: Record, end: RankEnd) -> bool:
    """True if the process raised the exception because somebody told it to end."""
    return any(sent.at is not None and sent.at < record.at for sent in end.sent)
