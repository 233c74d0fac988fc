"""Search for an outer run of the same job: an inner run would train everything twice, and take the outer one's files for its own ranks'.

Every process of a run has a mark in its environment: the run's own process, its job, and its log folder. A mark counts as long as the
run's process lives on this machine: a mark carried to another host, or left over from an ended run, names none.
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
    """Outer run: the direct or indirect parent of this one. start: as in tree.Identity. job: its name. logs: its log folder,
    with its attempt's folder inside."""

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
        process = tree.entry(int(pid))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return Outer(int(pid), process.start, job, logs, attempt) if process and process.start == start and process.state not in "ZX" else None
