"""Processes in /proc, and the set of one test's processes."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

from testbench.waiting import DEADLINE_S, LOOK_AGAIN_S, sleep_until

MARK = "RANKLAUNCH_TEST_ID"


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def state_of(pid: int) -> str:
    """Return the state letter in /proc, "" for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid: int) -> list[int]:
    return [child for child in pids() if parent_of(child) == pid]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def memory_of(pid: int, field: str = "VmRSS") -> int:
    """Return a field of /proc/PID/status in kilobytes; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


class Family:
    """All processes of one test: each inherits the variable MARK with a unique value."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._needle = f"{MARK}={self.mark}".encode()

    def members(self) -> list[int]:
        """Return the pids, without zombies, which have no environment."""
        return [pid for pid in pids() if pid != os.getpid() and self._needle in _environment(pid)]

    def wait_until_gone(self, timeout: float = DEADLINE_S) -> None:
        sleep_until(lambda: not self.members(), lambda: f"left: {self.describe()}", timeout)

    def describe(self) -> str:
        return "; ".join(f"{pid} ({state_of(pid)}) {command_of(pid)}" for pid in self.members()) or "none"

    def kill(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            members = self.members()
            if not members:
                return
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(LOOK_AGAIN_S)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
