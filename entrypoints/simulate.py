"""ranklaunch simulate: run a whole job on this machine, with one real `ranklaunch run` per node on 127.0.0.x."""

from __future__ import annotations

from collections.abc import Mapping

from ranklaunch.supervise import guardian
from ranklaunch.system.signals import Signals


def main(argv: list[str], env: Mapping[str, str], signals: object = None) -> int:
    assert isinstance(signals, Signals), "simulate needs the process's signals: start it through script()"
    guard = guardian.divide(signals)
    from ranklaunch.cli import simulation

    return simulation.main(argv, env, signals, guard)
