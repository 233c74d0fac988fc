"""Who hears a signal, by what /proc tells of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ranklaunch.system import tree
from ranklaunch.system.tree import Hearing
from testbench.places import child
from testbench.waiting import sleep_until

pytestmark = pytest.mark.processes


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
            before, heard, after = tree.entry(waiter.pid), Hearing(signal.SIGTERM).of(process), tree.entry(waiter.pid)
            if before and after and before.state == after.state == "S":
                asleep += 1
                assert heard == [process]
        waiter.send_signal(signal.SIGTERM)
        assert waiter.wait(60) == 0
    assert asleep


WRAPPER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))"


def test_a_program_behind_a_wrapper_may_have_any_words(tmp_path: Path) -> None:
    """The flag is one of PyTorch's own example."""
    program = tmp_path / "multiprocessing" / "train.py"
    program.parent.mkdir()
    program.write_text(Path(child("sigwaits.py")).read_text())
    words = (sys.executable, "-c", WRAPPER, str(program), "--multiprocessing-distributed")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout
        assert wrapper.stdout.readline() == b"ready\n"
        rank = tree.identify(wrapper.pid)
        sleep_until(lambda: tree.state(rank) == "S", "the wrapper does not wait")
        heard = tree.heard_behind(rank, Hearing(signal.SIGTERM))
        (behind,) = tree.generation(wrapper.pid, 1)
        tree.send(behind, signal.SIGTERM)
    assert heard == [behind]


RUNS = "import os, pty, signal, socket, subprocess, sys; {0}; sys.exit(subprocess.run(['sleep', '60'], stdout={1}).returncode)"
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("first", "out", "expected"),
    [
        ("pass", "subprocess.PIPE", True),
        ("both = pty.openpty()", "both[1]", True),
        ("both = socket.socketpair()", "both[1].fileno()", True),
        (IGNORES, "None", True),
        ("pass", "None", False),
        ("pass", "open(os.devnull, 'w')", False),
    ],
)
def test_a_wrapper_may_have_to_outlast_its_program(first: str, out: str, expected: bool) -> None:
    """Where it reads what that writes, and where it ignores the signal."""
    with subprocess.Popen((sys.executable, "-c", RUNS.format(first, out)), stdout=subprocess.PIPE) as wrapper:
        rank = tree.identify(wrapper.pid)
        (behind,) = sleep_until(lambda: tree.generation(wrapper.pid, 1), "no program")
        sleep_until(lambda: tree.command(behind.pid)[:1] == ["sleep"], "the program is not there")
        found = tree.is_to_outlast(rank, [behind], signal.SIGTERM)
        tree.send(behind, signal.SIGKILL)
    assert found is expected


WORKER = """
import multiprocessing, sys
worker = multiprocessing.get_context(sys.argv[1]).Process(target=input)
worker.start()
print("started", flush=True)
sys.stdin.read()
worker.kill()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_are_known_by_the_words_that_python_gives_them(method: str) -> None:
    words = (sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", WORKER, method)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"started\n"
        of_children = lambda: [tree.command(each.pid) for each in tree.generation(parent.pid, 1)]  # noqa: E731
        sleep_until(lambda: tree.command(parent.pid) not in of_children(), "they have not started")
        children = of_children()
        parent.communicate()
    assert len(children) == 2, children  # one of which keeps count of what they share
    for each in (*children, ["python", "-m", "joblib.externals.loky.backend.popen_loky_posix", "--process-name", "LokyProcess-1"]):
        assert tree.is_worker(each), each
    assert not tree.is_worker(["python", "-u", "train.py", *children[0][1:]])


def test_an_interrupt_ends_a_start_at_once() -> None:
    """As long as nothing handles SIGINT, KeyboardInterrupt could be raised where Python only prints it, and the job would go on."""
    code = "import os, signal, ranklaunch_start as start; start._end_by_interrupts(); os.kill(os.getpid(), signal.SIGINT); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, ""), done.stderr
