"""Two processes share ranklaunch's work, so that killing either leaves nothing behind, and a stop request reaches the ranks also while the
kernel holds the supervisor.

Where ranklaunch is not PID 1, the outer process is what the user started: it passes signals on, waits, and inherits whatever the inner one
leaves. The inner one is the supervisor. PID 1 is the supervisor itself: no process of its container can kill it, and when it dies, the
kernel ends the others. Its child only looks whether it takes its stop requests.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable

from ranklaunch.errors import WaitError, refused
from ranklaunch.system import tree
from ranklaunch.system.signals import OURS, STOPPING, Signals, block, code_of, name_of, signal_of, unblock
from ranklaunch.typed import NoReturn

REFUSE_S = 0.5  # where nothing that is left may be signalled: it has become another user's
HELD_S = 1.0  # for what the supervisor has given up
DEAF_S = 10.0  # that a stop request may wait for the supervisor
LOOK_S = 0.5
GLANCE_S = 2.0  # between looks at PID 1, of which nobody tells that it has been sent a signal
WRITES_S = 5.0  # for a verdict in a folder that may not answer
SWEEP_S = 10.0  # SIGKILL takes effect at once, but for a process in an uninterruptible system call


def divide(signals: Signals) -> int:
    """Returns in the supervisor, with a fd that becomes readable when the outer process dies, or -1 as PID 1. In the other process
    it does not return: the outer one exits with the supervisor's code. Raises WaitError."""
    tree.become_subreaper()
    if os.getpid() == 1:
        _have_watched(signals)
        return -1
    readable, held = os.pipe2(os.O_CLOEXEC)
    inherited, will = _pipe_of_will()
    inner = _fork()
    if inner:
        unblock()
        os.close(readable)
        os._exit(_watch(signals, inner, _Will(inherited)))  # held stays open until this process dies, however it dies
    signals.after_fork()
    os.setpgid(0, 0)  # a terminal's ^C reaches the outer process alone, which passes it on: once
    tree.become_subreaper()
    unblock()
    os.close(held)
    _bequeath_by(will, inherited)
    return readable


def _have_watched(signals: Signals) -> None:
    """As PID 1. Where there is no process or descriptor left for it, there will be none for the ranks either, and they will say so."""
    inherited, will = _pipe_of_will()
    if inherited < 0 or not tree.sees_itself():
        return
    try:
        pid = _fork()
    except WaitError:
        return
    if pid == 0:
        _watch_pid_1(signals, _Will(inherited))
    tree.wanted[pid] = tree.FORSAKEN  # it is not of the job
    unblock()
    _bequeath_by(will, inherited)


def _bequeath_by(will: int, inherited: int) -> None:
    if inherited >= 0:
        os.close(inherited)
    from ranklaunch.supervise import record  # not in the other process, which stays small

    record.will = will


def _pipe_of_will() -> tuple[int, int]:
    """-1 and -1 where no descriptors are left: then there is none."""
    try:
        return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return -1, -1


def _fork() -> int:
    """With signals blocked, in both. Raises WaitError where the system has no process left."""
    block()
    try:
        return os.fork()
    except OSError as error:
        unblock()
        raise refused(error, " to start a process") from None


def _watch(signals: Signals, inner: int, will: _Will) -> int:
    poll = select.poll()
    poll.register(signals.fd, select.POLLIN)
    deaf: _Deaf | None = None
    while True:
        poll.poll(1000 * LOOK_S if deaf else None)
        for number in signals.take():
            if number != signal.SIGCHLD:
                os.kill(inner, number)  # not reaped yet, so the pid is still its own
                deaf = deaf or (_Deaf(inner, number, will) if number in STOPPING else None)
        status = _reap(inner)
        if status is None and deaf and not deaf.ended:
            deaf = None if deaf.has_heard() else deaf
        elif status is not None or deaf:
            _sweep(SWEEP_S if status and signal_of(status) else HELD_S)
            if deaf and deaf.ended:
                return deaf.execute()
            if status and signal_of(status):
                _execute(will, status)
            return code_of(status or 0)


def _watch_pid_1(signals: Signals, will: _Will) -> NoReturn:
    """Its end is the end of this process too. What it is held by, it is not killed for: that the kernel allows nobody in the container."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)  # that pipe is PID 1's
    for number in OURS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
    unblock()
    while True:
        time.sleep(GLANCE_S)
        number = next((each for each in STOPPING if tree.is_pending(1, each)), 0)
        if not number:
            continue
        # It is told first, by its own pipe: should it go on now, it does not take the end of its ranks for their success.
        deaf = _Deaf(1, number, will, lambda each: signals.keep([each]))
        while not deaf.ended and not deaf.has_heard():
            time.sleep(LOOK_S)
            _reap(-1)
        if deaf.ended:
            os._exit(deaf.execute())


class _Will:
    """What the supervisor has told of itself, for whoever has to act in its place."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._known: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """All of it, up to now."""
        try:
            entries = os.fsdecode(os.read(self._fd, 65536)).split("\0")
        except OSError:  # no more than is known
            return self._known
        for name, equals, text in (entry.partition("=") for entry in entries):
            if equals:
                self._known[name] = text
        return self._known


class _Deaf:
    """A supervisor that has a stop request, and may not come to take it: the kernel holds it where it writes to a mount that does not
    answer. Its ranks are told in its place then, and it is ended when they have ended or the grace is over."""

    def __init__(self, inner: int, number: int, will: _Will, warn: Callable[[int], object] = lambda number: None) -> None:
        """warn: called with the number before the ranks are told."""
        self._inner, self._number, self._will, self._warn = inner, number, will, warn
        self._since = time.monotonic()
        self._ranks: list[tree.Identity] = []
        self._told = self.ended = False

    def has_heard(self) -> bool:
        """Looks, and does what is due."""
        waited_s = time.monotonic() - self._since
        if not tree.is_pending(self._inner, self._number):
            return True
        if not self._told and waited_s > DEAF_S:
            self._tell()
        elif self._told:
            left = set(self._ranks) & set(tree.generation(self._inner, 1))
            self.ended = not left or waited_s > DEAF_S + self._grace_s
            if self.ended:
                os.kill(self._inner, signal.SIGKILL)
        return False

    def _tell(self) -> None:
        self._told = True
        self._warn(self._number)
        self._ranks = [each for each in tree.generation(self._inner, 1) if each.pid != os.getpid()]
        hearing = tree.Hearing(self._number)
        for rank in self._ranks:
            for process in hearing.of(rank) or [rank]:
                tree.send(process, self._number)
        said = f"ranklaunch: {self._why}; its ranks are told, and have {self._grace_s:g} s"
        _within(0, lambda: _say(said))

    @property
    def _grace_s(self) -> float:
        return float(self._will.read().get("grace_s", 0))

    @property
    def _why(self) -> str:
        name = name_of(self._number)
        return f"its supervisor has not taken {name} for {DEAF_S:g} s (a mount that does not answer, for its logs?)"

    def execute(self) -> int:
        """The exit code."""
        will, code = self._will.read(), 128 + self._number
        _within(WRITES_S, lambda: _clean_up(will, f"stopped by {name_of(self._number)}: {self._why}", code, "stopped"))
        return code


def _within(seconds: float, work: Callable[[], object]) -> None:
    """In a process of its own where there is one, and waits for its end no longer than that: what it writes to may not answer either."""
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid <= 0:
        try:
            work()
        except Exception:  # no memory, no descriptor: the exit code still says it
            pass
    if pid == 0:
        os._exit(0)
    until = time.monotonic() + seconds
    while pid > 0 and time.monotonic() < until and not os.waitpid(pid, os.WNOHANG)[0]:
        time.sleep(0.01)


def _reap(inner: int) -> int | None:
    """Reaps what has ended; the supervisor's wait status when it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == inner:
            found = status


def _sweep(longest_s: float) -> None:
    """Ends what the supervisor left, which it does only when it was killed itself, or where the kernel holds a process."""
    began, most_s = time.monotonic(), longest_s
    while tree.has_children() and time.monotonic() < began + most_s:
        left = tree.descendants(os.getpid())
        sent = [tree.send(process, signal.SIGKILL) for process in left]
        most_s = longest_s if any(sent) or not left else REFUSE_S
        _reap(-1)
        time.sleep(0.005)


def _execute(will: _Will, status: int) -> None:
    """The supervisor was killed: what it can neither say nor clean up itself."""
    number = signal_of(status)
    why = " (out of memory?)" if number == signal.SIGKILL else ""
    reason = f"ranklaunch: its supervisor was killed by {name_of(number)}{why}; every rank was ended with it"
    known = will.read()
    _within(WRITES_S, lambda: _say(reason))
    _within(WRITES_S, lambda: _clean_up(known, reason, code_of(status)))


def _say(text: str) -> None:
    try:
        os.write(sys.stderr.fileno(), f"{text}\n".encode())
    except (OSError, ValueError):
        pass


def _clean_up(will: dict[str, str], reason: str, exit_code: int, outcome: str = "failed") -> None:
    try:
        os.unlink(will.get("socket", ""))
    except OSError:  # there is none
        pass
    for folder in filter(None, (will.get("private"), will.get("recorders"), will.get("asked_in"))):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    if will.get("folder") and not will.get("judged"):
        from ranklaunch.supervise.record import Record, now  # only now: until here this process is small
        from ranklaunch.verdict.model import Verdict

        record = Record(will["folder"], will["termination_log"], will["failure_file"])
        record.last_words(reason, exit_code)  # at once: the folder may not answer
        record.verdict(Verdict(outcome, exit_code, reason, None, (), will["started"], now()))
