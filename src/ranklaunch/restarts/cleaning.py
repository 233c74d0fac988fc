"""Leftovers of a round, and waits until nothing of them remains: files in shared memory, the port
of the rendezvous, the memory of devices. The processes of the round have ended before."""

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

KEPT = 5  # of the last rounds, the one that begins among them
SHARED = "/dev/shm"
SESSIONS = "/tmp/ompi."  # of Open MPI: HOST.UID, and in it a folder for each mpirun
PORT_S = 50.0  # at most, for the port to come free
DEVICES_S = 50.0  # at most, for the devices to give their memory back
LOOK_S = 0.2
LOOK_AT_DEVICES_S = 2.0
USED_MB = 512  # what drivers keep of a device without any process


Ask = Callable[[tuple[str, ...]], str]  # a program's output; "" where it is not there, fails or is silent


@dataclass(frozen=True)
class Held:
    """Resources of the processes of a round. pids: of the processes. files: in shared memory.
    before: content of shared memory at their start, by name and inode."""

    pids: frozenset[int] = frozenset()
    files: frozenset[str] = frozenset()
    before: frozenset[tuple[str, int]] = frozenset()

    def and_more(self, other: Held) -> Held:
        return replace(self, pids=self.pids | other.pids, files=self.files | other.files)


def held(before: frozenset[tuple[str, int]] = frozenset()) -> Held:
    """By the processes below this one that live."""
    pids = frozenset(process.pid for process in tree.descendants(os.getpid()))
    return Held(pids, frozenset(path for pid in pids for path in _files(pid)), before)


def there() -> frozenset[tuple[str, int]]:
    """What lies in shared memory, by whomever."""
    try:
        with os.scandir(SHARED) as entries:
            return frozenset((entry.path, entry.inode()) for entry in entries)
    except OSError:
        return frozenset()


def _files(pid: int) -> Iterator[str]:
    """What a process has open or mapped of the shared memory."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = [line.split(None, 5)[5].rstrip("\n") for line in file if SHARED in line]
        opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (OSError, IndexError):
        return
    yield from (path for path in (*mapped, *opened) if path.startswith(f"{SHARED}/") and not path.endswith(" (deleted)"))


def remove(left: Held) -> list[str]:
    """Remove files of dead processes, and return their paths: files that only dead processes had open, and files with one of their pids in
    the name. A file that is older than the round stays."""
    made = {path for path, _ in there() - left.before}
    files = {path for path in (*left.files, *_named(left.pids)) if path in made or path.rpartition("/")[0] != SHARED}
    others = [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) not in left.pids] if files else []
    removed = [path for path in sorted(files.difference(*map(_files, others))) if _removed(path)]
    _remove_sessions(left.pids)
    return removed


def _removed(path: str) -> bool:
    """Remove a file, unless foreign or open anywhere: of a process in another container with the same shared memory, the kernel alone
    knows,
    and gives no lease then."""
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
        os.close(fd)  # which ends the lease
    return True


def _is_open_elsewhere(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGCHLD)  # for whoever opens it now: SIGIO would be a request to stop
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # else there are no leases here
    return False


def prune(attempt: str, number: int) -> None:
    """As this round begins: of those between the first and the last ones only their ends stay."""
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
    """Until the port of the rendezvous and the devices are free. Raises WaitError that names who has the port. ask: a tool."""
    port = _port(plan)
    if port:
        _wait_for_port(port, loop, over)
    if plan.job.accelerator in DEVICE_TOOLS and plan.job.node.slots:
        _wait_for_devices(plan.job.accelerator, loop, say, over, ask)


def _port(plan: Plan) -> int:
    """Port of the rendezvous, where that is on this node; 0 where ranks meet by MPI and may leave the port to others."""
    if plan.method in BY_MPI:
        return 0
    value = next((reading.value for reading in plan.values if reading.name == "master_port"), "")
    return int(value) if value.isdecimal() and plan.job.node_index == 0 else 0


def _wait_for_port(port: int, loop: Loop, over: Callable[[], bool]) -> None:
    until = loop.clock() + PORT_S
    while not _is_free(port) and not over():
        if loop.clock() >= until:
            owner = ports.holder(port)
            whose = owner.text if owner else "a process that is not seen here"
            msg = f"port {port} of the rendezvous is still taken, {PORT_S:g} s after all ranks have ended: {whose} has it"
            raise WaitError(msg)
        loop.run_until(over, min(until, loop.clock() + LOOK_S))


def _is_free(port: int) -> bool:
    """With SO_REUSEADDR: a connection in TIME_WAIT is in nobody's way."""
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
    """Wait for free devices, but not for a tool without an answer. Other users may stay on a device: ranks start in the end."""
    argv, busy = DEVICE_TOOLS[kind]
    until = loop.clock() + DEVICES_S
    while not over():
        in_use = busy(ask(argv))
        if not in_use:
            return
        if loop.clock() >= until:
            say(f"warning: {DEVICES_S:g} s after all ranks have ended, {in_use}; they are started all the same")
            return
        loop.run_until(over, min(until, loop.clock() + LOOK_AT_DEVICES_S))


def _gpus(text: str) -> str:
    used = [int(line.strip()) for line in text.splitlines() if line.strip().isdecimal()]
    return next((f"device {i} still has {mb} MB in use" for i, mb in enumerate(used) if mb >= USED_MB), "")


def _npus(text: str) -> str:
    """By the table of processes at its end: an idle NPU's own use is beyond any limit."""
    _, separator, processes = text.partition("Process id")
    running = re.findall(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|", processes, re.MULTILINE) if separator else []
    return f"NPU {running[0][0]} still has process {running[0][1]}" if running else ""


DEVICE_TOOLS: Mapping[str, tuple[tuple[str, ...], Callable[[str], str]]] = {
    "gpu": (devices.NVIDIA_MEMORY, _gpus),
    "npu": (devices.ASCEND, _npus),
}
