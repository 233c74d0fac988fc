"""ranklaunch run: launch this node's part of the job, stay with it, and end with its exit code."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.supervise import guardian
from ranklaunch.system.signals import Signals


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    assert isinstance(signals, Signals), "run needs the process's signals: start it through script()"
    guard = guardian.divide(signals)
    # Imported after the division, so that the outer process, which only waits, stays small.
    from ranklaunch.cli import launch

    return launch.main(argv, env, signals, guard)
