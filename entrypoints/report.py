"""ranklaunch report: what happened in a job, from what its nodes have left in a log folder; starts nothing, and asks nobody."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ranklaunch.cli import options, rank_tables
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.entrypoints.status import one_folder
from ranklaunch.errors import UsageError, nearest

if TYPE_CHECKING:
    from ranklaunch.report.model import Report

USAGE = "ranklaunch report [LOG_DIR] [--format text|html|json|trace|prom] [--output FILE]"
FORMATS = ("text", "html", "json", "trace", "prom")
OPTIONS = (
    Option("--format", "format", f"{', '.join(FORMATS)} (default: text)", legal=FORMATS),
    Option("--output", "output", "file that it is written to, whole or not at all (default: standard output)", "FILE"),
)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    given, words = options.Parser("report", __doc__ or "", USAGE, OPTIONS).apart(argv)
    form = given.get("format", "text")
    if form not in FORMATS:
        msg = f"--format {form}: expected {', '.join(FORMATS)}{nearest(form, FORMATS)}"
        raise UsageError(msg)
    folder = one_folder(words, USAGE) or client.own_logs(env)
    shown, output = _shown(folder, form), given.get("output")
    for piece in ("".join(shown),) if output else shown:
        rank_tables.write(piece, output)
    return 0


def _shown(folder: str, form: str) -> Iterable[str]:
    """Pieces of one text."""
    from ranklaunch.report import assembly

    report = assembly.report(folder, time.time())
    if form == "trace":
        from ranklaunch.report.formats import trace

        return trace.shown(report)
    return (_text(report, form),)


def _text(report: Report, form: str) -> str:
    if form == "html":
        from ranklaunch.report.formats import html

        return html.shown(report)
    if form == "json":
        import json

        from ranklaunch.report.model import as_json

        return json.dumps(as_json(report), indent=1) + "\n"
    if form == "prom":
        from ranklaunch.report.formats import prom

        return prom.shown(report)
    from ranklaunch.report.formats import text

    return text.shown(report)
