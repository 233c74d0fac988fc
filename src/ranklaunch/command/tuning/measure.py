"""What an experiment says of its speed, and where it is told to say it."""

from __future__ import annotations

import json

from ranklaunch.command.tuning.experiment import INFO, METRIC, Order
from ranklaunch.command.tuning.site import Site
from ranklaunch.files import join
from ranklaunch.system import disk
from ranklaunch.tune.model import NO_METRIC, OK, PROFILE, Result

MOST = 1024 * 1024


def result(site: Site, order: Order, status: str, reason: str, code: int, seconds: float) -> Result:
    folder = site.folder(order.name)
    info = _numbers(join(folder, INFO)) if order.kind == PROFILE else {}
    metrics = _numbers(join(folder, METRIC)) if status == OK and order.kind != PROFILE else {}
    if status == OK and not (info if order.kind == PROFILE else metrics):
        status, reason = NO_METRIC, "it ended well, and nothing tells how fast it was"
    return Result(order.name, order.kind, status, metrics, info, seconds, reason, code, folder)


def _numbers(path: str) -> dict[str, float]:
    try:
        found = json.loads(disk.read(disk.own(path), MOST))
    except (OSError, ValueError, disk.NotRegularError):
        return {}
    return {key: float(value) for key, value in found.items() if isinstance(value, (int, float))} if isinstance(found, dict) else {}
