"""Exceptions that processes of a round wrote down of themselves, from their records to values of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ranklaunch.ends import exceptions, records
from ranklaunch.ends.records import Record
from ranklaunch.report import checked
from ranklaunch.report.model import Raised

MOST = 512
Process = tuple[int, int, int]  # node, pid, start


def of_records(found: Iterable[Record], shift: Mapping[int, float]) -> tuple[Raised, ...]:
    """Return exceptions in the order of time, those of launchers last: they raise because a rank has failed. shift: of clocks, by node."""
    ranks: dict[Process, int | None] = {}
    launchers: dict[Process, str] = {}
    made: list[tuple[Process, Raised]] = []
    for record in found:
        process = (record.node, *record.process)
        if record.kind == records.RANK:
            ranks[process] = records.rank_number(record.variables)
        elif record.kind == records.LAUNCHER:
            launchers[process] = record.launcher
        elif record.chain and len(made) < records.MOST_FILES:
            made.append((process, _raised(record, shift.get(record.node, 0.0))))
    named = [
        replace(each, launcher=launchers[process]) if process in launchers else replace(each, rank=ranks.get(process))
        for process, each in made
    ]  # fmt: skip
    return tuple(sorted(named, key=lambda each: (bool(each.launcher), each.at, each.node, each.pid))[:MOST])


def _raised(record: Record, shift: float) -> Raised:
    return Raised(
        record.node, None, record.pid, round(record.at + shift, 3), record.where,
        checked.text(record.thread, 80) if record.where == "thread" else "", "",
        exceptions.shown(exceptions.line(record)), exceptions.shown(exceptions.cause(record)),
    )  # fmt: skip


def alike(found: Iterable[Raised]) -> list[list[Raised]]:
    """Group exceptions that are equal but for rank and time; each group in order of time."""
    groups: dict[tuple[object, ...], list[Raised]] = {}
    for each in found:
        alone = () if each.rank is not None else (each.node, each.pid)
        groups.setdefault((each.text, each.cause, each.where, each.thread, each.launcher, alone), []).append(each)
    return list(groups.values())
