"""Who hears a signal, by what /proc tells of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

from ranklaunch.system import tree
from testbench.places import child


def started(stack: ExitStack, *words: str) -> subprocess.Popen[str]:
    """All of them share one CPU. Each has printed that it is ready, and ends when the test does."""
    cpu = min(os.sched_getaffinity(0))
    process = stack.enter_context(
        subprocess.Popen(
            (sys.executable, child("sigwaits.py"), *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
        )
    )
    stack.callback(process.kill)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_who_sleeps_in_sigwait_hears_it() -> None:
    """A busy kernel keeps a process among those that run for a moment after it has gone to sleep, and does not name the place then."""
    asleep = 0
    with ExitStack() as stack:
        started(stack, "--busy")
        waiter = started(stack)
        assert waiter.stdout
        process = tree.identify(waiter.pid)
        for _ in range(200):
            waiter.send_signal(signal.SIGUSR1)
            assert waiter.stdout.readline() == "woken\n"
            before, heard, after = tree.entry(waiter.pid), tree.Hearing(signal.SIGTERM).of(process), tree.entry(waiter.pid)
            if before and after and before.state == after.state == "S":
                asleep += 1
                assert heard == [process]
        waiter.send_signal(signal.SIGTERM)
        assert waiter.wait(60) == 0
    assert asleep


def test_an_interrupt_ends_a_start_at_once() -> None:
    """As long as nothing handles SIGINT, KeyboardInterrupt could be raised where Python only prints it, and the job would go on."""
    code = "import os, signal, ranklaunch_start as start; start._end_by_interrupts(); os.kill(os.getpid(), signal.SIGINT); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, ""), done.stderr
