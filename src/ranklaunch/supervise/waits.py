"""Waiting before launch: always with a deadline, and with a line at least every 30 s that says what is still missing.

Such a line is also what tells a platform's hang detector, which watches input and output, that the container is alive.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from ranklaunch.errors import WaitError
from ranklaunch.files import Files
from ranklaunch.plan import Plan, Wait
from ranklaunch.supervise.inotify import Inotify
from ranklaunch.supervise.loop import Loop, Timer

PROGRESS_S = 30.0
FIRST_PROGRESS_S = 2.0
LOOK_AGAIN_S = 0.5  # for changes that inotify does not see: another machine's, on a shared file system
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
    subject = wait.kind if wait.kind == "hosts" else f"{wait.kind} {wait.what}"  # what is missing names the hosts

    said = ""

    def progress() -> None:
        nonlocal said
        said = condition.missing()
        if said:
            say(f"waiting for {subject}: {said} ({loop.clock() - began:.0f} of {wait.timeout_s:g} s)")
        timers["progress"] = loop.after(PROGRESS_S, progress)

    def look_again() -> None:  # also what ends a step of the loop, so that the deadline below is seen
        timers["look"] = loop.after(LOOK_AGAIN_S, look_again)
        if said and condition.missing() not in ("", said):  # something has moved: worth a line of its own
            timers["progress"].cancel()
            progress()

    timers["progress"] = loop.after(FIRST_PROGRESS_S, progress)
    look_again()
    try:
        while True:
            missing = condition.missing()
            if not missing or stopped():
                return loop.clock() - began
            if loop.clock() - began >= wait.timeout_s:
                msg = f"waited {wait.timeout_s:g} s in vain for {subject}: {missing}; RANKLAUNCH_WAIT_S sets how long"
                raise WaitError(msg)
            loop.step()
    finally:
        for timer in timers.values():
            timer.cancel()
        condition.close()


class Planned:
    """A rank table, or whatever else a plan says that it lacks: the plan is made anew when the file has changed, and what it then
    says is the answer, so that a table is never judged in two places. plan: the one that lacks nothing any more."""

    def __init__(self, wait: Wait, files: Files, loop: Loop, replan: Callable[[], Plan]) -> None:
        self.plan: Plan | None = None
        self._wait = wait
        self._files = files
        self._replan = replan
        self._seen: tuple[int, ...] = ()
        self._missing = wait.seen or "not there yet"
        self._loop = loop
        self._inotify = Inotify()  # ends a step of the loop as soon as the folder changes; missing() is then asked again
        if self._inotify.fd >= 0:
            self._inotify.watch(os.path.dirname(files.real(wait.what)))
            loop.on_readable(self._inotify.fd, self._inotify.changed)

    def missing(self) -> str:
        version = self._version()
        if version and version != self._seen:
            self._seen = version
            self.plan = self._replan()
            left = [wait for wait in self.plan.waits if (wait.kind, wait.what) == (self._wait.kind, self._wait.what)]
            self._missing = left[0].seen if left else ""
        return self._missing

    def close(self) -> None:
        if self._inotify.fd >= 0:
            self._loop.forget(self._inotify.fd)
        self._inotify.close()

    def _version(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._files.real(self._wait.what))
        except (OSError, ValueError):
            self._missing, self._seen = "no such file", ()
            return ()
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


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
