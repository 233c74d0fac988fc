"""Outcome of an experiment on one node, from files of its `ranklaunch run` and of its program."""

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
MOST_FIGURES = 1024 * 1024  # bytes of DeepSpeed's file with figures
MOST_OF_LOG = 4 * metrics.MOST_OUTPUT  # bytes at the end of a log


def attempt(site: Site, order: Order) -> str:
    """Return the newest attempt folder of this node's run. The folder is in the log directory itself if
    the run failed before it knew its nodes."""
    logs, files = join(site.folder(order.name), "logs"), DiskFiles()
    of_node = folders.node(logs, order.nodes.index(site.plan.job.node_index))
    parent = of_node if files.names(of_node) else logs
    return folders.attempt(parent, folders.newest(files.names(parent)))


def verdict(site: Site, order: Order) -> dict[str, Any] | None:
    """Return the verdict of this node's run, None without one. Copy the file to the experiment's folder."""
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
    """Return one of `model.STATUSES`, and the reason. hung_after_s: the time limit if the limit ended
    the experiment, else 0."""
    if hung_after_s:
        return HUNG, f"no end within {hung_after_s:g} s (--experiment-timeout)"
    if not verdict:
        return FAILED, f"its ranklaunch run exited with code {code} and wrote no verdict"
    if verdict.get("outcome") == "succeeded":
        return OK, ""
    reason = str(verdict.get("reason", ""))[:MOST_REASON]
    return (OUT_OF_MEMORY if _is_by_memory(verdict) else FAILED), reason


def _is_by_memory(verdict: Mapping[str, Any]) -> bool:
    """Return True if the kernel killed a process for memory, or if a process that failed printed an error of
    memory. Processes that failed: the culprit, and others that ended by themselves."""
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
    """Return the result of an experiment that this node leads. A profile run with facts of the model counts as
    OK, with any exit code; without such facts nothing is pruned."""
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
        reason = "it succeeded, but its output shows no speed: print steps or samples a second (docs/tuning.md)"
        return replace(bare, status=NO_METRIC, reason=reason)
    return replace(bare, metrics=dict(measured.metrics), reason="")


def _output(site: Site, order: Order) -> str:
    """Return the end of rank 0's log, else the end of the log of the whole run."""
    of_rank = end_of(folders.rank_log(attempt(site, order), 0))
    return of_rank or end_of(join(site.folder(order.name), LOG))


def end_of(log: str) -> str:
    """Return the end of a log, "" if it cannot be read. Bytes that are no UTF-8 are replaced."""
    try:
        with open(disk.own(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_OF_LOG))
            return file.read(MOST_OF_LOG).decode(errors="replace")
    except (OSError, ConfigError):
        return ""
