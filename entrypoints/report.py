"""ranklaunch report: what happened in a job, from what its nodes have left in a log folder; starts nothing, and asks nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping

from ranklaunch.cli import options, rank_tables
from ranklaunch.cli.options import Option
from ranklaunch.control import client
from ranklaunch.report import assembly
from ranklaunch.report.formats import html, prom, text, trace
from ranklaunch.report.model import Report, as_json

USAGE = "ranklaunch report [LOG_DIR] [--format text|html|json|trace|prom] [--output FILE]"
FORMAT = options.of_formats("text", "html", "json", "trace", "prom")
OPTIONS = (
    FORMAT,
    Option("--output", "output", "file that it is written to, whole or not at all (default: standard output)", "FILE"),
)


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    values, folder = options.Parser("report", __doc__ or "", USAGE, OPTIONS).folder(argv)
    form, output = options.chosen(values, FORMAT), values.get("output")
    report = assembly.report(folder or client.own_logs(env), time.time())
    pieces: Iterable[str] = trace.shown(report) if form == "trace" else (SHOWN[form](report),)
    for piece in ("".join(pieces),) if output else pieces:
        rank_tables.write(piece, output)
    return 0


def _as_json(report: Report) -> str:
    return json.dumps(as_json(report), indent=1) + "\n"


SHOWN: Mapping[str, Callable[[Report], str]] = {"text": text.shown, "html": html.shown, "json": _as_json, "prom": prom.shown}
