"""ranklaunch tune: find the fastest DeepSpeed configuration that fits, by experiments that are runs of their own."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.supervise import guardian
from ranklaunch.system.signals import Signals


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    assert isinstance(signals, Signals), "tune needs the process's signals: start it through script()"
    guard = guardian.divide(signals)
    # Imported after the division, so that the outer process, which only waits, stays small.
    from ranklaunch.tune.experiments import command

    dry = command.is_dry(argv, env)
    return command.show(dry) if dry else command.main(argv, env, signals, guard)
