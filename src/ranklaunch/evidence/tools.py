"""Tools and files with further evidence of a node: py-spy, nvidia-smi, npu-smi, NCCL's RAS, the kernel's log. Each wait is at most a
few seconds."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ranklaunch.hangs import devices
from ranklaunch.system import tree

TOOL_S = 5.0
MOST_BYTES = 4 << 20  # of one answer
LOOK_S = 0.05
KERNEL = "/dev/kmsg"
PRESSURE = "/proc/pressure"


class Running:
    """Running tool, for a process without an event loop (with one: ranklaunch.hangs.devices.Tool). The output goes to an unnamed file,
    so the tool never blocks on a full pipe."""

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
        return bool(self._process and self._process.poll() == 0)

    def end(self) -> bytes:
        """Kill the tool if it still runs. Return its output."""
        if self._process and self.alive:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
                self._process.wait(LOOK_S)
        with open(self._output, "rb") as file:
            file.seek(0)
            return file.read(MOST_BYTES)


def device_tools(env: Mapping[str, str]) -> Iterator[Running]:
    for name, *options in (devices.NVIDIA_ALL, devices.ASCEND):
        path = devices.found(name, env)
        if path:
            yield Running([path, *options], env)


def py_spy(pids: Iterable[int], env: Mapping[str, str]) -> dict[int, Running]:
    """Start py-spy for each process, if it is installed. The process is not paused (--nonblocking)."""
    path = devices.found("py-spy", env)
    return {pid: Running([path, "dump", "--nonblocking", "--pid", str(pid)], env) for pid in pids} if path else {}


def wait_for(running: Iterable[Running], deadline: float) -> None:
    """Wait until all tools have exited, or until the deadline in monotonic seconds."""
    tools = list(running)
    while time.monotonic() < deadline and any(tool.alive for tool in tools):
        time.sleep(LOOK_S)


def is_own(address: str) -> bool:
    """True for an address of this container."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except (OSError, ValueError):
        return False
    return True


def ras_report(place: tuple[str, int], seconds: float) -> str:
    """Return the report of NCCL's RAS (see ranklaunch.evidence.ras), or the part that arrives in time.

    Raises OSError without a listener, and ValueError for another service."""
    deadline = time.monotonic() + seconds
    with socket.create_connection(place, timeout=1.0) as connection:
        for request, answer, problem in (
            ("CLIENT PROTOCOL 2\n", "SERVER PROTOCOL ", f"the service at {place[0]} port {place[1]} does not answer like NCCL's RAS"),
            (f"TIMEOUT {int(seconds) - 2}\n", "OK", "NCCL's RAS does not accept the command TIMEOUT"),
        ):
            if not _ask(connection, request, deadline, end=b"\n").startswith(answer):
                raise ValueError(problem)
        return _ask(connection, "VERBOSE STATUS\n", deadline)


def _ask(connection: socket.socket, request: str, deadline: float, end: bytes = b"") -> str:
    """Send a request. Return the answer up to `end`, the end of the connection, or the deadline in monotonic seconds."""
    connection.sendall(request.encode())
    answer = b""
    while len(answer) < MOST_BYTES and not (end and answer.endswith(end)):
        ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
        block = connection.recv(65536) if ready else b""
        if not block:
            break
        answer += block
    return answer.decode(errors="replace")


def kernel_log() -> bytes:
    """Return the end of the kernel's log, b"" if this account may not read it."""
    try:
        fd = os.open(KERNEL, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    log = b""
    try:
        for _ in range(1 << 16):  # records
            with contextlib.suppress(BrokenPipeError):  # the kernel has overwritten records
                log = (log + os.read(fd, 8192))[-MOST_BYTES // 16 :]
    except OSError:  # the end of the log
        pass
    finally:
        os.close(fd)
    return log


def pressure() -> bytes:
    """Return the pressure of CPU, I/O and memory, a line each."""
    lines = []
    for name in ("cpu", "io", "memory"):
        with contextlib.suppress(OSError), open(f"{PRESSURE}/{name}", encoding="ascii", errors="replace") as file:
            lines += [f"{name} {line}\n" for line in file.read(4096).splitlines()]
    return "".join(lines).encode()
