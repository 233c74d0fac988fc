"""Work whose end nobody can foresee, in this very process, for so much CPU time and no more: patterns of users' on lines of their ranks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NoReturn


class TooLongError(Exception):
    pass


@contextlib.contextmanager
def cpu(seconds: float) -> Iterator[None]:
    """Raises TooLongError where what is within it takes longer. The loop hears of signals that come meanwhile afterwards, and not of the
    alarm, which would be a stop request to it. Raises OSError where no descriptor is left."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGPROF, _too_long)
    timer = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, *timer)  # it comes once at most, and here at the latest
    finally:
        signal.signal(signal.SIGPROF, handler)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        _pass_on(readable, wakeup)
        os.close(readable)
        os.close(writable)


def _pass_on(readable: int, wakeup: int) -> None:
    try:
        heard = os.read(readable, 65536).replace(bytes([signal.SIGPROF]), b"")
    except BlockingIOError:
        return
    if wakeup >= 0 and heard:
        os.write(wakeup, heard)


def _too_long(number: int, frame: object) -> NoReturn:
    raise TooLongError
