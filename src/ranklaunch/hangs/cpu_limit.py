"""CPU time limit for a block of this process: a user's regular expression may take for ever on a line of output."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NoReturn


class TooLongError(Exception):
    """The block has used up its CPU time."""


@contextlib.contextmanager
def cpu(seconds: float) -> Iterator[None]:
    """Raise TooLongError in the block after so many seconds of CPU time. Raises OSError if no descriptor is left.

    The event loop gets other signals after the block, but not SIGPROF, which would be a stop request to the loop.
    """
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGPROF, _too_long)
    timer = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, *timer)  # SIGPROF comes at most once, and here at the latest
    finally:
        signal.signal(signal.SIGPROF, handler)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        with contextlib.suppress(BlockingIOError):
            heard = os.read(readable, 65536).replace(bytes([signal.SIGPROF]), b"")
            if wakeup >= 0 and heard:
                os.write(wakeup, heard)
        os.close(readable)
        os.close(writable)


def _too_long(number: int, frame: object) -> NoReturn:
    raise TooLongError
