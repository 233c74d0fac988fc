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
from ranklaunch.system.signals import Signals, block, code_of, name_of, signal_of, unblock

REFUSE_S = 0.5  # where nothing that is left may be signalled: it has become another user's
HELD_S = 1.0  # for what the supervisor has given up
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
    while True:
        poll.poll()
        for number in signals.take():
            if number != signal.SIGCHLD:
                os.kill(inner, number)  # not reaped yet, so the pid is still its own
        status = _reap(inner)
        if status is not None:
            _sweep(SWEEP_S if signal_of(status) else HELD_S)
            if signal_of(status):
                _execute(inherited, status)
            return code_of(status)


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
    try:
        os.write(sys.stderr.fileno(), f"{reason}\n".encode())
    except (OSError, ValueError):
        pass
    try:
        will = dict(os.fsdecode(entry).split("=", 1) for entry in os.read(inherited, 65536).split(b"\0") if entry)
        _clean_up(will, reason, code_of(status))
    except Exception:  # no memory, no descriptor: the exit code still says it
        pass


def _clean_up(will: dict[str, str], reason: str, exit_code: int) -> None:
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
        record.verdict(Verdict("failed", exit_code, reason, None, (), will["started"], now()))
