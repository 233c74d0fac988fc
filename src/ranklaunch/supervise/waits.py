"""Waiting before launch: always with a deadline, and with a line at least every 30 s that says what is still missing.

Such a line is also what tells a platform's hang detector, which watches input and output, that the container is alive.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from ranklaunch import ranktable
from ranklaunch.errors import WaitError
from ranklaunch.files import Files
from ranklaunch.plan import Wait
from ranklaunch.supervise.loop import Loop, Timer

PROGRESS_S = 30.0
FIRST_PROGRESS_S = 2.0
LOOK_AGAIN_S = 0.25
RETRY_S = 1.0  # between attempts to resolve a name; name servers remember a miss for some seconds


class Condition(Protocol):
    """Something that is waited for."""

    def missing(self) -> str:
        """What is still missing; "" when nothing is."""
        ...

    def close(self) -> None: ...


def perform(wait: Wait, condition: Condition, loop: Loop, say: Callable[[str], None], stopped: Callable[[], bool]) -> float:
    """Runs the loop until the condition holds or `stopped` does; seconds waited. Raises WaitError at the deadline."""
    began = loop.clock()
    timers: dict[str, Timer] = {}

    def progress() -> None:
        say(f"waiting for {wait.kind} {wait.what}: {condition.missing()} ({loop.clock() - began:.0f} of {wait.timeout_s:g} s)")
        timers["progress"] = loop.after(PROGRESS_S, progress)

    def look_again() -> None:  # also what ends a step of the loop, so that the deadline below is seen
        timers["look"] = loop.after(LOOK_AGAIN_S, look_again)

    timers["progress"] = loop.after(FIRST_PROGRESS_S, progress)
    look_again()
    try:
        while True:
            missing = condition.missing()
            if not missing or stopped():
                return loop.clock() - began
            if loop.clock() - began >= wait.timeout_s:
                msg = f"waited {wait.timeout_s:g} s in vain for {wait.kind} {wait.what}: {missing}; RANKLAUNCH_WAIT_S sets how long"
                raise WaitError(msg)
            loop.step()
    finally:
        for timer in timers.values():
            timer.cancel()
        condition.close()


def condition_of(wait: Wait, files: Files, loop: Loop) -> Condition:
    return TableCompleted(wait.what, files) if wait.kind == "rank table" else HostsResolve(wait.what.split(","), loop)


class TableCompleted:
    """A rank table that is there, whole and completed. Read again only when the file has changed."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._files = files
        self._seen: tuple[int, ...] = ()
        self._missing = ""

    def missing(self) -> str:
        seen = self._version()
        if seen != self._seen or not self._missing:
            self._seen = seen
            self._missing = self._look()
        return self._missing

    def close(self) -> None:
        pass

    def _version(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._files.real(self._path))
        except (OSError, ValueError):
            return ()
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def _look(self) -> str:
        try:
            ranktable.load(self._path, self._files)
        except ranktable.NotReadyError as error:
            return str(error)
        return ""


class HostsResolve:
    """Names that resolve to an address. The system's resolver blocks, so each name has a thread, before any rank is started."""

    def __init__(self, names: list[str], loop: Loop) -> None:
        self._unresolved = {name: "does not resolve yet" for name in names if not _numeric(name)}
        self._closed = threading.Event()
        self._loop = loop
        self._readable, self._writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        loop.on_readable(self._readable, self._woken)
        for name in list(self._unresolved):
            threading.Thread(target=self._resolve, args=(name,), daemon=True).start()

    def missing(self) -> str:
        items = sorted(self._unresolved.items())
        named = ", ".join(f"{name} ({why})" for name, why in items[:5])
        return f"{named}{f' and {len(items) - 5} more' if len(items) > 5 else ''}"

    def close(self) -> None:
        self._closed.set()
        self._loop.forget(self._readable)

    def _woken(self) -> None:
        os.read(self._readable, 4096)

    def _resolve(self, name: str) -> None:
        while not self._closed.is_set():
            try:
                socket.getaddrinfo(name, None)
            except (OSError, UnicodeError) as error:
                self._unresolved[name] = str(error)
            else:
                self._unresolved.pop(name)
                os.write(self._writable, b".")
                return
            self._closed.wait(RETRY_S)


def _numeric(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        return False
    return True
