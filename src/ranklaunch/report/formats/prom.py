"""Report as OpenMetrics text, for a collector of text files: the last state of a job."""

from __future__ import annotations

from ranklaunch.report.formats import template
from ranklaunch.report.model import Report


def shown(report: Report) -> str:
    filters = {"label": _label, "number": _number}
    return template.rendered("prom.j2", filters, report=report, accounting=report.accounting)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")
