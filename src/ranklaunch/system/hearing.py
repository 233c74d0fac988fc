"""Who hears a signal, by what Linux says of each process: which it catches, blocks, ignores, or waits for (/proc/PID/status, wchan)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection

from ranklaunch.system.tree import Entry, Identity, by_parent, read

RUNS_SCRIPTS = ("sh", "bash", "dash", "ash", "busybox", "ksh", "ksh93", "mksh", "zsh")  # as their files are called
_SIGTIMEDWAIT = {"x86_64": b"128", "aarch64": b"137"}  # number of the call


class Hearing:
    """Who hears a signal, at the time of one look: the processes that catch it, or wait for it. through_all: they are looked for below
    any process that does not, else below shells alone, which would die of it and leave those that they have started. told: those that have
    heard it before, and that count as long as they live: they may have passed it on, and ignore it since, as timeout does."""

    def __init__(self, number: int, through_all: bool = False, told: Collection[Identity] = ()) -> None:
        self._number, self._told = number, told
        self._through_all = through_all
        self._below: dict[int, list[tuple[int, Entry]]] | None = None

    def of(self, root: Identity) -> list[Identity]:
        """The first on each way down from a process, itself included."""
        found: list[Identity] = []
        left = [root]
        while left:
            process = left.pop()
            shell = is_shell(process.pid)
            if process in self._told or self._heard_by(process.pid, shell):
                found.append(process)
            elif shell or self._through_all:
                left += self.children(process.pid)
        return found

    def children(self, pid: int) -> list[Identity]:
        """Those that live."""
        if self._below is None:
            try:
                self._below = by_parent()
            except OSError:  # no descriptor left
                self._below = {}
        return [Identity(child, found.start) for child, found in self._below.get(pid, []) if found.state not in "ZX"]

    def _heard_by(self, pid: int, shell: bool) -> bool:
        """A shell that waits for a program catches SIGINT, to see whether that dies of it; with an exit trap, it dies of all it catches.
        Signals that a shell blocks, it blocks for the moment in which it starts a program."""
        caught, blocked, _ = _dispositions(pid)
        if shell:
            return _has(caught, self._number) and self._number != signal.SIGINT and not _has(caught, signal.SIGILL)
        return _has(caught | blocked, self._number) or _waits_for_signals(pid)


def is_pending(pid: int, number: int) -> bool:
    """Whether a process has been sent a signal and has not taken it yet."""
    text = read(f"/proc/{pid}/status", 16384)
    return any(_has(int(found, 16), number) for found in re.findall(rb"^(?:Sig|Shd)Pnd:\s*([0-9a-f]+)", text, re.MULTILINE))


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: one without is never sent it."""
    return _has(_dispositions(pid)[0], number)


def ignores(pid: int, number: int) -> bool:
    """Whether a process takes no notice of a signal."""
    return _has(_dispositions(pid)[2], number)


def _has(signals: int, number: int) -> bool:
    return bool(signals >> (number - 1) & 1)


def _dispositions(pid: int) -> list[int]:
    """Signals that a process catches, those that its first thread blocks, and those that it ignores, a bit for each."""
    text = read(f"/proc/{pid}/status", 16384)
    found = (re.search(rb"^%s:\s*([0-9a-f]+)" % name, text, re.MULTILINE) for name in (b"SigCgt", b"SigBlk", b"SigIgn"))
    return [int(each[1], 16) if each else 0 for each in found]


def _waits_for_signals(pid: int) -> bool:
    """In sigwait, during which the signals that it waits for do not count as blocked. A busy kernel does not name the place for a moment
    after a process has gone to sleep; its call it does name."""
    place = read(f"/proc/{pid}/wchan")
    return b"sigtimedwait" in place or (
        place == b"0" and read(f"/proc/{pid}/syscall").split(b" ")[0] == _SIGTIMEDWAIT.get(os.uname().machine)
    )


def is_shell(pid: int) -> bool:
    """By its file: a script is called after its own."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in RUNS_SCRIPTS
    except OSError:
        return False
