"""The process tree, read from /proc. Processes are known by pid and start time, so a reused pid is never signalled."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import time
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

NAME_BYTES = 15
SHELLS = ("sh", "bash", "dash")
HOST = "pid:[4026531836]"  # the machine's own processes, as the kernel numbers that namespace
LONGEST_START_S = 3600.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# Children, by pid, that a part of this process wants to know the wait status of, and that status once another part has fetched it: as the
# reaper of orphans ranklaunch fetches whatever has ended. Each leads a process group, and whoever has started it ends it: nothing in that
# group belongs to the job, so no look at what lives below this process shows it.
wanted: dict[int, int | None] = {}


FORSAKEN = -1  # in its place: whoever has started it does not wait for it any more


# What this process has started for itself last: no rank has.
helpers: deque[Identity] = deque(maxlen=64)


# Those that may not be signalled, having become another user's, as sudo does; each as people call it.
refused: dict[Identity, str] = {}


class Identity(NamedTuple):
    """start: clock ticks since boot at which the process started; with the pid it names one process for ever."""

    pid: int
    start: int


class Entry(NamedTuple):
    """name: of the program, cut by the kernel to 15 bytes. status: the wait status of a zombie. ticks: of CPU time; inherited: of children
    that have ended. pages: in memory."""

    parent: int
    state: str
    start: int
    name: str = ""
    status: int = 0
    ticks: int = 0
    inherited: int = 0
    pages: int = 0


def read(path: str, most: int = 4096) -> bytes:
    """A file of /proc, at once; b"" where it cannot be: of a process that is gone, or that may not be looked at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)


def entry(pid: int) -> Entry | None:
    """What /proc says of a process, None when it is gone."""
    text = read(f"/proc/{pid}/stat")
    if not text:
        return None
    end = text.rindex(b")")  # the name before it may hold anything
    fields = text[end + 2 :].split()
    name = text[text.index(b"(") + 1 : end].decode(errors="replace")
    return Entry(
        parent=int(fields[1]),
        state=chr(fields[0][0]),
        start=int(fields[19]),
        name=name,
        status=int(fields[49]),
        ticks=int(fields[11]) + int(fields[12]),
        inherited=int(fields[13]) + int(fields[14]),
        pages=int(fields[21]),
    )


def container_s() -> float | None:
    """Seconds since this container started, which did so to bring us here; None outside one, for whoever was brought into one that runs,
    and in one that had done something else before."""
    try:
        if os.readlink("/proc/self/ns/pid") == HOST:
            return None
        pid, generations = os.getpid(), 0
        while pid > 1 and generations < 64:
            parent = entry(pid)
            pid, generations = parent.parent if parent else 0, generations + 1
        first = entry(1) if pid == 1 else None
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - first.start / os.sysconf("SC_CLK_TCK") if first else -1.0
    except (OSError, ValueError):
        return None
    return round(seconds, 3) if 0 <= seconds <= LONGEST_START_S else None


def wait_status(process: Identity) -> int | None:
    """Of one that has ended and whose parent has not fetched it yet; None where that is too late, or not ours to know."""
    found = entry(process.pid)
    return found.status if found and found.state == "Z" and found.start == process.start else None


def identify(pid: int) -> Identity:
    found = entry(pid)
    return Identity(pid, found.start if found else 0)


def is_dead(child: int) -> bool:
    """Whether a child of this process is, and only waits to be reaped. Raises ChildProcessError where it was."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def has_children() -> bool:
    """Whether this process has any child of the job, dead or alive. It is the subreaper, so whatever lives below it hangs from a child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return not wanted or bool(by_parent().get(os.getpid()))


def descendants(root: int) -> list[Identity]:
    """Every living process below root, zombies left out: those are dead already and only wait to be reaped."""
    return [Identity(pid, found.start) for pid, found in _below(root)]


def generation(root: int, number: int) -> list[Identity]:
    """Living processes that many generations below root: 1 for its children."""
    below = by_parent()
    parents = [root]
    found: list[tuple[int, Entry]] = []
    for _ in range(number):
        found = [each for parent in parents for each in below.get(parent, ())]
        parents = [pid for pid, _ in found]
    return [Identity(pid, e.start) for pid, e in found if e.state not in "ZX"]


def names_below(root: int) -> list[str]:
    """Of the programs of all living processes below root."""
    return [found.name for _, found in _below(root)]


def carried(root: int, carriers: Collection[str]) -> list[Identity]:
    """Living processes below root that are no carriers, and between which and root there is nothing but carriers. A shell is one below
    a session of sshd only: elsewhere it is a rank that is a script."""
    below = by_parent()
    names = {carrier[:NAME_BYTES] for carrier in carriers}
    result: list[Identity] = []
    parents = [(root, "")]
    while parents:
        parent, name = parents.pop()
        for pid, found in below.get(parent, ()):
            if found.name in names and (found.name not in SHELLS or name.startswith("sshd")):
                parents.append((pid, found.name))
            elif found.state not in "ZX":
                result.append(Identity(pid, found.start))
    return result


def command(pid: int) -> list[str]:
    """Its words; none of a process that is gone."""
    text = read(f"/proc/{pid}/cmdline")
    return [word.decode(errors="replace") for word in text.split(b"\0")] if text else []


def state(process: Identity) -> str:
    """As /proc has it, T of one that SIGSTOP has stopped; X also of one that is gone."""
    found = entry(process.pid)
    return found.state if found and found.start == process.start else "X"


def _below(root: int) -> Iterator[tuple[int, Entry]]:
    """Yield the living descendants of a process, also below zombies."""
    below = by_parent()
    parents = [root]
    while parents:
        for pid, found in below.get(parents.pop(), ()):
            parents.append(pid)
            if found.state not in "ZX":
                yield pid, found


def sees_itself() -> bool:
    """Whether /proc is there, and tells of this process's own namespace: else its numbers mean others."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def by_parent() -> dict[int, list[tuple[int, Entry]]]:
    """Everything that there is, the dead included, by its parent's pid; of this process's children, those of the job."""
    below: dict[int, list[tuple[int, Entry]]] = {}
    for name in os.listdir("/proc") if sees_itself() else ():
        if name.isdigit():
            found = entry(int(name))
            if found:
                below.setdefault(found.parent, []).append((int(name), found))
    own = os.getpid()
    if wanted and own in below:
        below[own] = [each for each in below[own] if _group(each[0]) not in wanted]
    return below


def _group(pid: int) -> int:
    """Of one that has just been forked and has no group of its own yet, the pid stands for it."""
    try:
        return pid if pid in wanted else os.getpgid(pid)
    except OSError:
        return 0


def forsake(pid: int, seconds: float = 0.0) -> int | None:
    """Of those in wanted, one that was killed: its wait status, None where there is none within so long, for the kernel may hold it.
    Whoever fetches that later forgets it then."""
    until = time.monotonic() + seconds
    status = wanted.pop(pid)
    while status in (None, FORSAKEN):
        ended, found = os.waitpid(pid, os.WNOHANG)
        if ended:
            return found
        if time.monotonic() >= until:
            wanted[pid] = FORSAKEN
            return None
        time.sleep(0.001)
    return status


def fetched(pid: int, status: int) -> bool:
    """A child has ended; whether it was one of those in wanted."""
    known = pid in wanted
    if known and wanted[pid] == FORSAKEN:
        del wanted[pid]
    elif known:
        wanted[pid] = status
    return known


def send(target: Identity, number: int) -> bool:
    """Send a signal to this process and to no later one with its pid. Return False if it is gone or may not be signalled."""
    if not hasattr(os, "pidfd_open"):
        return _checked_kill(target, number)
    try:
        fd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        return _checked_kill(target, number)
    try:
        found = entry(target.pid)  # read after the open: from here on the fd means this very process
        if not found or found.start != target.start:
            return False
        signal.pidfd_send_signal(fd, number)
    except PermissionError:  # or a sandbox without the call
        return _checked_kill(target, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _checked_kill(target: Identity, number: int) -> bool:
    found = entry(target.pid)
    if not found or found.start != target.start:
        return False
    try:
        return send_to_child(target, number)
    except OSError:
        return False


def send_to_child(child: Identity, number: int) -> bool:
    """Our own, not reaped yet: the pid is its own. False when it is among those that refuse."""
    try:
        os.kill(child.pid, number)
    except PermissionError:
        found = re.search(rb"^Uid:\s*(\d+)", read(f"/proc/{child.pid}/status", 16384), re.MULTILINE)
        name = entry(child.pid)
        refused[child] = f"process {child.pid} ({name.name if name else '?'}) of user {int(found[1]) if found else '?'}"
        return False
    refused.pop(child, None)
    return True


def become_subreaper() -> bool:
    """Orphans of this process's descendants become its children, as they do for PID 1 anyway."""
    return os.getpid() == 1 or _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """In a child between fork and exec: SIGKILL for it when ranklaunch dies."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    return bool(libc().prctl(option, value, 0, 0, 0) == 0)


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
