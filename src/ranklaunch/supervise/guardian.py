"""Division of ranklaunch into two processes: a kill of either leaves nothing behind, and a stop
request reaches the ranks even while the supervisor is blocked in the kernel.

If ranklaunch is not PID 1, the outer process is the user's child: the outer process passes signals
on, waits, and adopts the orphans of the inner process. The inner process is the supervisor.

If ranklaunch is PID 1, PID 1 is the supervisor: no process of its container can kill PID 1, and at
its death the kernel ends the rest. A child of PID 1 checks only that the supervisor handles its
stop requests.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ranklaunch.errors import WaitError, refused
from ranklaunch.system import tree
from ranklaunch.system.signals import ALARMS, OURS, STOPPING, Signals, block, code_of, name_of, signal_of, unblock
from ranklaunch.system.tree import Hearing, is_pending

if TYPE_CHECKING:
    from ranklaunch.supervise.record import Record

STOPS = (*STOPPING, *ALARMS)
REFUSE_S = 0.5  # if no remaining process may be signalled: all of them belong to another user
HELD_S = 1.0  # for processes on which the supervisor has given up
DEAF_S = 10.0  # a stop request may wait this long for the supervisor; later, the supervisor may be silent this long
HURRIED_S = 5.0  # replaces DEAF_S after a second SIGINT
LOOK_S = 0.5
GLANCE_S = 2.0  # between looks at the pending signals of PID 1: nothing reports a signal sent to PID 1
WRITES_S = 5.0  # for writing a verdict to a folder that may not answer
SWEEP_S = 10.0  # SIGKILL takes effect at once, except on a process in an uninterruptible system call


def divide(signals: Signals) -> int:
    """Fork, and return only in the supervisor: a fd that becomes readable when the outer process dies, -1 as PID 1.

    The outer process does not return; it exits with the supervisor's code. Raises WaitError if no process is left.
    """
    tree.become_subreaper()
    if os.getpid() == 1:
        _start_watch(signals)
        return -1
    readable, held = os.pipe2(os.O_CLOEXEC)
    inherited, will = _pipe_of_will()
    inner = _fork()
    if inner:
        unblock()
        os.close(readable)
        os._exit(_watch(signals, inner, _Will(inherited)))  # `held` stays open until this process dies in any way
    signals.after_fork()
    os.setpgid(0, 0)  # a terminal's ^C reaches the outer process alone, which passes it on: once
    tree.become_subreaper()
    unblock()
    os.close(held)
    _bequeath_by(will, inherited)
    return readable


def _start_watch(signals: Signals) -> None:
    """Start the watch over PID 1.

    If no process or descriptor is left, there is no watch; the start of the ranks will then fail with that reason.
    """
    inherited, will = _pipe_of_will()
    if inherited < 0 or not tree.sees_itself():
        return
    try:
        pid = _fork()
    except WaitError:
        return
    if pid == 0:
        _watch_pid_1(signals, _Will(inherited))
    tree.wanted[pid] = tree.FORSAKEN  # this child does not belong to the job
    unblock()
    _bequeath_by(will, inherited)


def _bequeath_by(will: int, inherited: int) -> None:
    if inherited >= 0:
        os.close(inherited)
    from ranklaunch.supervise import record  # only in the supervisor: the guardian stays small

    record.will = will


def _pipe_of_will() -> tuple[int, int]:
    """Return a pipe for the will, -1 and -1 if no descriptors are left."""
    try:
        return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return -1, -1


def _fork() -> int:
    """Fork with signals blocked in both processes. Raises WaitError if no process is left."""
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
        for number in filter(signal.SIGCHLD.__ne__, signals.take()):
            os.kill(inner, number)  # not reaped yet, so the pid is still its own
            if deaf and number == signal.SIGINT:
                deaf.hurry()
            deaf = deaf or (_Deaf(inner, number, will) if number in STOPS else None)
        status = _reap(inner)
        if status is None and deaf and not deaf.ended:
            deaf.look()
        elif status is not None or deaf:
            return _finish(status or 0, deaf, will)


def _finish(status: int, deaf: _Deaf | None, will: _Will) -> int:
    """Act in place of a supervisor that has ended, and return the exit code. status: wait status of the supervisor."""
    _sweep(SWEEP_S if signal_of(status) else HELD_S)
    if deaf and deaf.ended:
        return deaf.execute()
    if signal_of(status):
        _execute(will, status)
    return code_of(status)


def _watch_pid_1(signals: Signals, will: _Will) -> NoReturn:
    """Watch PID 1, and act in its place once it is blocked. PID 1 cannot be killed from inside its container."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)  # the wakeup pipe belongs to PID 1
    for number in OURS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
    unblock()
    deaf: _Deaf | None = None
    while not deaf or not deaf.ended:
        time.sleep(LOOK_S if deaf else GLANCE_S)
        _reap(-1)
        handled = will.read().get("stop", "")
        number = next((each for each in STOPS if is_pending(1, each)), int(handled or 0))
        deaf = deaf or (_Deaf(1, number, will, signals) if number else None)
        if deaf:
            deaf.look()
    os._exit(deaf.execute())


class _Will:
    """Facts from the supervisor for the process that may have to act in its place; see record.bequeath.

    news_at: time of the last fact, monotonic seconds.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._known: dict[str, str] = {}
        self.news_at = time.monotonic()

    def read(self) -> dict[str, str]:
        """Return all facts up to now, by name."""
        try:
            entries = os.fsdecode(os.read(self._fd, 65536)).split("\0")
        except OSError:  # no new facts, or no pipe
            return self._known
        for name, equals, text in (entry.partition("=") for entry in entries):
            if equals:
                self._known[name] = text
                self.news_at = time.monotonic()
        return self._known


class _Deaf:
    """Supervisor with a stop request, perhaps blocked in the kernel, for example in a write to a mount
    that does not answer.

    If the supervisor is blocked, the guardian signals the ranks itself. When the ranks have ended, or
    the grace is over, the guardian kills the supervisor.
    """

    def __init__(self, inner: int, number: int, will: _Will, signals: Signals | None = None) -> None:
        """number: signal of the stop request. signals: signals of PID 1, with their pipe."""
        self._inner, self._number, self._will, self._signals = inner, number, will, signals
        self._since = self._alive_at = time.monotonic()
        self._ranks: list[tree.Identity] | None = None
        self._had_signalled = self._hurried = self.ended = False

    def hurry(self) -> None:
        """Cut the grace short, at a second SIGINT."""
        self._hurried = True

    def look(self) -> None:
        """Signal the ranks, or kill the supervisor, once that is due."""
        known, now = self._will.read(), time.monotonic()
        beats = bool(known.get("beats"))  # without beats yet, a supervisor that has handled the signal counts as alive
        self._alive_at = max(self._alive_at, self._will.news_at if beats or is_pending(self._inner, self._number) else now)
        if now - self._alive_at <= (HURRIED_S if self._hurried else DEAF_S):
            return
        if self._ranks is None:
            self._begin(known)
            return
        living = set(self._ranks) & {*tree.descendants(self._inner)}
        self.ended = not living or self._hurried or now - self._since > DEAF_S + self._grace_s
        if self.ended:
            os.kill(self._inner, signal.SIGKILL)
            return
        for rank in living:
            _drain(rank.pid)

    def _begin(self, known: dict[str, str]) -> None:
        self._had_signalled = bool(known.get("signalled"))
        self._ranks = [rank for child in tree.generation(self._inner, 1) if child.pid != os.getpid() for rank in _ranks_of(child, known)]
        if not self._had_signalled:
            if self._signals:  # should PID 1 wake up now, it must not mistake the end of its ranks for a success
                self._signals.keep([self._number])
            self._signal(self._ranks, signal.SIGTERM if self._number in ALARMS else self._number)
        signalled = "its ranks were signalled before" if self._had_signalled else "its ranks are signalled now"
        state = signalled if self._ranks or self._had_signalled else "no rank is left"
        text = f"ranklaunch: {self._why}; {state}{f', and have {self._grace_s:g} s' if self._ranks else ''}"
        _within(0, _say, text)

    def _signal(self, ranks: list[tree.Identity], number: int) -> None:
        hearing = Hearing(number)
        for rank in ranks:
            for process in hearing.of(rank) or [rank]:
                tree.send(process, number)

    @property
    def _grace_s(self) -> float:
        return float(self._will.read().get("grace_s", 0))

    @property
    def _why(self) -> str:
        name = name_of(self._number)
        what = f"does not respond after {name}" if self._had_signalled else f"has not handled {name} for {DEAF_S:g} s"
        return f"its supervisor {what} (is the log folder on a mount that does not answer?)"

    def execute(self) -> int:
        """Clean up after the supervisor, and return the exit code."""
        will = self._will.read()
        code = int(will.get("judged") or 128 + self._number)
        _within(WRITES_S, _clean_up, will, f"stopped by {name_of(self._number)}: {self._why}", code, "stopped")
        return code


def _ranks_of(child: tree.Identity, known: dict[str, str]) -> list[tree.Identity]:
    """Return the ranks of a launcher, or the child itself if it is a rank.

    A launcher with its ranks below it is halted by SIGSTOP: torchrun would close each rank's log before
    signalling the rank, and the log's file system may not answer.
    """
    place = known.get(f"launcher_{child.pid}")
    if not place:
        return [child]
    depth, *carriers = place.split()
    if not carriers:
        tree.send(child, signal.SIGSTOP)
    return tree.carried(child.pid, carriers) if carriers else tree.generation(child.pid, int(depth))


def _drain(pid: int) -> None:
    """Empty the full output pipes of a rank: nobody reads them, and the rank would block in a write
    instead of saving."""
    for number in (1, 2):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith("pipe:"):
                _empty(f"/proc/{pid}/fd/{number}")
        except OSError:  # the process has ended, or the pipe is empty now
            pass


def _empty(path: str) -> None:
    """Empty a pipe if the pipe is full. Raises OSError once the pipe is empty."""
    readable = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        writable = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            takes_more = select.select([], [writable], [], 0)[1]
        finally:
            os.close(writable)
        while not takes_more and os.read(readable, 1 << 20):
            pass
    finally:
        os.close(readable)


def _within(seconds: float, work: Callable[..., object], *args: object) -> None:
    """Call `work` in a separate process, and wait at most `seconds` for its end: its files may not answer either.

    Without a free process, `work` runs in this one.
    """
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid <= 0:
        try:
            work(*args)
        except Exception:  # no memory, no descriptor: the exit code still reports the failure
            pass
    if pid == 0:
        os._exit(0)
    until = time.monotonic() + seconds
    while pid > 0 and time.monotonic() < until and not os.waitpid(pid, os.WNOHANG)[0]:
        time.sleep(0.01)


def _reap(inner: int) -> int | None:
    """Reap the children that have ended. Return the wait status of the supervisor, None if it has not ended."""
    result = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == inner:
            result = status


def _sweep(longest_s: float) -> None:
    """Kill the processes that the supervisor left behind, within `longest_s` seconds.

    There are some only if the supervisor was killed, or if a process is blocked in the kernel.
    """
    began, most_s = time.monotonic(), longest_s
    while tree.has_children() and time.monotonic() < began + most_s:
        remaining = tree.descendants(os.getpid())
        sent = [tree.send(process, signal.SIGKILL) for process in remaining]
        most_s = longest_s if any(sent) or not remaining else REFUSE_S
        _reap(-1)
        time.sleep(0.005)


def _execute(will: _Will, status: int) -> None:
    """Report that the supervisor was killed, and clean up in its place."""
    number = signal_of(status)
    why = " (out of memory?)" if number == signal.SIGKILL else ""
    reason = f"ranklaunch: its supervisor was killed by {name_of(number)}{why}; all ranks were killed too"
    known = will.read()
    _within(WRITES_S, _say, reason)
    _within(WRITES_S, _clean_up, known, reason, code_of(status))


def _say(text: str) -> None:
    try:
        os.write(sys.stderr.fileno(), f"{text}\n".encode())
    except (OSError, ValueError):
        pass


def _clean_up(will: dict[str, str], reason: str, exit_code: int, outcome: str = "failed") -> None:
    """Write the termination message, remove private folders, and write the verdict last: the log folder
    may not answer."""
    record = None
    if will.get("folder") and not will.get("judged"):
        from ranklaunch.supervise.record import Record  # imported only now: the guardian stays small until here

        record = Record(will["folder"], will["termination_log"], will["failure_file"])
        record.last_words(reason, exit_code)
    for folder in filter(None, (will.get("private"), will.get("recorders"), will.get("asked_in"))):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    if record:
        _leave_verdict(record, will, reason, exit_code, outcome)
    try:
        os.unlink(will.get("socket", ""))
    except OSError:  # no control socket
        pass


def _leave_verdict(record: Record, will: dict[str, str], reason: str, exit_code: int, outcome: str) -> None:
    from ranklaunch.supervise.record import now
    from ranklaunch.verdict import folders
    from ranklaunch.verdict.model import Judgement, Verdict

    # A verdict exists if the folder answered after all, and PID 1 went on.
    if not os.path.exists(os.path.join(will["folder"], folders.VERDICT)):
        record.verdict(Verdict(Judgement(outcome, exit_code, reason), (), will["started"], now()))
