"""Waiting for a condition, with a deadline: nothing here sleeps for a time and hopes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0  # of every wait: far more than a slow machine needs, so that reaching it is a defect
LOOK_AGAIN_S = 0.01


def sleep_until(condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = DEADLINE_S) -> Any:
    """The first true value of condition. Fails, saying what was waited for, when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout:g} s in vain: {what() if callable(what) else what}"
        time.sleep(LOOK_AGAIN_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
