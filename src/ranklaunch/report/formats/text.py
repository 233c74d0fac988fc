"""Report as text: one screen with the job, its end, the culprit and cause, and the use of the time."""

from __future__ import annotations

import re

from ranklaunch.report import exception_records, model
from ranklaunch.report.formats import advice, template
from ranklaunch.report.model import Report

WIDTH = 140


def shown(report: Report) -> str:
    accounting = report.accounting
    buckets = [(label, getattr(accounting.buckets, name)) for name, label in model.BUCKETS.items()]
    rounds = [(attempt, each) for attempt in report.attempts for each in attempt.rounds]
    text = template.rendered(
        "text.j2",
        {},
        report=report,
        last=report.attempts[-1],
        before=rounds[:-1],
        exceptions=exception_records.grouped(report.exceptions),
        steps=[*advice.look(report), *advice.explanations(report)],
        buckets=[each for each in buckets if each[1] > 0 and each[1] >= 0.0005 * accounting.wall_s],
        WIDTH=WIDTH,
    )
    lines = (line[: 4 * WIDTH] for line in text.strip("\n").split("\n"))
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"
