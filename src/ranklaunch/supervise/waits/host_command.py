"""Output of a user's command that is needed before a plan can be made. The command has a deadline, and a
stop request ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn

from ranklaunch.errors import ConfigError, WaitError, refused
from ranklaunch.system import tree
from ranklaunch.system.bounded import forked
from ranklaunch.system.signals import STOPPING, Signals, code_of

PROGRESS_S = 30.0
FIRST_PROGRESS_S = 2.0
LOOK_S = 0.2  # between two checks for the end of the command, if its pipe stays open
SOON_S = 0.005  # the same after its pipe was closed
MOST_BYTES = 16 * 1024 * 1024


def ask(
    command: str, what: str, env: Mapping[str, str], timeout_s: float, say: Callable[[str], None], signals: Signals | None = None
) -> str | None:
    """Run a command in a shell, and return its output; None if a stop request came first. `signals` keeps the request.

    what: name of the command in messages. Raises ConfigError on failure, WaitError at the deadline.
    """
    taken: list[int] = []
    try:
        child, readable = forked(partial(_become, command, env, signals))
    except OSError as error:
        raise refused(error, " to start a process") from None
    try:
        text = _read(child, readable, what, timeout_s, say, signals, taken)
    finally:
        os.close(readable)
        if not tree.is_dead(child):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        status = os.waitpid(child, 0)[1]
        if signals:
            signals.keep(number for number in taken if number != signal.SIGCHLD)
    if text is not None and status:
        msg = f"{what}: ended with {code_of(status)}"
        raise ConfigError(msg)
    return text


def _become(command: str, env: Mapping[str, str], signals: Signals | None, writable: int) -> NoReturn:
    """Execute the command in the child, in a new session that can be killed as a whole."""
    try:
        os.setsid()
        tree.die_with_parent()
        if signals:
            signals.to_default()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writable, 1)
        os.execvpe("sh", ["sh", "-c", command], dict(env))  # users write shell commands
    finally:
        os._exit(127)


def _read(
    child: int, fd: int, what: str, timeout_s: float, say: Callable[[str], None], signals: Signals | None, taken: list[int]
) -> str | None:
    """Read the output up to the end of the command, even if another process holds the pipe, or if the
    pipe is closed early. Return None at a stop request. taken: gets the signals that came."""
    began, output = time.monotonic(), bytearray()
    progress = began + FIRST_PROGRESS_S
    poll = select.poll()
    for readable in (fd, *((signals.fd,) if signals else ())):
        poll.register(readable, select.POLLIN)
    pause_s = LOOK_S
    while len(output) <= MOST_BYTES:
        now, ended = time.monotonic(), tree.is_dead(child)
        if not ended and now >= began + timeout_s:
            raise _too_long(what, timeout_s)
        if now >= progress:
            say(f"waiting for {what} ({now - began:.0f} of {timeout_s:g} s)")
            progress = now + PROGRESS_S
        wait_s = 0.0 if ended else min(pause_s, began + timeout_s - now)
        ready = {each for each, _ in poll.poll(wait_s * 1000)}
        if signals and signals.fd in ready:
            taken += signals.take()
            if any(number in STOPPING for number in taken):
                return None
        block = os.read(fd, 65536) if fd in ready else b""
        output += block
        if ended and not block:
            return output.decode(errors="surrogateescape")
        if fd in ready and not block:
            poll.unregister(fd)  # closed: only the end of the command is missing, usually within milliseconds
            pause_s = SOON_S
    msg = f"{what}: its output exceeds {MOST_BYTES} bytes"
    raise ConfigError(msg)


def _too_long(what: str, timeout_s: float) -> WaitError:
    return WaitError(f"waited {timeout_s:g} s in vain for {what}; --wait-s (RANKLAUNCH_WAIT_S) sets how long")
