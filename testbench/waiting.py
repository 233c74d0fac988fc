"""Waiting for a condition, with a deadline; nothing sleeps for a fixed time."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0  # of every wait: far more than a slow machine needs, so a timeout is a defect
LOOK_AGAIN_S = 0.01
SOON_S, LATER_S = 0.05, 0.5  # longest pauses between cheap checks, and between checks that ask other programs
LOWEST, HIGHEST = 20000, 29000  # ports: below the launchers' default (29500) and below the kernel's ephemeral ports (32768 and more)


def sleep_until(condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = DEADLINE_S) -> Any:
    """Return the first true value of `condition`. Raise AssertionError with `what` after `timeout` seconds."""
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < began + timeout, f"waited {timeout:g} s in vain: {what() if callable(what) else what}"
        pause(began, SOON_S)


def pause(began: float, at_most: float) -> None:
    """Sleep before the next check: 5 % of the time since `began`, at most `at_most` seconds."""
    time.sleep(min(at_most, max(LOOK_AGAIN_S, (time.monotonic() - began) / 20)))


def free_port(count: int = 1) -> int:
    """Return the first of `count` neighbouring ports. They are reserved until this process ends, against other callers on this machine.
    They lie below the kernel's range of ephemeral ports."""
    while True:
        first = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        reserved = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        try:
            for port, sock in enumerate(reserved, first):
                sock.bind(f"\0testbench-port-{port}")
                with socket.socket() as probe:
                    probe.bind(("", port))
        except OSError:
            for sock in reserved:
                sock.close()
            continue
        for sock in reserved:
            sock.detach()  # open as long as the process lives
        return first


def ranks_ready(text: str) -> int:
    """Count the lines "ready" of ranks on a console, where the muster says that the nodes are ready too."""
    return text.count("ready") - text.count("are ready")
