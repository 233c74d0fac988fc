"""Programs and services that know more of a node: py-spy, nvidia-smi, npu-smi, NCCL's RAS, the kernel's log. None is waited for longer than
a few seconds."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.evidence import ras
from ranklaunch.hangs import devices
from ranklaunch.hangs.device_tool import found
from ranklaunch.system import tree

TOOL_S = 5.0
MOST_BYTES = 4 << 20  # of one answer
LOOK_S = 0.05
KERNEL = "/dev/kmsg"
PRESSURE = "/proc/pressure"


class Running:
    """A tool that was started, in a process that has no loop (else: ranklaunch.hangs.device_tool). What it writes goes to a file
    without a name, so that nobody has to read it meanwhile."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.argv = tuple(argv)
        self._output = (
            os.memfd_create("ranklaunch-tool") if hasattr(os, "memfd_create") else os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
        )
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, env=dict(env),
                preexec_fn=tree.die_with_parent,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return bool(self._process and self._process.poll() is None)

    @property
    def succeeded(self) -> bool:
        return bool(self._process and self._process.returncode == 0)

    def end(self) -> bytes:
        """What it has written; it is killed where it goes on."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that is stuck in the kernel
                self._process.wait(LOOK_S)
        with open(self._output, "rb") as file:
            file.seek(0)
            return file.read(MOST_BYTES)


def device_tools(env: Mapping[str, str]) -> Iterator[Running]:
    for name, *options in (devices.NVIDIA_ALL, devices.ASCEND):
        path = found(name, env)
        if path:
            yield Running([path, *options], env)


def is_own(address: str) -> bool:
    """Whether it is one of this container's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as tried:
            tried.bind((address, 0))
    except (OSError, ValueError):
        return False
    return True


def py_spy(pids: Iterable[int], env: Mapping[str, str]) -> dict[int, Running]:
    """Where it is installed. It does not stop what it looks at."""
    path = found("py-spy", env)
    return {pid: Running([path, "dump", "--nonblocking", "--pid", str(pid)], env) for pid in pids} if path else {}


def wait_for(running: Iterable[Running], deadline: float) -> None:
    """deadline: monotonic seconds."""
    waited_for = list(running)
    while time.monotonic() < deadline and any(each.alive for each in waited_for):
        time.sleep(LOOK_S)


def ras_report(address: tuple[str, int]) -> str:
    """Raises OSError, where none listens for one, and ValueError where it is not NCCL that does."""
    deadline = time.monotonic() + TOOL_S
    with socket.create_connection(address, timeout=1.0) as connection:
        _say(connection, ras.HELLO)
        if not _line(connection, deadline).startswith(ras.ANSWER):
            msg = "no RAS of NCCL listens there"
            raise ValueError(msg)
        _say(connection, ras.timeout(int(TOOL_S) - 2))
        if _line(connection, deadline).strip() != "OK":
            msg = "RAS does not answer as it should"
            raise ValueError(msg)
        _say(connection, ras.STATUS)
        told = b""
        while len(told) < MOST_BYTES and (block := _block(connection, deadline)):
            told += block
        return told.decode(errors="replace")


def kernel_log() -> bytes:
    """What the kernel has said, where this account may read it."""
    try:
        fd = os.open(KERNEL, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    told, records = b"", 0
    try:
        while records < 1 << 16:
            records += 1
            with contextlib.suppress(BrokenPipeError):  # records that were overwritten meanwhile
                told = (told + os.read(fd, 8192))[-MOST_BYTES // 16 :]
    except OSError:  # the last has been read
        pass
    finally:
        os.close(fd)
    return told


def pressure() -> bytes:
    told = []
    for name in ("cpu", "io", "memory"):
        with contextlib.suppress(OSError), open(f"{PRESSURE}/{name}", encoding="ascii", errors="replace") as file:
            told += [f"{name} {line}" for line in file.read(4096).splitlines()]
    return "".join(f"{line}\n" for line in told).encode()


def _say(connection: socket.socket, text: str) -> None:
    connection.sendall(text.encode())


def _line(connection: socket.socket, deadline: float) -> str:
    told = b""
    while not told.endswith(b"\n") and len(told) < 1024 and (block := _block(connection, deadline, 1)):
        told += block
    return told.decode(errors="replace")


def _block(connection: socket.socket, deadline: float, most: int = 65536) -> bytes:
    ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
    return connection.recv(most) if ready else b""
