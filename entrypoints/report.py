"""ranklaunch report: show what happened in a job, from the files of its nodes in a log folder; starts nothing, and asks no running job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

from ranklaunch.cli import options, rank_tables
from ranklaunch.cli.options import Option
from ranklaunch.control import client

USAGE = "ranklaunch report [LOG_DIR] [--format text|html|json|trace|prom] [--output FILE]"
FORMAT = options.of_formats("text", "html", "json", "trace", "prom")
OPTIONS = (
    FORMAT,
    Option("--output", "output", "file to write the report to, whole or not at all (default: standard output)", "FILE"),
)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    values, folder = options.Parser("report", __doc__ or "", USAGE, OPTIONS).folder(argv)
    form, output = options.chosen(values, FORMAT), values.get("output")
    pieces = _shown(folder or client.own_logs(env), form)
    for piece in ("".join(pieces),) if output else pieces:
        rank_tables.write(piece, output)
    return 0


def _shown(folder: str, form: str) -> Iterable[str]:
    """Return a report as pieces of one text."""
    # Imported late: `ranklaunch completion`, which shells run at their start, needs only OPTIONS.
    from ranklaunch.report import assembly
    from ranklaunch.report.formats import html, prom, text, trace
    from ranklaunch.report.model import as_json

    report = assembly.report(folder, time.time())
    if form == "trace":
        return trace.shown(report)
    if form == "json":
        return (json.dumps(as_json(report), indent=1), "\n")
    return ({"html": html, "prom": prom}.get(form, text).shown(report),)
