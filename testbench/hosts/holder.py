"""Processes of a host: holders of its namespaces, and programs that run in it."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from testbench.hosts import kernel
from testbench.hosts.kernel import DEADLINE_S
from testbench.waiting import LATER_S, pause


def wait_until(condition: Callable[[], Any], what: str, timeout: float = DEADLINE_S) -> Any:
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > began + timeout:
            msg = f"waited {timeout:g} s in vain: {what}"
            raise TimeoutError(msg)
        pause(began, LATER_S)  # frequent checks of Slurm's state or of a host's processes would take a whole core


def state_and_parent(pid: int) -> tuple[str, int]:
    fields = kernel.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if fields else ("", 0)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def describe(pid: int) -> str:
    command = kernel.read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return f"{pid} ({state_and_parent(pid)[0]}) {command or kernel.read(f'/proc/{pid}/comm').strip()}"


class Holder:
    """A process that holds namespaces and lives while its stdin is open. pid: the process whose namespaces are joined."""

    def __init__(self, *words: object, inside: int = 0) -> None:
        self.popen = subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach only the process that cleans up
            preexec_fn=(lambda: kernel.join_network(inside)) if inside else None,
        )
        self.pid = 0
        self._pidfd: int | None = None  # safe to kill by: the pid may belong to another process by then
        self.group = ""
        self.error = ""

    def finish_start(self) -> None:
        """Wait until the process is ready. Apart from the constructor, so that several can start at once."""
        lines = self._first_lines().splitlines()  # from two processes, in any order
        pid, _, self.group = next((line for line in lines if line != "ready"), "0").partition(" ")
        self.pid = int(pid) or self.popen.pid
        if "ready" in lines:
            self._pidfd = os.pidfd_open(self.pid)
        else:
            self.end()
            msg = f"{shlex.join(self.popen.args)}: {self.error or 'did not become ready'}"  # type: ignore[arg-type]
            raise RuntimeError(msg)

    def _first_lines(self) -> str:
        assert self.popen.stdout
        text = b""
        deadline = time.monotonic() + DEADLINE_S
        while text.count(b"\n") < 2 and select.select([self.popen.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            data = os.read(self.popen.stdout.fileno(), 4096)
            if not data:
                break
            text += data
        return text.decode()

    def tell(self, line: str) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None

    def end(self) -> None:
        """Return when the process, its namespaces and its group have ended. A process that is not ready ends when its stdin closes."""
        self.kill()
        if self.popen.returncode is None:
            self.error = self.popen.communicate(timeout=DEADLINE_S)[1].strip()


class Entered(subprocess.Popen):  # type: ignore[type-arg]
    """A program in a host. pid: numbered by this machine."""

    as_pid_1 = False

    @property
    def target(self) -> int:
        """Pid of the program itself. With as_pid_1 its parent forwards signals and exits like the program."""
        return wait_until(self._find_child, "the program has not started", 10) if self.as_pid_1 else self.pid

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program itself, so that also after SIGKILL it has ended when `wait` returns."""
        if self.as_pid_1 and self.poll() is None:
            os.kill(self.target, sig)
        else:
            super().send_signal(sig)

    def _find_child(self) -> int:
        return next((pid for pid in pids() if state_and_parent(pid)[1] == self.pid), 0)
