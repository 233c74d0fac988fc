"""Signals as bytes in a pipe, which the loop reads. Handlers do nothing else, except noting times of deaths.

Imported and installed before anything else: PID 1 ignores signals without a handler, and no stop request may be lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Further stop requests: an alarm or a limit that was set before ranklaunch started, and SIGRTMIN+3, the stop signal of images made from a
# systemd image. No program saves its work on these.
HALT = signal.SIGRTMIN + 3
ALARMS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGXCPU, HALT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, *(n for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if n != HALT))
TOLD = 128 + signal.SIGTERM  # exit code of a program that ended by a stop request
OURS = (*STOPPING, *ALARMS, *PASSED_ON, signal.SIGCHLD)
# pthread_sigmask without its wrapper, which makes an enum of each blocked signal, and an exception for real-time ones, twice for each rank.
_mask = getattr(signal.pthread_sigmask, "__wrapped__", signal.pthread_sigmask)
_KEPT_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *ALARMS)  # stay ignored if they were: by nohup, or a shell's `&`


class Signals:
    """Signals that ranklaunch handles. fd: readable while one is pending. handled: signals with a handler here."""

    def __init__(self) -> None:
        self.handled = tuple(s for s in OURS if not _stays_ignored(s))
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self.handled:
            signal.signal(number, _nothing)
        unblock()  # the parent process may have blocked some

    def on_child(self, look: Callable[[], object]) -> None:
        """Call `look` in the handler of SIGCHLD: between two instructions of Python, before the loop reads the pipe."""
        signal.signal(signal.SIGCHLD, lambda number, frame: look())

    def after_fork(self) -> None:
        """Make a new pipe, in a child that goes on as ranklaunch in a process group of its own. Call with signals blocked."""
        if signal.getsignal(signal.SIGTTOU) is signal.SIG_DFL:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a terminal with `stty tostop` would stop this process at its first line
            self.handled = (*self.handled, signal.SIGTTOU)
        os.close(self.fd)
        os.close(self._write)
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def take(self) -> list[int]:
        """Return the pending signals in order of arrival, each once."""
        try:
            return list(dict.fromkeys(os.read(self.fd, 65536)))
        except BlockingIOError:
            return []

    def keep(self, numbers: Iterable[int]) -> None:
        """Put signals back, for the next take()."""
        os.write(self._write, bytes(numbers))

    def to_default(self) -> None:
        """Reset all handlers, in a child that is about to execute another program. Call with signals blocked."""
        signal.set_wakeup_fd(-1)
        for number in (*self.handled, signal.SIGPIPE, signal.SIGXFSZ):  # Python itself ignores the last two
            signal.signal(number, signal.SIG_DFL)


def block() -> None:
    """Block the signals that have handlers."""
    _mask(signal.SIG_BLOCK, OURS)


def unblock() -> None:
    _mask(signal.SIG_SETMASK, ())


def signal_of(status: int) -> int:
    """Return the signal that killed a process with this wait status, 0 for none."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def code_of(status: int) -> int:
    """Return the exit code as a shell gives it: 128+N after signal N."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if signal.SIGRTMIN < number < signal.SIGRTMAX else f"signal {number}"


def _stays_ignored(number: int) -> bool:
    return number in _KEPT_IGNORED and signal.getsignal(number) is signal.SIG_IGN


def _nothing(number: int, frame: object) -> None:
    """Do nothing. Python writes to the wakeup pipe only for signals with a handler."""
