"""Rank table that the platform replaces while the nodes meet for another start. Each node sees the new table at a different time."""

from __future__ import annotations

import os
from collections.abc import Callable

from ranklaunch.files import Files
from ranklaunch.plan.model import TABLE, Plan
from ranklaunch.system.loop import Loop

LOOK_S = 0.5


class Renewed:
    """Watch over a rank table. plan: plan by the table at the start; replan: makes a plan by the current table. tell: reports readiness
    with a new plan to node 0."""

    def __init__(self, plan: Plan, files: Files, loop: Loop, replan: Callable[[], Plan], tell: Callable[[Plan], None]) -> None:
        self._path = files.real(plan.job.rank_table)
        self._loop = loop
        self._replan = replan
        self._tell = tell
        self._last = plan
        self._plans = {_digest(plan): plan}
        self._version_seen: tuple[int, ...] = ()  # empty, because the table may have been replaced since the plan was made
        self._timer = loop.after(LOOK_S, self._look)

    def plan(self, digest: str) -> Plan:
        """Return the plan by which all nodes start. digest: digest of the table in node 0's release.

        This is not always the newest plan: a newer table may have come while the release was on its way.
        """
        return self._plans.get(digest, self._last)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.after(LOOK_S, self._look)
        version = self._version()
        if version != self._version_seen:
            self._version_seen = version
            plan = self._replan()
            digest = _digest(plan)
            if digest not in ("", _digest(self._last)):  # skips a half-written table, and one with the same content
                self._last = self._plans[digest] = plan
                self._tell(plan)

    def _version(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path)
        except (OSError, ValueError):
            return ()
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _digest(plan: Plan) -> str:
    return plan.muster.facts.get(TABLE, "") if plan.muster else ""
