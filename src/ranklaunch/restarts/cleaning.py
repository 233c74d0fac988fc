"""Removal of a round's leftovers after the end of its processes: files in shared memory, the port of
the rendezvous, the memory of devices."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ranklaunch.env.settings import BY_MPI
from ranklaunch.errors import WaitError
from ranklaunch.hangs import devices
from ranklaunch.plan.model import Plan
from ranklaunch.system import ports, tree
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import folders

KEPT = 5  # last rounds whose folders are kept whole, including the one that begins
SHARED = "/dev/shm"
SESSIONS = "/tmp/ompi."  # prefix of Open MPI's session folder: /tmp/ompi.HOST.UID has a folder for each mpirun
PORT_S = 50.0  # longest wait for a free port
DEVICES_S = 50.0  # longest wait for free devices
LOOK_S = 0.2
LOOK_AT_DEVICES_S = 2.0
USED_MB = 512  # a driver may keep less than this on a device without processes


Ask = Callable[[tuple[str, ...]], str]  # returns a program's output; "" if the program is missing, fails or does not answer


@dataclass(frozen=True)
class Held:
    """Resources of a round's processes. pids: pids of the processes. files: files in shared memory
    that they had open. before: content of shared memory at their start, path and inode of each file."""

    pids: frozenset[int] = frozenset()
    files: frozenset[str] = frozenset()
    before: frozenset[tuple[str, int]] = frozenset()

    def and_more(self, other: Held) -> Held:
        return replace(self, pids=self.pids | other.pids, files=self.files | other.files)


def held(before: frozenset[tuple[str, int]] = frozenset()) -> Held:
    """Return the resources of the living processes below this one. before: as in Held."""
    pids = frozenset(process.pid for process in tree.descendants(os.getpid()))
    return Held(pids, frozenset(path for pid in pids for path in _files(pid)), before)


def shared_memory_content() -> frozenset[tuple[str, int]]:
    """Return path and inode of each file in shared memory, of any user."""
    try:
        with os.scandir(SHARED) as entries:
            return frozenset((entry.path, entry.inode()) for entry in entries)
    except OSError:
        return frozenset()


def _files(pid: int) -> Iterator[str]:
    """Yield the files in shared memory that a process has open or mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = [line.split(None, 5)[5].rstrip("\n") for line in file if SHARED in line]
        opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (OSError, IndexError):
        return
    yield from (path for path in (*mapped, *opened) if path.startswith(f"{SHARED}/") and not path.endswith(" (deleted)"))


def remove(leftovers: Held) -> list[str]:
    """Remove the files of a round's dead processes from shared memory, and return their paths.

    These are files that only dead processes had open, and files with one of their pids in the name. A file that is older than the
    round stays.
    """
    made = {path for path, _ in shared_memory_content() - leftovers.before}
    files = {path for path in (*leftovers.files, *_named(leftovers.pids)) if path in made or path.rpartition("/")[0] != SHARED}
    others = [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) not in leftovers.pids] if files else []
    removed = [path for path in sorted(files.difference(*map(_files, others))) if _removed(path)]
    _remove_sessions(leftovers.pids)
    return removed


def _removed(path: str) -> bool:
    """Remove a file. Return False for a file of another user, and for an open file.

    /proc does not show processes of another container with the same shared memory, but the kernel then refuses a lease on the file.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid() or _is_open_elsewhere(fd):
            return False
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)  # also ends the lease
    return True


def _is_open_elsewhere(fd: int) -> bool:
    try:
        # The signal is sent if another process opens the file now; the default, SIGIO, would be a stop request.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGCHLD)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # another error means that the file system has no leases
    return False


def prune(attempt: str, number: int) -> None:
    """Remove logs of old rounds as round `number` begins. Only the first round and the last KEPT ones stay whole; of the rounds between
    them, only the round's verdict stays."""
    folder = folders.restart(attempt, number - KEPT)
    for name in os.listdir(folder) if number > KEPT and os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif name != folders.ROUND:
            os.unlink(path)


def _named(pids: frozenset[int]) -> Iterator[str]:
    try:
        names = os.listdir(SHARED)
    except OSError:
        return
    for name in names:
        if any(int(number) in pids for number in re.findall(r"(?<!\d)[1-9]\d{1,6}(?!\d)", name)):
            yield f"{SHARED}/{name}"


def _remove_sessions(pids: frozenset[int]) -> None:
    for path in glob.glob(f"{SESSIONS}*.{os.geteuid()}/pid.*"):
        number = path.rpartition(".")[2]
        if number.isdecimal() and int(number) in pids and os.lstat(path).st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)


def wait(plan: Plan, loop: Loop, say: Callable[[str], None], over: Callable[[], bool], ask: Ask) -> None:
    """Wait until the port of the rendezvous and the devices are free. over: returns True once the attempt has ended. ask: runs a tool.

    Raises WaitError, which names the owner of the port.
    """
    port = _port(plan)
    if port:
        _wait_for_port(port, loop, over)
    if plan.job.accelerator in DEVICE_TOOLS and plan.job.node.slots:
        _wait_for_devices(plan.job.accelerator, loop, say, over, ask)


def _port(plan: Plan) -> int:
    """Return the port of the rendezvous on this node; 0 if it is on another node, or if ranks meet by MPI, without this port."""
    if plan.method in BY_MPI:
        return 0
    value = next((reading.value for reading in plan.values if reading.name == "master_port"), "")
    return int(value) if value.isdecimal() and plan.job.node_index == 0 else 0


def _wait_for_port(port: int, loop: Loop, over: Callable[[], bool]) -> None:
    until = loop.clock() + PORT_S
    while not _is_free(port) and not over():
        if loop.clock() >= until:
            owner = ports.holder(port)
            used_by = owner.text if owner else "a process that is not visible here"
            msg = f"port {port} of the rendezvous is still in use {PORT_S:g} s after the end of all ranks, by {used_by}"
            msg += "; end that process, or set RANKLAUNCH_MASTER_PORT to another port"
            raise WaitError(msg)
        loop.run_until(over, min(until, loop.clock() + LOOK_S))


def _is_free(port: int) -> bool:
    """Return True if a server can listen on a port. SO_REUSEADDR ignores connections in TIME_WAIT."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


# Devices


def _wait_for_devices(kind: str, loop: Loop, say: Callable[[str], None], over: Callable[[], bool], ask: Ask) -> None:
    """Wait for free devices, at most DEVICES_S, and not for a tool without an answer.

    The devices may have other users, so ranks start even if they never become free.
    """
    argv, busy = DEVICE_TOOLS[kind]
    until = loop.clock() + DEVICES_S
    while not over():
        in_use = busy(ask(argv))
        if not in_use:
            return
        if loop.clock() >= until:
            say(f"warning: {DEVICES_S:g} s after all ranks have ended, {in_use}; starting the ranks anyway")
            return
        loop.run_until(over, min(until, loop.clock() + LOOK_AT_DEVICES_S))


def _gpus(text: str) -> str:
    used = [int(line.strip()) for line in text.splitlines() if line.strip().isdecimal()]
    return next((f"device {i} still has {mb} MB in use" for i, mb in enumerate(used) if mb >= USED_MB), "")


def _npus(text: str) -> str:
    """Return a text about an NPU in use, by the table of processes at the end of npu-smi's output: the memory that an idle NPU itself
    uses has no fixed limit."""
    _, separator, processes = text.partition("Process id")
    running = re.findall(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|", processes, re.MULTILINE) if separator else []
    return f"NPU {running[0][0]} still has process {running[0][1]}" if running else ""


DEVICE_TOOLS: Mapping[str, tuple[tuple[str, ...], Callable[[str], str]]] = {
    "gpu": (devices.NVIDIA_MEMORY, _gpus),
    "npu": (devices.ASCEND, _npus),
}
