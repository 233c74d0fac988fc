"""Runs of the user's command (RANKLAUNCH_ON_EVENT) at events of the job. A failure of the command changes nothing in the job."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from ranklaunch.system import bounded, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import name_of

MOST_BYTES = 64 * 1024  # of the command's output that are shown
BLOCK = 65536
DIES_S = 1.0  # after SIGKILL; longer if the process is stuck in the kernel


class Hook:
    """One run of a command, for at most limit_s. say: prints a console line. ended: called once, after the run. Raises OSError if no
    process or descriptor is left."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], limit_s: float, loop: Loop, say: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._name = argv[0]
        self._loop, self._say, self._ended = loop, say, ended
        self._begun = b""  # a line without its end yet
        self._taken = 0
        self.running = True
        self._pid, self._readable = bounded.program(argv, env, stderr=True)
        tree.wanted[self._pid] = None
        self._pidfd = _pidfd(self._pid)
        os.set_blocking(self._readable, False)
        loop.on_readable(self._readable, self._read)
        if self._pidfd >= 0:
            loop.on_readable(self._pidfd, self._on_end)
        self._limit = loop.after(limit_s, self.end, f"was killed after {limit_s:.3g} s, the limit of a run")

    def end(self, why: str = "") -> None:
        """Kill the command and its process group. why: for the console, "" to print nothing."""
        if not self.running:
            return
        if why:
            self._say(f"{self._name} {why}")
        self._finish()

    def _read(self) -> None:
        """Show the output. Without a pidfd the end of the output counts as the end of the command."""
        while self.running:
            try:
                block = os.read(self._readable, BLOCK)
            except BlockingIOError:
                return
            if not block:
                if self._pidfd < 0:
                    self._on_end()
                else:
                    self._loop.forget(self._readable)
                return
            self._show(block)

    def _show(self, block: bytes) -> None:
        before, self._taken = self._taken, self._taken + len(block)
        *lines, self._begun = (self._begun + block[: max(0, MOST_BYTES - before)]).split(b"\n")
        for line in lines:
            self._say(line.decode(errors="backslashreplace"))
        if before <= MOST_BYTES < self._taken:
            self._say(f"{self._name} writes more than {MOST_BYTES >> 10} KiB: the rest is not shown")

    def _on_end(self) -> None:
        """Print how the command ended, unless with 0."""
        self._read_rest()
        status = self._finish()
        if status:
            self._say(f"{self._name} {_described(status)}")

    def _read_rest(self) -> None:
        try:
            while block := os.read(self._readable, BLOCK):
                self._show(block)
        except OSError:  # no more output now; processes that still have the pipe are killed next
            pass

    def _finish(self) -> int:
        """Return the wait status."""
        self.running = False
        self._limit.cancel()
        for fd in (self._readable, self._pidfd):
            if fd >= 0:
                with contextlib.suppress(KeyError):  # forgotten at the end of the output
                    self._loop.forget(fd)
                os.close(fd)
        status = self._end_group()
        if self._begun:
            self._say(self._begun.decode(errors="backslashreplace"))
        self._ended()
        return status

    def _end_group(self) -> int:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            pass
        status = tree.forsake(self._pid, DIES_S)
        return int(signal.SIGKILL) if status is None else status


def _pidfd(pid: int) -> int:
    """Return a pidfd, -1 if this system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _described(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {name_of(os.WTERMSIG(status))}"
    return f"ended with code {os.WEXITSTATUS(status)}"
