"""Signals as bytes in a pipe. Handlers do nothing, but for the time of deaths; the one loop reads the pipe.
Imported and installed before anything else, so that as PID 1, where unhandled signals are ignored, a stop request is kept from the
first instruction on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# They are stop requests too, of whoever has set an alarm or a limit before he started ranklaunch, or takes it for a machine's init: images
# that are made from one of systemd have SIGRTMIN+3 as their signal to stop. No program saves its work on these.
HALT = signal.SIGRTMIN + 3
ALARMS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGXCPU, HALT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, *(n for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if n != HALT))
TOLD = 128 + signal.SIGTERM  # the exit code of a program that ended as it was told to
OURS = (*STOPPING, *ALARMS, *PASSED_ON, signal.SIGCHLD)
# Without the names that Python gives to each of the signals that were blocked before, real-time ones by an exception: twice for each rank.
_mask = getattr(signal.pthread_sigmask, "__wrapped__", signal.pthread_sigmask)
_KEPT_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, *ALARMS)  # nohup and a shell's `&` ask for it


class Signals:
    """The signals that ranklaunch acts on. fd is readable when one is pending."""

    def __init__(self) -> None:
        self.handled = tuple(s for s in OURS if not _stays_ignored(s))
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self.handled:
            signal.signal(number, _nothing)
        unblock()  # whoever started us may have blocked what must reach us

    def on_child(self, look: Callable[[], object]) -> None:
        """Call `look` in the handler of SIGCHLD, between two instructions of Python, before the loop reads the pipe."""
        signal.signal(signal.SIGCHLD, lambda number, frame: look())

    def after_fork(self) -> None:
        """In a child that goes on as ranklaunch, and will be in a group of its own: a pipe of its own. Call with signals blocked."""
        if signal.getsignal(signal.SIGTTOU) is signal.SIG_DFL:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else a terminal with `stty tostop` stops it at its first line
            self.handled = (*self.handled, signal.SIGTTOU)
        os.close(self.fd)
        os.close(self._write)
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def take(self) -> list[int]:
        """Pending signals in order of arrival, each once, as the kernel keeps them."""
        try:
            return list(dict.fromkeys(os.read(self.fd, 65536)))
        except BlockingIOError:
            return []

    def keep(self, numbers: Iterable[int]) -> None:
        """Signals for who takes them next."""
        os.write(self._write, bytes(numbers))

    def to_default(self) -> None:
        """In a child that is about to become another program: as if ranklaunch had never been there. Call with signals blocked."""
        signal.set_wakeup_fd(-1)
        for number in (*self.handled, signal.SIGPIPE, signal.SIGXFSZ):  # Python itself ignores the last two
            signal.signal(number, signal.SIG_DFL)


def block() -> None:
    """Those that have handlers."""
    _mask(signal.SIG_BLOCK, OURS)


def unblock() -> None:
    _mask(signal.SIG_SETMASK, ())


def signal_of(status: int) -> int:
    """The signal that killed a process with this wait status, 0 when none did."""
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def code_of(status: int) -> int:
    """Exit code as a shell gives it: 128+N after signal N."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if signal.SIGRTMIN < number < signal.SIGRTMAX else f"signal {number}"


def _stays_ignored(number: int) -> bool:
    return number in _KEPT_IGNORED and signal.getsignal(number) is signal.SIG_IGN


def _nothing(number: int, frame: object) -> None:
    """Python needs a handler for the wakeup pipe to be written."""
