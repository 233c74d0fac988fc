"""The outcome of an experiment on one node, from files of its `ranklaunch run` and its program."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ranklaunch.errors import ConfigError
from ranklaunch.files import join, text_of
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import metrics
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.site import LOG, VERDICT, Site
from ranklaunch.tune.model import FAILED, HUNG, NO_METRIC, OK, OUT_OF_MEMORY, PROFILE, Result
from ranklaunch.verdict import folders

MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc|failed to allocate memory"
    r"|\bENOMEM\b|Malloc device memory failed|CUBLAS_STATUS_ALLOC_FAILED"
)
MOST_VERDICT = 16 * 1024 * 1024  # bytes
MOST_REASON = 300  # characters
MOST_FIGURES = 1024 * 1024  # bytes of a file of figures
MOST_OF_LOG = 4 * metrics.MOST_OUTPUT  # bytes at the end of a log


def attempt(site: Site, order: Order) -> str:
    """Return the newest attempt folder of this node's run, which is in the log directory itself if
    the run failed before it knew its nodes."""
    logs, files = join(site.folder(order.name), "logs"), DiskFiles()
    own = folders.node(logs, order.nodes.index(site.plan.job.node_index))
    here = own if files.names(own) else logs
    return folders.attempt(here, folders.newest(files.names(here)))


def verdict(site: Site, order: Order) -> dict[str, Any] | None:
    """Return the verdict of this node's run, or None. Copy it to the experiment's folder."""
    try:
        data = disk.read(disk.own(join(attempt(site, order), folders.VERDICT)), MOST_VERDICT)
        result = json.loads(data)
    except (OSError, ValueError, RecursionError, disk.NotRegularError):
        return None
    if not isinstance(result, dict):
        return None
    disk.write(join(site.folder(order.name), VERDICT), data, 0o644)
    return result


def status(verdict: Mapping[str, Any] | None, code: int, hung_after_s: float) -> tuple[str, str]:
    """Return one of `model.STATUSES`, and the reason. hung_after_s: the time limit if that ended
    the experiment, else 0."""
    if hung_after_s:
        return HUNG, f"it had not ended after {hung_after_s:g} s"
    if not verdict:
        return FAILED, f"its ranklaunch ended with exit code {code} and left no verdict"
    if verdict.get("outcome") == "succeeded":
        return OK, ""
    reason = str(verdict.get("reason", ""))[:MOST_REASON]
    return (OUT_OF_MEMORY if _is_by_memory(verdict) else FAILED), reason


def _is_by_memory(verdict: Mapping[str, Any]) -> bool:
    """True if the kernel counted a kill for memory, or a process that failed printed an error of
    memory: the culprit, or another that ended by itself."""
    culprits = (verdict.get("culprit"), *(verdict.get("failures") or ()))
    failures = [each for each in culprits if isinstance(each, dict)]
    if any(failure.get("out_of_memory") for failure in failures):
        return True
    return any(MEMORY.search(line) for failure in failures for line in _lines(failure))


def _lines(failure: Mapping[str, Any]) -> list[str]:
    error = failure.get("error")
    known = [str(error.get("line", ""))] if isinstance(error, dict) else []
    return [*known, *map(str, failure.get("last_lines") or ())]


def result(site: Site, order: Order, status: str, reason: str, code: int, seconds: float) -> Result:
    """Return the result of an experiment that this node leads. A profile run without figures ended
    well all the same: nothing is pruned then."""
    folder, files = site.folder(order.name), DiskFiles()
    bare = Result(order.name, order.kind, status, {}, {}, seconds, reason, code, folder)
    if order.kind == PROFILE:
        text = text_of(files, join(folder, metrics.INFO_FILE), MOST_FIGURES)
        info = metrics.info(text, _output(site, order))
        return replace(bare, status=OK, info=info, reason="") if info else bare
    if status != OK:
        return bare
    figures = text_of(files, join(folder, metrics.METRICS_FILE), MOST_FIGURES)
    measured = metrics.measured(order.experiment, figures, _output(site, order))
    if not measured.metrics:
        reason = "it ended well, and nothing tells how fast it was"
        return replace(bare, status=NO_METRIC, reason=reason)
    return replace(bare, metrics=dict(measured.metrics), reason="")


def _output(site: Site, order: Order) -> str:
    """Return the end of rank 0's log, or else of the log of the whole run."""
    own = end_of(folders.rank_log(attempt(site, order), 0))
    return own or end_of(join(site.folder(order.name), LOG))


def end_of(log: str) -> str:
    """Return the end of a log, with escapes for bytes that are no UTF-8; "" if there is no log."""
    try:
        with open(disk.own(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_OF_LOG))
            return file.read(MOST_OF_LOG).decode(errors="replace")
    except (OSError, ConfigError):
        return ""
