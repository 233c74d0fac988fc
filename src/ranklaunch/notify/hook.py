"""A command of the user's that is run when something has happened to the job: a helper, whose failure changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from ranklaunch.system import tree
from ranklaunch.system.bounded import forked
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import OURS, name_of

MOST_BYTES = 64 * 1024  # of what it writes, that are shown
BLOCK = 65536
NOT_STARTED = 127
DIES_S = 1.0  # by SIGKILL, unless the kernel holds it


class Hook:
    """One run of it. say: a line for people. ended: called once. It is ended, with all of its process group, after limit_s. Raises OSError
    where no process or descriptor is left."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], limit_s: float, loop: Loop, say: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._argv, self._env = list(argv), dict(env)
        self._loop, self._say, self._ended = loop, say, ended
        self._begun = b""  # a line that has not ended
        self._taken = 0
        self.running = True
        self._pid, self._readable = forked(self._become)
        tree.wanted[self._pid] = None
        self._pidfd = _pidfd(self._pid)
        self._watched: set[int] = set()
        os.set_blocking(self._readable, False)
        self._watch(self._readable, self._read)
        if self._pidfd >= 0:
            self._watch(self._pidfd, self._on_end)
        self._limit = loop.after(limit_s, lambda: self._give_up(f"is ended after {limit_s:.3g} s"))

    def _watch(self, fd: int, heard: Callable[[], None]) -> None:
        self._loop.on_readable(fd, heard)
        self._watched.add(fd)

    def _forget(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.remove(fd)
            self._loop.forget(fd)

    def end(self, why: str = "") -> None:
        """why: is said, unless there is nothing to say."""
        if self.running:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        if why:
            self._say(f"{self._argv[0]} {why}")
        self._finish()

    def _read(self) -> None:
        """Without a pidfd, the end of its output is its end."""
        while self.running:
            try:
                block = os.read(self._readable, BLOCK)
            except BlockingIOError:
                return
            if not block:
                self._forget(self._readable)
                if self._pidfd < 0:
                    self._on_end()
                return
            self._show(block)

    def _show(self, block: bytes) -> None:
        before, self._taken = self._taken, self._taken + len(block)
        *lines, self._begun = (self._begun + block[: max(0, MOST_BYTES - before)]).split(b"\n")
        for line in lines:
            self._say_line(line)
        if before <= MOST_BYTES < self._taken:
            self._say(f"{self._argv[0]} writes more than {MOST_BYTES >> 10} KiB: the rest is not shown")

    def _say_line(self, line: bytes) -> None:
        self._say(line.decode(errors="backslashreplace"))

    def _on_end(self) -> None:
        """It has. Unless it was fetched just before, its group is its own."""
        self._read_rest()
        status = self._finish()
        if status:
            self._say(f"{self._argv[0]} {_told(status)}")

    def _read_rest(self) -> None:
        try:
            while block := os.read(self._readable, BLOCK):
                self._show(block)
        except OSError:  # nothing more for now; what still has the pipe is ended next
            pass

    def _finish(self) -> int:
        """Its wait status."""
        self.running = False
        self._limit.cancel()
        for fd in (self._readable, self._pidfd):
            if fd >= 0:
                self._forget(fd)
                os.close(fd)
        status = self._end_group()
        if self._begun:
            self._say_line(self._begun)
        self._ended()
        return status

    def _end_group(self) -> int:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            pass
        status = tree.forsake(self._pid, DIES_S)
        return int(signal.SIGKILL) if status is None else status

    def _become(self, writable: int) -> NoReturn:
        """In the child: never returns."""
        try:
            tree.die_with_parent()
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor, stream in ((null, 0), (writable, 1), (writable, 2)):
                os.dup2(descriptor, stream)
            for number in (*OURS, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve(shutil.which(self._argv[0], path=self._env.get("PATH")) or self._argv[0], self._argv, self._env)
        except OSError as error:
            os.write(2, f"{self._argv[0]}: {error.strerror}".encode())
        finally:
            os._exit(NOT_STARTED)


def _pidfd(pid: int) -> int:
    """-1 where this system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _told(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {name_of(os.WTERMSIG(status))}"
    return f"ended with code {os.WEXITSTATUS(status)}"
