"""A run below another one of the same job would train everything twice, and take the other's files for those of its own ranks.

Every process that a run starts has a mark in its environment: which process runs it, for which job, and where its logs are. A mark counts
as long as that process lives on this machine: one that was carried to another host, or that has outlived its run, names none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ranklaunch.errors import ConfigError
from ranklaunch.processes.children import MARK
from ranklaunch.system import tree


@dataclass(frozen=True)
class Outer:
    """A run that started, directly or not, what runs here. start: as in tree.Identity. job: its name. logs: its log folder, in which that
    of its attempt is."""

    pid: int
    start: int
    job: str
    logs: str
    attempt: str

    def require_other(self, job: str, logs: str) -> None:
        """Raises ConfigError where a job of that name, or with that log folder, is this one."""
        if job == self.job or logs == self.logs:
            msg = (
                f"this ranklaunch run is below another one of the same job: pid {self.pid}, job {self.job!r}, logs in {self.attempt}. "
                "Start the program itself: the image's ENTRYPOINT may be a ranklaunch run already. A job of its own, which a program may "
                "start, needs another --job-name and another --log-dir than that"
            )
            raise ConfigError(msg)


def unmarked(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != MARK}


def outer(env: Mapping[str, str]) -> Outer | None:
    """The run that is marked there, if it still lives here."""
    try:
        pid, start, *texts = json.loads(env.get(MARK, "[]"))
        job, logs, attempt = map(str, texts)
        found = tree.entry(int(pid))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return Outer(int(pid), found.start, job, logs, attempt) if found and found.start == start and found.state not in "ZX" else None
