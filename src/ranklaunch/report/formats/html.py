"""Report as an HTML page: one file that loads no other file; its only script keeps the place while zooming."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

from ranklaunch.report import exception_records, model
from ranklaunch.report.formats import advice, template, words
from ranklaunch.report.formats.page import axis, lanes, plots, ranks
from ranklaunch.report.model import Attempt, Report, Round, Tail

TAILS = 2_000_000  # bytes of the last lines of all logs
MOST_NOTES = 40
MOST_LINE = 1000  # characters of a line from a log


def shown(report: Report) -> str:
    last = report.attempts[-1]
    rounds = [(attempt, each) for attempt in report.attempts for each in attempt.rounds]
    processes = [process for _, each in rounds for node in each.nodes for process in node.processes]
    return template.rendered(
        "page/page.html.j2",
        {
            "look": lanes.look,
            "called": lanes.called,
            "sums": lanes.sums,
            "percent": axis.percent,
            "end": words.process_end,
            "cut": _cut,
            "digest": _digest,
        },
        report=report,
        last=last,
        style=template.file("page/look.css"),
        script=template.file("page/zoom.js"),
        steps=advice.steps(report),
        buckets=[each for each in _buckets(report) if each[2] > 0],
        rounds=rounds,
        earlier=[pair for pair in rounds[:-1] if pair[1].culprit and pair[1].culprit.last_lines],
        exceptions=exception_records.grouped(report.exceptions),
        stacks=sorted(last.stacks, key=lambda group: len(group.ranks)),
        processes=processes,
        tails=list(_tails(report)),
        shown_logs={tail.log for tail in report.tails if tail.lines},
        aborted={each.log for each in processes if each.sent == each.signal == words.ABORT},
        notes=_notes(report),
        LABELS=ranks.LABELS,
        GONE=(lanes.LEFT_NOTHING, lanes.GONE),
        **_drawings(report, rounds),
    )


def _drawings(report: Report, rounds: Sequence[tuple[Attempt, Round]]) -> dict[str, object]:
    """Return the template's values with a place by time or by rank."""
    scale = axis.over(report.began, report.ended)
    every_rank = ranks.ranks_of(report)
    timeline = [span for attempt in report.attempts for span in attempt.timeline]
    lines = lanes.lines_of(report) if report.began else []
    chosen = lanes.chosen(lines)
    spans, marks = (
        [span for line in lines for span in line.spans],
        [mark for line in chosen for mark in line.marks],
    )
    return {
        "axis": scale,
        "rulers": {zoom: list(axis.ruler(scale, zoom)) for zoom in axis.ZOOMS},
        "timeline": timeline,
        "names": lanes.names([each for each in rounds if each[1].began is not None], scale),
        "lines": lines,
        "chosen": chosen,
        "crowd": list(lanes.crowd(lines, scale)) if len(chosen) < len(lines) else [],
        "legend": lanes.legend([*timeline, *spans, *marks]),
        "plots": plots.plots(report, scale, every_rank.odd),
        "ranks": every_rank,
        "rows": ranks.rows(every_rank),
        "note": ranks.note(every_rank),
        "dots": ranks.dots(every_rank),
    }


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _cut(value: str, most: int) -> str:
    more = len(value) - most
    return f"{value[:most]}… ({more} more characters)" if more > 0 else value


def _buckets(report: Report) -> Iterator[tuple[str, str, float]]:
    """Yield (look, label, seconds) of each bucket."""
    for name, label in model.BUCKETS.items():
        yield name.removesuffix("_s"), label, getattr(report.accounting.buckets, name)


def _tails(report: Report) -> Iterator[Tail]:
    """Yield the last lines of the logs, until TAILS bytes are used."""
    room = TAILS
    for tail in report.tails:
        kept: list[str] = []
        for line in (_cut(line, MOST_LINE) for line in reversed(tail.lines)):
            room -= _size(line)
            if room < 0:
                break
            kept.append(line)
        if kept:
            yield Tail(tail.log, tail.name, tuple(reversed(kept)))


def _size(line: str) -> int:
    """Return the largest possible size of a line on the page, in bytes."""
    return 1 + len(line.encode(errors="replace")) + 5 * sum(map(line.count, "&<>'\""))


def _notes(report: Report) -> list[str]:
    nodes = [node for each in report.attempts[-1].rounds for node in each.nodes]
    of_nodes = [f"node {node.node}: {each}" for node in nodes for each in node.troubles]
    more = len(report.troubles) - MOST_NOTES
    notes = list(report.troubles[:MOST_NOTES]) + ([f"and {more} more"] if more > 0 else [])
    notes += [*dict.fromkeys(of_nodes)][:MOST_NOTES]
    jobs = ", ".join(report.other_jobs[:20])
    return notes + ([f"Other jobs in the same folder: {jobs}"] if jobs else [])
