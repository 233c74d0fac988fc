"""Process tree, read from /proc, with the processes in it that catch a signal.

A process is identified by pid and start time, so a reused pid is never signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import stat
import time
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

NAME_BYTES = 15
SHELLS = ("sh", "bash", "dash")
HOST = "pid:[4026531836]"  # the kernel's name of the machine's own pid namespace
LONGEST_START_S = 3600.0  # an older container ran before for another purpose
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# Children with an owner in this process that waits for their wait status, by pid. The value is the status, once the reaper of orphans has
# reaped the child. Each leads a process group that its owner ends. No process of this group belongs to the job, and no look at processes
# below this one shows them.
wanted: dict[int, int | None] = {}


FORSAKEN = -1  # value in `wanted` for a child whose owner does not wait any more


# The last processes that ranklaunch has started for itself: no ranks, and not started by ranks.
helpers: deque[Identity] = deque(maxlen=64)


# Processes that may not be signalled, as they have become another user's (by sudo), each with a description.
refused: dict[Identity, str] = {}


class Identity(NamedTuple):
    """Identity of a process.

    start: clock ticks since boot at its start; with the pid, a unique name of the process.
    """

    pid: int
    start: int


class Entry(NamedTuple):
    """State of a process.

    name: of the program, cut by the kernel to 15 bytes. status: wait status of a zombie. ticks: CPU
    time; inherited: CPU time of children that have ended. pages: in memory.
    """

    parent: int
    state: str
    start: int
    name: str = ""
    status: int = 0
    ticks: int = 0
    inherited: int = 0
    pages: int = 0


def read(path: str, most: int = 4096) -> bytes:
    """Return the content of a file in /proc, b"" for an ended process, or if access is denied."""
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
    """Return the state of a process from /proc, None for an ended process."""
    text = read(f"/proc/{pid}/stat")
    if not text:
        return None
    end = text.rindex(b")")  # the name before may contain any characters
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
    """Return the seconds since the start of this container.

    None outside a container, and in a container that ran for another purpose before ranklaunch started.
    """
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
    """Return the wait status of a zombie; None for a process that was reaped already, or is not visible."""
    current = entry(process.pid)
    return current.status if current and current.state == "Z" and current.start == process.start else None


def identify(pid: int) -> Identity:
    current = entry(pid)
    return Identity(pid, current.start if current else 0)


def is_dead(child: int) -> bool:
    """Return True if a child of this process is a zombie. Raises ChildProcessError once it was reaped."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def has_children() -> bool:
    """Return True if this process has any child of the job, dead or alive.

    This process is the subreaper, so without a child there is no process below it.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return not wanted or bool(by_parent().get(os.getpid()))


def descendants(root: int) -> list[Identity]:
    """Return every living process below root, without zombies."""
    return [Identity(pid, each.start) for pid, each in _below(root)]


def generation(root: int, number: int) -> list[Identity]:
    """Return the living processes `number` generations below root: 1 for its children."""
    below = by_parent()
    parents = [root]
    children: list[tuple[int, Entry]] = []
    for _ in range(number):
        children = [each for parent in parents for each in below.get(parent, ())]
        parents = [pid for pid, _ in children]
    return [Identity(pid, e.start) for pid, e in children if e.state not in "ZX"]


def names_below(root: int) -> list[str]:
    """Return the names of the programs of all living processes below root."""
    return [each.name for _, each in _below(root)]


def carried(root: int, carriers: Collection[str]) -> list[Identity]:
    """Return the living processes below root that are not carriers, but have only carriers above them.

    A shell counts as a carrier only below a session of sshd; elsewhere a shell is a rank that is a script.
    """
    below = by_parent()
    names = {carrier[:NAME_BYTES] for carrier in carriers}
    result: list[Identity] = []
    parents = [(root, "")]
    while parents:
        parent, name = parents.pop()
        for pid, each in below.get(parent, ()):
            if each.name in names and (each.name not in SHELLS or name.startswith("sshd")):
                parents.append((pid, each.name))
            elif each.state not in "ZX":
                result.append(Identity(pid, each.start))
    return result


def command(pid: int) -> list[str]:
    """Return the command line of a process as words (the last one is empty), [] for an ended process."""
    text = read(f"/proc/{pid}/cmdline")
    return [word.decode(errors="replace") for word in text.split(b"\0")] if text else []


def state(process: Identity) -> str:
    """Return the state letter in /proc: T after SIGSTOP; X also for an ended process."""
    current = entry(process.pid)
    return current.state if current and current.start == process.start else "X"


def _below(root: int) -> Iterator[tuple[int, Entry]]:
    """Yield the living descendants of a process, also below zombies."""
    below = by_parent()
    parents = [root]
    while parents:
        for pid, each in below.get(parents.pop(), ()):
            parents.append(pid)
            if each.state not in "ZX":
                yield pid, each


def sees_itself() -> bool:
    """Return True if /proc is mounted and shows this process's own pid namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def by_parent() -> dict[int, list[tuple[int, Entry]]]:
    """Return all processes, with zombies, by pid of the parent; of this process's own children, only those of the job."""
    below: dict[int, list[tuple[int, Entry]]] = {}
    for name in os.listdir("/proc") if sees_itself() else ():
        if name.isdigit():
            process = entry(int(name))
            if process:
                below.setdefault(process.parent, []).append((int(name), process))
    own = os.getpid()
    if wanted and own in below:
        below[own] = [each for each in below[own] if _group(each[0]) not in wanted]
    return below


def _group(pid: int) -> int:
    """Return the process group of a process. For a child in `wanted` it is its pid, even before the child has made the group."""
    try:
        return pid if pid in wanted else os.getpgid(pid)
    except OSError:
        return 0


def forsake(pid: int, seconds: float = 0.0) -> int | None:
    """Return the wait status of a killed child in `wanted`, None without one within `seconds`. A later status is dropped."""
    until = time.monotonic() + seconds
    status = wanted.pop(pid)
    while status in (None, FORSAKEN):
        ended, result = os.waitpid(pid, os.WNOHANG)
        if ended:
            return result
        if time.monotonic() >= until:
            wanted[pid] = FORSAKEN
            return None
        time.sleep(0.001)
    return status


def fetched(pid: int, status: int) -> bool:
    """Keep the wait status of an ended child if the child is in `wanted`, else return False."""
    known = pid in wanted
    if known and wanted[pid] == FORSAKEN:
        del wanted[pid]
    elif known:
        wanted[pid] = status
    return known


def send(target: Identity, number: int) -> bool:
    """Send a signal to this process, and never to a later one with its pid. Return False if it has ended, or may not be signalled."""
    if not hasattr(os, "pidfd_open"):
        return _checked_kill(target, number)
    try:
        fd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        return _checked_kill(target, number)
    try:
        current = entry(target.pid)  # read after the open: the fd refers to this process from here on
        if not current or current.start != target.start:
            return False
        signal.pidfd_send_signal(fd, number)
    except PermissionError:  # also in a sandbox without the call
        return _checked_kill(target, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _checked_kill(target: Identity, number: int) -> bool:
    current = entry(target.pid)
    if not current or current.start != target.start:
        return False
    try:
        return send_to_child(target, number)
    except OSError:
        return False


def send_to_child(child: Identity, number: int) -> bool:
    """Signal a child of this process that was not reaped, so that its pid cannot be reused. Return False if that is not allowed."""
    try:
        os.kill(child.pid, number)
    except PermissionError:
        match = re.search(rb"^Uid:\s*(\d+)", read(f"/proc/{child.pid}/status", 16384), re.MULTILINE)
        process = entry(child.pid)
        refused[child] = f"process {child.pid} ({process.name if process else '?'}) of user {int(match[1]) if match else '?'}"
        return False
    refused.pop(child, None)
    return True


def become_subreaper() -> bool:
    """Adopt orphans of this process's descendants, as PID 1 does anyway. Return False if the kernel cannot do this."""
    return os.getpid() == 1 or _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL at the death of the parent. Called in a child between fork and exec."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    return bool(libc().prctl(option, value, 0, 0, 0) == 0)


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


# Processes that catch a signal, by the kernel: signals that a process catches, blocks, ignores or waits for (/proc/PID/status, wchan)

RUNS_SCRIPTS = ("sh", "bash", "dash", "ash", "busybox", "ksh", "ksh93", "mksh", "zsh")  # names of their executables
_SIGTIMEDWAIT = {"x86_64": b"128", "aarch64": b"137"}  # number of the system call


class Hearing:
    """Processes with a handler for a signal, or waiting for one, at the time of one look.

    through_all: True to look below every process without a handler; else only below shells, because
    shells would die of the signal and leave their children. signalled: processes that caught the signal
    before. They count as long as they live: some, such as timeout, pass the signal on and ignore the
    next one.
    """

    def __init__(self, number: int, through_all: bool = False, signalled: Collection[Identity] = ()) -> None:
        self._number, self._signalled = number, signalled
        self._through_all = through_all
        self._below: dict[int, list[tuple[int, Entry]]] | None = None

    def of(self, root: Identity) -> list[Identity]:
        """Return the first process with a handler on each path down from root, which may be root itself."""
        result: list[Identity] = []
        to_check = [root]
        while to_check:
            process = to_check.pop()
            shell = is_shell(process.pid)
            if process in self._signalled or self._heard_by(process.pid, shell):
                result.append(process)
            elif shell or self._through_all:
                to_check += self.children(process.pid)
        return result

    def children(self, pid: int) -> list[Identity]:
        """Return the living children of a process."""
        if self._below is None:
            try:
                self._below = by_parent()
            except OSError:  # no descriptor left
                self._below = {}
        return [Identity(child, each.start) for child, each in self._below.get(pid, []) if each.state not in "ZX"]

    def _heard_by(self, pid: int, shell: bool) -> bool:
        """Return True if a process catches the signal.

        Handlers of a shell do not count in two cases: for SIGINT, which a shell catches while it waits for a
        program, and with an exit trap, for which a shell catches all signals, to die of them. Shells block
        signals only while starting a program.
        """
        caught, blocked, _ = _dispositions(pid)
        if shell:
            return _has(caught, self._number) and self._number != signal.SIGINT and not _has(caught, signal.SIGILL)
        return _has(caught | blocked, self._number) or _waits_for_signals(pid)


def is_pending(pid: int, number: int) -> bool:
    """Return True if a signal was sent to a process, and is not delivered yet."""
    text = read(f"/proc/{pid}/status", 16384)
    return any(_has(int(mask, 16), number) for mask in re.findall(rb"^(?:Sig|Shd)Pnd:\s*([0-9a-f]+)", text, re.MULTILINE))


def catches(pid: int, number: int) -> bool:
    """Return True if a process has a handler for a signal."""
    return _has(_dispositions(pid)[0], number)


def ignores(pid: int, number: int) -> bool:
    """Return True if a process ignores a signal."""
    return _has(_dispositions(pid)[2], number)


def _has(signals: int, number: int) -> bool:
    return bool(signals >> (number - 1) & 1)


def _dispositions(pid: int) -> list[int]:
    """Return the signals that a process catches, blocks (first thread) and ignores, as bits."""
    text = read(f"/proc/{pid}/status", 16384)
    match = (re.search(rb"^%s:\s*([0-9a-f]+)" % name, text, re.MULTILINE) for name in (b"SigCgt", b"SigBlk", b"SigIgn"))
    return [int(each[1], 16) if each else 0 for each in match]


def _waits_for_signals(pid: int) -> bool:
    """Return True for a process in sigwait; /proc does not show the awaited signals as blocked then.

    On a busy kernel the wait channel is unknown for a moment after a process has gone to sleep, but its
    system call is known.
    """
    place = read(f"/proc/{pid}/wchan")
    return b"sigtimedwait" in place or (
        place == b"0" and read(f"/proc/{pid}/syscall").split(b" ")[0] == _SIGTIMEDWAIT.get(os.uname().machine)
    )


def is_shell(pid: int) -> bool:
    """Return True for a shell, by its executable: a script has the name of its own file."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in RUNS_SCRIPTS
    except OSError:
        return False


# Processes that catch a signal behind a wrapper other than a shell, such as /usr/bin/time and scripts that call subprocess. A stop request
# would end only the wrapper. If the launcher would then end everything, or the wrapper must outlast its program, the program is signalled
# instead.

OUTPUTS = "1", "2"
OTHER_ENDS = "/dev/ptmx", "/dev/pts/ptmx"  # of terminals
LOOKS, BETWEEN_LOOKS_S = 5, 0.002
# Command line, joined by NUL: interpreter and options, -c or -m, and a module of multiprocessing or joblib; or a frozen program.
_WORKER = (
    r"[^\0]*\0(?:--multiprocessing-fork(?:\0|$)"
    r"|(?:-[XW]\0[^\0]*\0|-(?![cmXW]\0)[^\0]*\0)*-[cm]\0"
    r"(?:from )?(?:multiprocess(?:ing)?|(?:joblib\.externals\.)?loky\.backend)"
    r"\.(?:spawn|forkserver|resource_tracker|semaphore_tracker|popen_loky_posix)\b)"
)


def heard_behind(rank: Identity, hearing: Hearing) -> list[Identity]:
    """Return the processes that catch a signal below a rank, through wrappers and shells."""
    result: list[Identity] = []
    to_check = _inside(rank, hearing)
    while to_check:
        process = to_check.pop()
        with_handler = hearing.of(process)
        result += with_handler
        to_check += [] if with_handler else _inside(process, hearing)
    return result


def is_to_outlast(rank: Identity, behind: list[Identity], number: int) -> bool:
    """Return True if the program behind a wrapper must be signalled instead of the wrapper.

    Either a wrapper reads the output of its program, as `conda run` does: after its end, the program would
    die of the next line. Or the first wrapper ignores the signal.
    """
    return bool(behind) and (ignores(rank.pid, number) or any(_is_read(process, rank) for process in behind))


def _is_read(process: Identity, rank: Identity) -> bool:
    """Return True if a process between this one and the rank reads its output, by a pipe or a terminal.

    True for any socket: the names of its two ends cannot be compared.
    """
    out = [path for fd, path, _ in _opened(process.pid) if fd in OUTPUTS]
    if any(path.startswith("socket:") for path in out):
        return True
    written = {path for path in out if path.startswith("pipe:")}
    written.update(OTHER_ENDS if any(path.startswith("/dev/pts/") for path in out) else ())
    reader = entry(process.pid)
    while reader and reader.parent > 1:
        if any(reads and path in written for _, path, reads in _opened(reader.parent)):
            return True
        reader = entry(reader.parent) if reader.parent != rank.pid else None
    return False


def _opened(pid: int) -> list[tuple[str, str, bool]]:
    """Return the descriptors of a process, each with its path, and True if it is open for reading."""
    folder, result = f"/proc/{pid}/fd", []
    with contextlib.suppress(OSError):  # ended, or another user's process
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                result.append((fd, os.readlink(f"{folder}/{fd}"), bool(os.lstat(f"{folder}/{fd}").st_mode & stat.S_IRUSR)))
    return result


def _inside(process: Identity, hearing: Hearing) -> list[Identity]:
    """Return all children of a shell, or the program behind a wrapper; [] for another process.

    A wrapper only waits, and its only child runs another program. This excludes workers that a rank forked, and the helper of a
    computing process.
    """
    children = hearing.children(process.pid)
    if is_shell(process.pid):
        return children
    words = [command(child.pid) for child in children]
    is_other = len(words) == 1 and words[0] != command(process.pid) and not is_worker(words[0])
    return children if is_other and _waits(process) else []


def _waits(process: Identity) -> bool:
    """Return True if a process waits at one of several looks: it may also be passing on output of its program."""
    for _ in range(LOOKS):
        if state(process) != "R":
            return True
        time.sleep(BETWEEN_LOOKS_S)
    return False


def is_worker(words: list[str]) -> bool:
    """Return True if Python's multiprocessing, or joblib, has started the process for its own work."""
    return re.match(_WORKER, "\0".join(words)) is not None
