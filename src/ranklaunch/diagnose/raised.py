"""Exception that explains the end of a rank, by the records that processes wrote down of themselves (ranklaunch.rankside). Pure.

RULES are tried in their order. The first that finds an exception decides; an exception that only tells of another failure gives way to one
that a later rule finds. A record alone proves nothing: the exit status must fit, and the exception must be the last one of its process.
The time of the failure is the time of the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
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


class Ended(NamedTuple):
    """A process that ended, and other processes of its node that wrote something. alone: it is the only program of the node."""

    end: RankEnd
    others: Sequence[OtherProcess]
    alone: bool = False

    def soon(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process ended, or was told to end, within so many seconds; also if nobody knows when."""
        gone = min((sent.at for sent in self.end.sent if sent.at is not None), default=self.end.at)
        return record if record and (gone is None or gone - record.at < seconds) else None

    def soon_by_itself(self, record: Record | None, seconds: float) -> Record | None:
        """Return a record if the process ended within so many seconds, and by no signal."""
        return None if self.end.signal else self.soon(record, seconds)


Rule = Callable[[Ended], Optional[Record]]


def in_main_thread(of: Ended) -> Record | None:
    """The main thread of the rank raised an exception that nobody caught.

    Such an exception ends a Python program with code 1. Another code or a signal fits too: a hook, an atexit handler or a signal that came
    while Python was ending the program. An exit code of the program's own must follow within seconds: a console goes on after exceptions.
    """
    record = last(of.end.records, "main")
    return record if of.end.signal or of.end.exit_code == UNCAUGHT else of.soon(record, SOON_S)


def in_program_of_shell(of: Ended) -> Record | None:
    """The program that the rank's shell script runs raised an exception that nobody caught, and the script ended within seconds."""
    return of.soon(last(_records(_programs(of)), "main"), SOON_S)


def in_other_thread(of: Ended) -> Record | None:
    """Another thread of the rank raised an exception, and the rank ended by itself within seconds, as by os._exit or a main thread that
    notices."""
    return of.soon_by_itself(last(of.end.records, "thread"), SOON_S)


def in_child(of: Ended) -> Record | None:
    """A process below the rank raised an exception, and the rank ended by itself within seconds: the Python below a shell, a worker."""
    return of.soon_by_itself(last(_records(_below(of)), "main", "process"), CHILD_S)


def in_nested_rank(of: Ended) -> Record | None:
    """A rank of a launcher that the rank had started raised an exception, and the rank ended by itself within seconds."""
    raised = filter(None, (last(process.records, "main") for process in _nested(of)))
    return of.soon_by_itself(min(raised, key=attrgetter("at"), default=None), CHILD_S)


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
        if end.rank is not None and end.exit_code == 0 and not end.launcher:
            programs = (process.records for process in _programs(Ended(end, node.others)))
            record = next(filter(None, (last(written, "main") for written in (end.records, *programs))), None)
            if record:
                yield end.rank, exceptions.shown(exceptions.line_of(record.chain))


def _fitting(end: RankEnd, node: NodeEnds, *, alone: bool) -> Iterator[Explanation]:
    """Yield the exceptions that fit an end, in the order of the rules. alone: the only program of its node."""
    for rule in RULES:
        record = rule(Ended(end, node.others, alone))
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


def _records(processes: Iterable[OtherProcess]) -> list[Record]:
    return [record for process in processes for record in process.records]


def _below(of: Ended) -> Iterator[OtherProcess]:
    """Yield the processes of a rank besides its own: those whose records name it as their top.

    Without a top, the rank number of their variables decides; without a number, they belong to the only program of a node.
    """
    for process in of.others:
        if any(each.kind == records.LAUNCHER for each in process.records):
            continue
        is_named = of.alone if process.rank is None else process.rank == of.end.rank
        if any(_is_top(of.end, each) for each in process.records) or (is_named and not any(each.top for each in process.records)):
            yield process


def _programs(of: Ended) -> Iterator[OtherProcess]:
    """Yield the heads of a rank whose own process is a shell."""
    yield from (each for each in of.others if any(record.kind == records.RANK and _is_top(of.end, record) for record in each.records))


def _is_top(end: RankEnd, record: Record) -> bool:
    return record.top is not None and record.top.key == (end.pid, end.start)


def _nested(of: Ended) -> Iterator[OtherProcess]:
    """Yield the heads of ranks that a launcher below a rank has started. The launcher's own exception names the top of the rank."""
    launchers = {(process.pid, process.start) for process in of.others if any(_is_top(of.end, record) for record in process.records)}
    for process in of.others:
        if any(each.kind == records.RANK and each.parent and each.parent.key in launchers for each in process.records):
            yield process


def after_stop(record: Record, end: RankEnd) -> bool:
    """True if the process raised the exception because somebody told it to end."""
    return any(sent.at is not None and sent.at < record.at for sent in end.sent)
