"""Work of unpredictable length, in a child process with limits of time and memory.

Example: the computations of a user's template. Checking each operation beforehand is not reliable: small operands can give huge
results, and a single operation, such as a power, cannot be interrupted within a process.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from ranklaunch.errors import ConfigError, refused
from ranklaunch.system import tree
from ranklaunch.system.signals import OURS

CPU_S = 2
MEMORY = 256 * 1024**2  # bytes in addition to the present size of this process
MOST_OUTPUT = 16 * 1024**2  # bytes
LOOK_S = 2.0  # for a look at files that are not essential
APART_S = 60.0  # longest life of a process whose answer may not be awaited any more
_WHOLE = b"\0"  # end mark of a complete answer
NOT_STARTED = 127  # exit code of a program that cannot be executed
WALL_S = 20.0  # for work that waits without CPU time, such as for a FIFO among templates; and for a slow machine


def call(work: Callable[[], Any], what: str) -> Any:
    """Return the result of `work`, passed through JSON: tuples become lists.

    what: name of the work in messages. A ConfigError of the work is raised unchanged. Raises ConfigError if the work exceeds a limit,
    WaitError if no process is left.
    """
    try:
        child, readable = forked(partial(_work, work))
    except OSError as error:
        raise refused(error, " to start a process") from None
    try:
        output = _read(readable, WALL_S)
    finally:
        os.close(readable)
        os.kill(child, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        os.waitpid(child, 0)
    return _result(output, what)


class Apart:
    """Work on files of an unreliable mount, in a child process: the caller need not wait for its end.

    work: called in the child; its return value is the answer. readable: descriptor that becomes readable once the answer may be there.
    Raises OSError if no process or descriptor is left.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.pid, self.readable = forked(partial(_be_apart, work))
        tree.wanted[self.pid] = None

    def answer(self, seconds: float) -> bytes | None:
        """Return the answer, None without one within `seconds`. Ends the child."""
        output = _read(self.readable, seconds)
        self.close()
        return output[:-1] if output.endswith(_WHOLE) else None

    def close(self) -> None:
        if self.readable < 0:
            return
        os.close(self.readable)
        self.readable = -1
        if tree.wanted[self.pid] is None:
            os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        tree.forsake(self.pid)


def within(work: Callable[[], bytes]) -> bytes | None:
    """Return the answer of work on an unreliable mount; None after more than LOOK_S, or if no process is left."""
    try:
        return Apart(work).answer(LOOK_S)
    except OSError:
        return None


def _be_apart(work: Callable[[], bytes], writable: int) -> NoReturn:
    """Do the work in the child. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)  # the wakeup pipe belongs to the supervisor
        for number in OURS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.setitimer(signal.ITIMER_REAL, APART_S)
        tree.die_with_parent()
        os.dup2(writable, 3)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # readers of these wait for their end, and a mount that does not answer would delay this end
            os.dup2(nothing, fd)
        os.closerange(4, 65536)  # copies of the supervisor's descriptors: a peer must not wait for their end
        _write_all(3, work() + _WHOLE)
    finally:
        os._exit(0)


def forked(become: Callable[[int], NoReturn]) -> tuple[int, int]:
    """Fork a child that calls `become` with the write end of a pipe. Return its pid and the read end. Raises OSError."""
    readable, writable = os.pipe2(os.O_CLOEXEC)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)  # the child's copies of our handlers would write into our pipe
    try:
        child = os.fork()
        if child == 0:
            become(writable)
        tree.helpers.append(tree.identify(child))
    except OSError:
        os.close(readable)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writable)
    return child, readable


def program(argv: Sequence[str], env: Mapping[str, str], *, stderr: bool = False) -> tuple[int, int]:
    """Start a program in a process group of its own. Return its pid, and a pipe with its stdout (and stderr, if set).

    A program that cannot be executed ends with NOT_STARTED. Raises OSError if no process or descriptor is left.
    """
    return forked(partial(_execute, argv, env, stderr))


def _execute(argv: Sequence[str], env: Mapping[str, str], stderr: bool, writable: int) -> NoReturn:
    """Execute a program in the child. Never returns."""
    try:
        tree.die_with_parent()
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, stream in ((null, 0), (writable, 1), (writable if stderr else null, 2)):
            os.dup2(descriptor, stream)
        for number in (*OURS, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(shutil.which(argv[0], path=env.get("PATH")) or argv[0], list(argv), env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}".encode())
    finally:
        os._exit(NOT_STARTED)


def _result(output: bytes, what: str) -> Any:
    try:
        content = json.loads(output)
    except (ValueError, RecursionError):
        msg = f"{what}: it takes more than {CPU_S} s of CPU time, {MEMORY >> 20} MiB of memory or {MOST_OUTPUT >> 20} MiB of text"
        raise ConfigError(msg) from None
    if "problems" in content:
        raise ConfigError(content["problems"])
    return content["result"]


def _read(fd: int, seconds: float) -> bytes:
    """Read up to the end, MOST_OUTPUT bytes or a deadline. The caller checks if the output is whole."""
    poll, until = select.poll(), time.monotonic() + seconds
    poll.register(fd, select.POLLIN)
    output = bytearray()
    while len(output) <= MOST_OUTPUT and poll.poll(1000 * max(0.0, until - time.monotonic())):
        block = os.read(fd, 1 << 20)
        if not block:
            break
        output += block
    return bytes(output)


def _work(work: Callable[[], Any], writable: int) -> NoReturn:
    """Do the work in the child. Never returns. The output of a killed child is not whole JSON."""
    try:
        tree.die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        _limit_memory()
        try:
            outcome = {"result": work()}
        except ConfigError as error:
            outcome = {"problems": list(error.problems)}
        _write_all(writable, json.dumps(outcome).encode())
    finally:
        os._exit(0)


def _limit_memory() -> None:
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)


def _write_all(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]
