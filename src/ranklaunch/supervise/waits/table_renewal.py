"""A rank table that the platform makes anew while the nodes meet for another start: each of them sees that at a time of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

from ranklaunch.files import Files
from ranklaunch.plan.model import TABLE, Plan
from ranklaunch.system.loop import Loop

LOOK_S = 0.5


class Renewed:
    """plan: by the rank table of a while ago; replan: by the table at the time of the call. tell: report readiness by another plan."""

    def __init__(self, plan: Plan, files: Files, loop: Loop, replan: Callable[[], Plan], tell: Callable[[Plan], None]) -> None:
        self._path = files.real(plan.job.rank_table)
        self._loop = loop
        self._replan = replan
        self._tell = tell
        self._last = plan
        self._plans = {_digest(plan): plan}
        self._seen: tuple[int, ...] = ()  # it may have been made anew since the plan was made
        self._timer = loop.after(LOOK_S, self._look)

    def plan(self, digest: str) -> Plan:
        """The one that all nodes start by, be it the last or, where the release was on its way as the last came, one before."""
        return self._plans.get(digest, self._last)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.after(LOOK_S, self._look)
        version = self._version()
        if version != self._seen:
            self._seen = version
            plan = self._replan()
            digest = _digest(plan)
            if digest not in ("", _digest(self._last)):  # else it is half-written, or of no other content
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
