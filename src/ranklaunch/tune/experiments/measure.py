"""What an experiment has said of its speed, or of the model, where it was told to say it."""

from __future__ import annotations

import os

from ranklaunch.errors import ConfigError
from ranklaunch.files import join, text_of
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.tune import metrics
from ranklaunch.tune.experiments import experiment
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.site import LOG, Site
from ranklaunch.tune.model import NO_METRIC, OK, PROFILE, Result
from ranklaunch.verdict import folders

MOST = 1024 * 1024  # bytes of a file of figures
MOST_OF_LOG = 4 * metrics.MOST_OUTPUT  # bytes of its end


def result(site: Site, order: Order, status: str, reason: str, code: int, seconds: float) -> Result:
    """On the node that leads. A profile run that tells nothing has ended well all the same: then nothing is pruned."""
    folder, files = site.folder(order.name), DiskFiles()
    found = Result(order.name, order.kind, status, {}, {}, seconds, reason, code, folder)
    if order.kind == PROFILE:
        info = metrics.info(text_of(files, join(folder, metrics.INFO_FILE), MOST), _output(site, order))
        return Result(order.name, order.kind, OK if info else status, {}, info, seconds, "" if info else reason, code, folder)
    if status != OK:
        return found
    measured = metrics.measured(order.experiment, text_of(files, join(folder, metrics.METRICS_FILE), MOST), _output(site, order))
    if not measured.metrics:
        return Result(order.name, order.kind, NO_METRIC, {}, {}, seconds, "it ended well, and nothing tells how fast it was", code, folder)
    return Result(order.name, order.kind, OK, dict(measured.metrics), {}, seconds, "", code, folder)


def _output(site: Site, order: Order) -> str:
    """What rank 0 wrote, else what all did."""
    return end_of(folders.rank_log(experiment.attempt(site, order), 0)) or end_of(join(site.folder(order.name), LOG))


def end_of(log: str) -> str:
    """The program writes what it likes, and as much: what is no text in it is shown as such. "" where there is none."""
    try:
        with open(disk.own(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_OF_LOG))
            return file.read(MOST_OF_LOG).decode(errors="replace")
    except (OSError, ConfigError):
        return ""
