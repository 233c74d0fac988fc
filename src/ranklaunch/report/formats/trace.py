"""Report in the Trace Event Format of Perfetto and chrome://tracing: nodes are processes; ranks and the supervisor are threads.

Times are microseconds since the beginning of the report, by node 0's clock. Attempts and restarts follow each other on one time axis.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ranklaunch.report import checked, model
from ranklaunch.report.model import Mark, OnNode, Process, Report, Span

JOB = 1  # process of the job; the processes of the nodes follow
FIRST_NODE = 2
SUPERVISOR, RANKS, OTHERS = 1, 1_000_000, 100_000_000  # first thread numbers, unique over all nodes
Event = dict[str, Any]


def shown(report: Report) -> Iterator[str]:
    """Yield the trace as pieces of text: the whole may be large."""
    about = {"job": report.job.name, "outcome": report.outcome, "reason": report.reason, "began": checked.iso(report.began)}
    head = json.dumps({"displayTimeUnit": "ms", "otherData": about})
    yield f'{head[:-1]}, "traceEvents": ['
    between = "\n"
    for event in _events(report):
        yield f"{between}{json.dumps(event, separators=(',', ':'))}"
        between = ",\n"
    yield "\n]}\n"


def _events(report: Report) -> Iterator[Event]:
    line = Line(report.began, report.ended)
    yield from _named(JOB, SUPERVISOR, report.job.name or "job", "where the time went", -1)
    for attempt in report.attempts:
        for span in attempt.timeline:
            yield from line.span(JOB, SUPERVISOR, model.BUCKETS.get(span.kind, span.kind), span.began, span.ended, {"of": span.text})
        for each in attempt.rounds:
            name = f"attempt {attempt.number}{f', restart {each.number}' if each.number else ''}: {each.outcome}"
            at = each.began if each.began is not None else attempt.began
            yield line.moment(JOB, SUPERVISOR, name, at, {"reason": each.reason, "decision": each.decision}, "p")
    known: set[int] = set()
    for attempt in report.attempts:
        for each in attempt.rounds:
            for node in each.nodes:
                yield from _node(line, node, each.number, known)


class Line:
    """Times of a trace, from times of a report. A time outside the report counts as its beginning or end."""

    def __init__(self, began: float, ended: float) -> None:
        self._began, self._ended = began, max(began, ended)

    def __call__(self, at: float) -> int:
        return round(1e6 * (min(max(at, self._began), self._ended) - self._began))

    def span(self, pid: int, tid: int, name: str, began: float, ended: float | None, about: Event) -> Iterator[Event]:
        """Yield an event of some duration, none if it would end before its beginning. Without a known end, it lasts to the end of the
        report."""
        first, last = self(began), self(self._ended if ended is None else ended)
        if last >= first:
            yield {
                "ph": "X",
                "name": name,
                "cat": "ranklaunch",
                "pid": pid,
                "tid": tid,
                "ts": first,
                "dur": last - first,
                "args": _without_empty(about),
            }

    def moment(self, pid: int, tid: int, name: str, at: float, about: Event, scope: str = "t") -> Event:
        args = _without_empty(about)
        return {"ph": "i", "name": name, "cat": "ranklaunch", "pid": pid, "tid": tid, "ts": self(at), "s": scope, "args": args}


def _without_empty(about: Event) -> Event:
    return {key: value for key, value in about.items() if value not in ("", None)}


def _named(pid: int, tid: int, process: str, thread: str, order: int) -> Iterator[Event]:
    names = (("process_name", {"name": process}), ("process_sort_index", {"sort_index": order}), *_thread(thread, 0))
    for name, args in names:
        yield {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _thread(name: str, order: int) -> tuple[tuple[str, Event], ...]:
    return ("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})


def _node(line: Line, node: OnNode, restart: int, known: set[int]) -> Iterator[Event]:
    """Yield the events of one node in one round. known: threads that are named already; new ones are added."""
    pid, supervisor = FIRST_NODE + node.node, RANKS - 1 - node.node
    if supervisor not in known:
        known.add(supervisor)
        host = f" ({node.host})" if node.host else ""
        yield from _named(pid, supervisor, f"node {node.node}{host}", "ranklaunch", node.node)
    for span in node.spans:
        yield from line.span(pid, supervisor, span.kind, span.began, span.ended, {"of": span.text, "restart": restart})
    for mark in node.marks:
        yield line.moment(pid, supervisor, mark.kind, mark.at, {"text": mark.text, "rank": mark.rank}, _scope(mark))
    for number, process in enumerate(node.processes):
        tid = RANKS + process.rank if process.rank is not None else OTHERS + (node.node << 10) + number % 1024
        if tid not in known:
            known.add(tid)
            for name, args in _thread(process.name, 1 + number):
                yield {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
        yield from _process(line, pid, tid, process, node, restart)


def _scope(mark: Mark) -> str:
    """Return the scope of a mark: g for all processes, p for its process, t for its thread."""
    return "g" if mark.kind == model.FAILURE else "p" if mark.kind in (model.HANG, model.SIGNAL) else "t"


def _process(line: Line, pid: int, tid: int, process: Process, node: OnNode, restart: int) -> Iterator[Event]:
    """Yield the whole time of a process, its phases up to the first step, and each recorded step. If its start or end is unknown, the
    first or last known time counts."""
    steps = [each.at for each in (*process.steps[:1], *process.steps[-1:])]
    times = [at for at in (process.began, process.first_output, process.ended, *steps) if at is not None]
    if not times:
        return
    began, ended = min(times), max(times) if process.ended is not None or node.ended is None else max(*times, node.ended)
    about = {"pid": process.pid, "exit_code": process.exit_code, "signal": process.signal, "max_rss_kb": process.max_rss_kb,
             "restart": restart, "log": process.log}  # fmt: skip
    yield from line.span(pid, tid, process.name, began, ended, about)
    for span in _parts(process, began):
        yield from line.span(pid, tid, span.kind, span.began, min(span.ended or ended, ended), {})


def _parts(process: Process, began: float) -> Iterable[Span]:
    """Yield the phases up to the first step, and the time of each recorded step. They do not overlap."""
    at = began
    first = process.steps[0].at if process.steps else None
    for name, until in (("to the first output", process.first_output), ("to the first step", first)):
        if until is not None and until > at:
            yield Span(name, at, until)
            at = until
    for one, two in zip(process.steps, process.steps[1:]):
        if two.at >= one.at >= at:
            steps = f"step {two.step}" if two.step == one.step + 1 else f"steps {one.step + 1} to {two.step}"
            yield Span(f"{steps}, epoch {two.epoch}" if two.epoch else steps, one.at, two.at)
            at = two.at
