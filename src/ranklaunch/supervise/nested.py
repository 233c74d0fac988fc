"""Search for an outer run of the same job: an inner run would train everything twice, and mistake files of the outer run for its own.

Every process of a run has a mark in its environment: the run's process, job and log folder. A mark counts as long as this process
lives on this machine. A mark that was carried to another host, or that is left over from an ended run, does not count.
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
    """Outer run: a direct or indirect parent of this run.

    start: as in tree.Identity. job: name of its job. logs: its log folder. attempt: folder of its attempt inside.
    """

    pid: int
    start: int
    job: str
    logs: str
    attempt: str

    def require_other(self, job: str, logs: str) -> None:
        """Require a job other than the outer one. Raises ConfigError if its name or log folder is the same."""
        if job == self.job or logs == self.logs:
            msg = (
                f"this ranklaunch run is inside another run of the same job: pid {self.pid}, job {self.job!r}, logs in {self.attempt}. "
                "Start the program itself: the image's ENTRYPOINT may be a ranklaunch run already. To start a separate job here, give it "
                "another --job-name and another --log-dir"
            )
            raise ConfigError(msg)


def unmarked(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != MARK}


def outer(env: Mapping[str, str]) -> Outer | None:
    """Return the run that is marked in an environment, None unless that run lives on this machine."""
    try:
        pid, start, *texts = json.loads(env.get(MARK, "[]"))
        job, logs, attempt = map(str, texts)
        process = tree.entry(int(pid))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return Outer(int(pid), process.start, job, logs, attempt) if process and process.start == start and process.state not in "ZX" else None
