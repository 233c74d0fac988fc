"""Asks a program of the node's about its devices, and waits for nobody: what does not answer in time has said nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn

from ranklaunch.system import tree
from ranklaunch.system.bounded import forked
from ranklaunch.system.loop import Loop

LIMIT_S = 5.0
MOST = 1024 * 1024  # bytes of an answer


class Tool:
    """One, of which one copy at most runs at a time. env: its own. hear: what it has written, once it has ended."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], loop: Loop, hear: Callable[[str], None]) -> None:
        self._argv = argv
        self._env = dict(env)
        self._loop = loop
        self._hear = hear
        self._path = found(argv[0], env)
        self._answer = bytearray()
        self._child: tree.Identity | None = None
        self._readable = -1

    @property
    def running(self) -> bool:
        return self._child is not None

    def ask(self) -> None:
        if not self._path or self._child:
            return
        try:
            pid, self._readable = forked(self._become)
        except OSError:  # no process or descriptor left
            return
        child = self._child = tree.identify(pid)
        self._answer.clear()
        os.set_blocking(self._readable, False)
        self._loop.on_readable(self._readable, self._read)
        self._loop.after(LIMIT_S, lambda: self._give_up(child))

    def close(self) -> None:
        if self._child:
            self._give_up(self._child)

    def _read(self) -> None:
        try:
            block = os.read(self._readable, 65536)
        except BlockingIOError:
            return
        self._answer += block
        if len(self._answer) > MOST:
            self.close()
        elif not block:
            self._end()
            self._hear(self._answer.decode(errors="replace"))

    def _give_up(self, child: tree.Identity) -> None:
        if self._child == child:
            tree.send(child, signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        self._loop.forget(self._readable)
        os.close(self._readable)
        self._child = None

    def _become(self, writable: int) -> NoReturn:
        """In the child: never returns."""
        try:
            tree.die_with_parent()
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor, stream in ((null, 0), (writable, 1), (null, 2)):
                os.dup2(descriptor, stream)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve(self._path, self._argv, self._env)
        finally:
            os._exit(127)


def found(name: str, env: Mapping[str, str]) -> str:
    """Where a program is, by a PATH; "" where it is not there."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path(env) if folder)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")
