"""Where ranklaunch is not PID 1, two processes share its work, so that killing either leaves nothing behind.

The outer one is what the user started: it passes signals on, waits, and inherits whatever the inner one leaves. The inner one is
the supervisor. The kernel does this for PID 1 itself: when PID 1 dies, its whole namespace does.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from ranklaunch.errors import refused
from ranklaunch.system import tree
from ranklaunch.system.signals import STOPPING, Signals, block, code_of, name_of, signal_of, unblock

REFUSE_S = 0.5  # where nothing that is left may be signalled: it has become another user's
HELD_S = 1.0  # for what the supervisor has given up
DEAF_S = 10.0  # that a stop request may wait for the supervisor
LOOK_S = 0.5
WRITES_S = 5.0  # for a verdict in a folder that may not answer
SWEEP_S = 10.0  # SIGKILL takes effect at once, but for a process in an uninterruptible system call


def divide(signals: Signals) -> int:
    """Returns in the supervisor, with a fd that becomes readable when the outer process dies, or -1 as PID 1. In the outer process
    it does not return: it exits with the supervisor's code. Raises WaitError."""
    tree.become_subreaper()
    if os.getpid() == 1:
        return -1
    readable, held = os.pipe2(os.O_CLOEXEC)
    inherited, will = _pipe_of_will()
    inner = _fork()
    if inner:
        unblock()
        os.close(readable)
        os._exit(_watch(signals, inner, inherited))  # held stays open until this process dies, however it dies
    signals.after_fork()
    os.setpgid(0, 0)  # a terminal's ^C reaches the outer process alone, which passes it on: once
    tree.become_subreaper()
    unblock()
    os.close(held)
    if inherited >= 0:
        os.close(inherited)
    from ranklaunch.supervise import record  # not in the outer process, which stays small

    record.will = will
    return readable


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


def _watch(signals: Signals, inner: int, inherited: int) -> int:
    poll = select.poll()
    poll.register(signals.fd, select.POLLIN)
    deaf: _Deaf | None = None
    while True:
        poll.poll(1000 * LOOK_S if deaf else None)
        for number in signals.take():
            if number != signal.SIGCHLD:
                os.kill(inner, number)  # not reaped yet, so the pid is still its own
                deaf = deaf or (_Deaf(inner, number, inherited) if number in STOPPING else None)
        status = _reap(inner)
        if status is None and deaf and not deaf.ended:
            deaf = None if deaf.has_heard() else deaf
        elif status is not None or deaf:
            _sweep(SWEEP_S if status and signal_of(status) else HELD_S)
            if deaf and deaf.ended:
                return deaf.execute()
            if status and signal_of(status):
                _execute(inherited, status)
            return code_of(status or 0)


class _Deaf:
    """A supervisor that has a stop request, and may not come to take it: the kernel holds it where it writes to a mount that does not
    answer. Its ranks are told in its place then, and it is ended when they have ended or the grace is over."""

    def __init__(self, inner: int, number: int, inherited: int) -> None:
        self._inner, self._number, self._inherited = inner, number, inherited
        self._since = time.monotonic()
        self._will: dict[str, str] = {}
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
            self.ended = not left or waited_s > DEAF_S + float(self._will.get("grace_s", 0))
            if self.ended:
                os.kill(self._inner, signal.SIGKILL)
        return False

    def _tell(self) -> None:
        self._told = True
        self._will = _read_will(self._inherited)
        _say(f"ranklaunch: {self._why}; its ranks are told, and have {self._will.get('grace_s', 0)} s")
        self._ranks = tree.generation(self._inner, 1)
        hearing = tree.Hearing(self._number)
        for rank in self._ranks:
            for process in hearing.of(rank) or [rank]:
                tree.send(process, self._number)

    @property
    def _why(self) -> str:
        name = name_of(self._number)
        return f"its supervisor has not taken {name} for {DEAF_S:g} s (a mount that does not answer, for its logs?)"

    def execute(self) -> int:
        """As _execute; the verdict, too, may have to be written where nothing answers."""
        code = 128 + self._number
        pid = os.fork()
        if pid == 0:
            try:
                _clean_up(self._will, f"stopped by {name_of(self._number)}: {self._why}", code, "stopped")
            finally:
                os._exit(0)
        until = time.monotonic() + WRITES_S
        while time.monotonic() < until and not os.waitpid(pid, os.WNOHANG)[0]:
            time.sleep(0.01)
        return code


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


def _execute(inherited: int, status: int) -> None:
    """The supervisor was killed: what it can neither say nor clean up itself."""
    number = signal_of(status)
    why = " (out of memory?)" if number == signal.SIGKILL else ""
    reason = f"ranklaunch: its supervisor was killed by {name_of(number)}{why}; every rank was ended with it"
    _say(reason)
    try:
        _clean_up(_read_will(inherited), reason, code_of(status))
    except Exception:  # no memory, no descriptor: the exit code still says it
        pass


def _say(text: str) -> None:
    try:
        os.write(sys.stderr.fileno(), f"{text}\n".encode())
    except (OSError, ValueError):
        pass


def _read_will(inherited: int) -> dict[str, str]:
    """All that is there: once."""
    try:
        return dict(os.fsdecode(entry).split("=", 1) for entry in os.read(inherited, 65536).split(b"\0") if entry)
    except (OSError, ValueError):
        return {}


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
        record.verdict(Verdict(outcome, exit_code, reason, None, (), will["started"], now()))
