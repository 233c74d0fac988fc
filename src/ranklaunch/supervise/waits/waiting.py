"""Waits before the launch, each with a deadline. At least every 30 s a line names the missing part.

A platform's hang detector may watch input and output of the container: such a line shows that the container is alive.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ranklaunch.errors import WaitError
from ranklaunch.files import Files
from ranklaunch.plan.model import Plan, Wait
from ranklaunch.system import lookup
from ranklaunch.system.inotify import Inotify
from ranklaunch.system.loop import Loop, Timer

PROGRESS_S = 30.0
FIRST_PROGRESS_S = 2.0
LOOK_AGAIN_S = 0.5  # for changes that inotify does not see: by another machine, on a shared file system
RETRY_S = 1.0  # between attempts to resolve a name; name servers cache a miss for some seconds
ASKED_AT_ONCE = 256  # names resolved in parallel, each in a thread
NAMED = 5  # missing items that a line names
LOOK_ANYHOW_S = 5.0  # between looks at a file that seems unchanged: some file systems have times in whole seconds


class Condition(Protocol):
    """Condition of a wait."""

    def missing(self) -> str:
        """Return what is still missing, "" for nothing."""

    def close(self) -> None: ...


def perform(wait: Wait, condition: Condition, loop: Loop, say: Callable[[str], None], stopped: Callable[[], bool]) -> float:
    """Run the loop until the condition holds, or `stopped` returns True. Return the seconds
    waited. Raises WaitError at the deadline."""
    began = loop.clock()
    timers: dict[str, Timer] = {}
    subject = wait.kind if wait.kind == "hosts" else f"{wait.kind} {wait.what}"  # missing() names the hosts

    reported = ""

    def progress() -> None:
        nonlocal reported
        reported = condition.missing()
        if reported:
            say(f"waiting for {subject}: {reported} ({loop.clock() - began:.0f} of {wait.timeout_s:g} s)")
        timers["progress"] = loop.after(PROGRESS_S, progress)

    def look_again() -> None:  # also ends a step of the loop, so that the deadline is checked
        timers["look"] = loop.after(LOOK_AGAIN_S, look_again)
        if reported and condition.missing() not in ("", reported):  # a change deserves a new line
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
                msg = f"waited {wait.timeout_s:g} s in vain for {subject}: {missing}; --wait-s (RANKLAUNCH_WAIT_S) sets how long"
                raise WaitError(msg)
            loop.step()
    finally:
        for timer in timers.values():
            timer.cancel()
        condition.close()


class Planned:
    """Condition: a file of the plan is complete, for example a rank table.

    When the file changes, the plan is made anew, and the waits of the new plan name the missing part: so only planning
    judges a table. plan: the newest plan, None before a change.
    """

    def __init__(self, wait: Wait, files: Files, loop: Loop, replan: Callable[[], Plan]) -> None:
        self.plan: Plan | None = None
        self._wait = wait
        self._path = wait.what
        self._files = files
        self._replan = replan
        self._version_seen: tuple[int, ...] = ()
        self._missing = wait.seen or "not there yet"
        self._loop = loop
        self._inotify = Inotify()  # a change of the folder ends a step of the loop; missing() is then called again
        if self._inotify.fd >= 0:
            self._inotify.watch(os.path.dirname(files.real(wait.what)))
            loop.on_readable(self._inotify.fd, self._inotify.changed)

    def missing(self) -> str:
        version = self._version()
        if version != self._version_seen:
            self._version_seen = version
            self.plan = self._replan()
            remaining = next((wait for wait in self.plan.waits if wait.kind == self._wait.kind), None)
            self._path = remaining.what if remaining else self._path  # another file of a folder may have appeared or gone
            now = f"now {self._path}: " if self._path != self._wait.what else ""
            self._missing = f"{now}{remaining.seen}" if remaining else ""
        return self._missing

    def close(self) -> None:
        if self._inotify.fd >= 0:
            self._loop.forget(self._inotify.fd)
        self._inotify.close()

    def _version(self) -> tuple[int, ...]:
        """Return the version of the file and of its folder: another file may replace this one."""
        path = self._files.real(self._path)
        return (*_status(path), *_status(os.path.dirname(path)), int(self._loop.clock() // LOOK_ANYHOW_S))


def _status(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class HostsResolve:
    """Condition: all host names resolve. addresses: IPv4 address of each name, as resolved on this
    node."""

    def __init__(self, names: list[str], loop: Loop) -> None:
        self.addresses = {name: name for name in names if lookup.numeric(name)}
        self._unresolved = {name: "its name does not resolve yet" for name in names if name not in self.addresses}
        self._asking = list(self._unresolved)
        self._loop = loop
        self._lookups = lookup.Lookups(loop, ASKED_AT_ONCE)
        self._closed = False
        for _ in range(ASKED_AT_ONCE):
            self._ask()

    def missing(self) -> str:
        return some(self._unresolved)

    def close(self) -> None:
        self._closed = True
        self._lookups.close()

    def _ask(self) -> None:
        if self._asking and not self._closed:
            name = self._asking.pop(0)
            self._lookups.ask(name, 0, partial(self._answered, name))

    def _answered(self, name: str, addresses: Sequence[lookup.Address], why: str) -> None:
        if addresses:
            self.addresses[name] = lookup.ipv4(addresses) or name
            self._unresolved.pop(name, None)
            self._ask()
        else:
            self._unresolved[name] = why
            self._asking.append(name)
            self._loop.after(RETRY_S, self._ask)


def some(missing: Mapping[str, str]) -> str:
    """Return the first NAMED names with their reasons, and the number of the rest. Cheap for
    thousands of names: called again after each answer."""
    named = ", ".join(f"{name} ({why})" for name, why in itertools.islice(missing.items(), NAMED))
    return f"{named} and {len(missing) - NAMED} more" if len(missing) > NAMED else named
