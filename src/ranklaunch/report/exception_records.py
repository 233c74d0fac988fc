"""Exceptions that the processes of a round recorded of themselves, as values of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ranklaunch.ends import exceptions
from ranklaunch.ends.model import LAUNCHER, MOST_RECORD_FILES, RANK, Record, rank_number
from ranklaunch.report import checked
from ranklaunch.report.model import Raised

MOST = 512
Process = tuple[int, int, int]  # node, pid, start


def of_records(records: Iterable[Record], shift: Mapping[int, float]) -> tuple[Raised, ...]:
    """Return exceptions in order of time; those of launchers last, because a launcher raises after a rank has failed. shift: seconds to
    add to the clock of each node."""
    starts: dict[Process, Record] = {}
    raised: list[Record] = []
    for record in records:
        if record.kind in (RANK, LAUNCHER):
            starts[_process(record)] = record
        elif record.chain and len(raised) < MOST_RECORD_FILES:
            raised.append(record)
    made = [_raised(record, starts.get(_process(record)), shift.get(record.node, 0.0)) for record in raised]
    return tuple(sorted(made, key=lambda each: (bool(each.launcher), each.at, each.node, each.pid))[:MOST])


def _process(record: Record) -> Process:
    return record.node, record.pid, record.start


def _raised(record: Record, start: Record | None, shift: float) -> Raised:
    """start: the record that the process wrote at its start."""
    launcher = start.launcher if start and start.kind == LAUNCHER else ""
    rank = rank_number(start.variables) if start and not launcher else None
    return Raised(
        record.node, rank, record.pid, round(record.at + shift, 3), record.where,
        checked.text(record.thread, 80) if record.where == "thread" else "", launcher,
        exceptions.shown(exceptions.line(record)), exceptions.shown(exceptions.cause(record)),
    )  # fmt: skip


def grouped(exceptions: Iterable[Raised]) -> list[list[Raised]]:
    """Group exceptions that are equal except for rank and time. Each group is in order of time."""
    groups: dict[tuple[object, ...], list[Raised]] = {}
    for each in exceptions:
        alone = () if each.rank is not None else (each.node, each.pid)
        groups.setdefault((each.text, each.cause, each.where, each.thread, each.launcher, alone), []).append(each)
    return list(groups.values())
