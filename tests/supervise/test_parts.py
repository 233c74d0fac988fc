"""What is told of a program of which a thread, a process, a task or the initializer of a pool has failed, before its own end or after."""

from __future__ import annotations

import helpers
import pytest
from left_behind import told

from ranklaunch.supervise import words

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n    main()\n'
LOSS = f"{FRAMES}ValueError: loss is nan\n"
GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.11]:1234"
# Of a thread that reads data, as Python writes it while another thread says something.
THREAD = """Exception in thread Thread-1 (read):
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 982, in run
batch 4
    self._target(*self._args, **self._kwargs)
  File "train.py", line 6, in read
    raise FileNotFoundError(2, "No such file or directory", "/data/5.tar")
FileNotFoundError: [Errno 2] No such file or directory: '/data/5.tar'
"""
OF_THREAD = "before that, its thread Thread-1 (read) had failed: FileNotFoundError: [Errno 2] No such file or directory: '/data/5.tar'"


@pytest.mark.parametrize("last", ["RuntimeError: data pipeline timed out", "_queue.Empty", "ValueError: loss is nan"])
def test_a_thread_that_has_failed_before_is_told_beside_what_ended_the_program(last: str) -> None:
    for between in ("", "step 5 loss 0.25\nstep 6 loss 0.24\n"):
        assert told(f"step 4 loss 0.3\n{THREAD}{between}{FRAMES}{last}\n", 1, "train.py", 2)[0] == f"{last}; {OF_THREAD}"
    assert told(f"step 4 loss 0.3\n{FRAMES}{last}\n{THREAD}", 1, "train.py", 2)[0] == last  # it came of that


def test_who_waits_in_vain_for_its_own_thread_is_no_consequence_of_another_rank() -> None:
    plan = helpers.plan(helpers.local(2), method="spawn", program="train.py")
    waits, lost = "TimeoutError: no batch in 60 s", f"RuntimeError: {GLOO}"
    error = words.known(f"{THREAD}{FRAMES}{waits}\n".encode(), plan, code=1)
    assert error
    assert (error.name, error.kind) == ("python-file-not-found", "cause")
    error = words.known(f"{THREAD}{FRAMES}{lost}\n".encode(), plan, code=1)
    assert error
    assert (error.name, error.kind, error.line) == ("gloo-peer-connection-lost", "consequence", f"{lost}; {OF_THREAD}")
    lost_too = THREAD.replace(THREAD.splitlines()[-1], "ConnectionResetError: [Errno 104] Connection reset by peer")
    error = words.known(f"{lost_too}{FRAMES}{waits}\n".encode(), plan, code=1)
    assert error
    assert (error.kind, error.line) == ("consequence", waits)


def test_a_process_that_has_failed_before_is_told_too() -> None:
    process = THREAD.replace("Exception in thread Thread-1 (read):", "Process Process-1:").replace("batch 4\n", "")
    plan = helpers.plan(helpers.local(2), method="spawn", program="train.py")
    error = words.known(f"{process}{FRAMES}TimeoutError: no batch in 60 s\n".encode(), plan, code=1)
    assert error
    assert (error.name, error.kind) == ("python-file-not-found", "cause")
    assert error.line.startswith("TimeoutError: no batch in 60 s; before that")
    assert error.line.endswith("FileNotFoundError: [Errno 2] No such file or directory: '/data/5.tar'")


# What is still under way when the program ends.
RESETS = "ConnectionResetError: [Errno 104] Connection reset by peer"


@pytest.mark.parametrize("part", ["Exception in thread heartbeat:", "Process Process-1:"])
@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_what_an_exception_of_the_program_has_brought_about_is_not_the_reason(part: str, mark: str) -> None:
    main = "".join(f"{mark}{line}\n" for line in LOSS.splitlines())
    late = f"{part}\n{FRAMES}{RESETS}\n".replace("<module>", "run")
    assert told(f"step 3 loss 0.2\n{main}{late}{late}", 1, "train.py", 2)[0].endswith("ValueError: loss is nan")
    assert told(f"step 3 loss 0.2\n{main}{late}cannot write the summary\n", 4, "train.py", 2)[0] != "ValueError: loss is nan"


def test_a_thread_whose_heading_another_has_written_into_has_no_name() -> None:
    text = THREAD.replace("Exception in thread Thread-1", "batchException in thread 3\nThread-1")
    last = "ValueError: loss is nan"
    told_of = told(f"{text}{FRAMES}{last}\n", 1, "train.py", 2)[0]
    assert told_of == f"{last}; {OF_THREAD.replace('its thread Thread-1 (read)', 'a thread of it')}"


def test_a_thread_that_an_exception_of_another_has_ended_is_told_by_the_last() -> None:
    line = THREAD.splitlines()[-1]
    during = "During handling of the above exception, another exception occurred:"
    chained = THREAD.replace(line, f"KeyError: 5\n\n{during}\n\n{FRAMES}{line}")
    last = "ValueError: loss is nan"
    assert told(f"{chained}{FRAMES}{last}\n", 1, "train.py", 2)[0] == f"{last}; {OF_THREAD}"


# Of asyncio, which tells of it when the task is collected; with its own handler of logging, and with the program's.
TASK = """Task exception was never retrieved
future: <Task finished name='Task-2' coro=<roll() done, defined at train.py:5> exception=KeyError('tok')>
Traceback (most recent call last):
  File "train.py", line 5, in roll
    async def roll(): raise KeyError('tok')
KeyError: 'tok'
"""


@pytest.mark.parametrize("prefix", ["", "ERROR:asyncio:", "2026-11-27 12:00:00,123 ERROR asyncio: "])
@pytest.mark.parametrize("task", [TASK, TASK.replace("Task exception", "Future exception").replace("KeyError: 'tok'", RESETS)])
def test_a_task_of_which_is_told_as_the_program_ends_is_no_reason(prefix: str, task: str) -> None:
    late = f"{prefix}{task}"
    assert told(f"step 3 loss 0.2\n{LOSS}{late}{late}", 1, "train.py", 2)[0] == "ValueError: loss is nan"
    assert told(f"step 3 loss 0.2\nERROR: loss is nan at step 7\n{late}", 1, "train.py", 2)[0] == "ERROR: loss is nan at step 7"
    assert told(f"step 3 loss 0.2\n{late}", 1, "train.py", 2)[0] == task.splitlines()[-1]  # where there is nothing else


def test_a_task_that_has_failed_before_is_told() -> None:
    plan = helpers.plan(helpers.local(2), method="spawn", program="train.py")
    error = words.known(f"{TASK}{FRAMES}RuntimeError: no answer from the server in 60 s\n".encode(), plan, code=1)
    assert error
    assert (error.kind, error.line) == (
        "cause", "RuntimeError: no answer from the server in 60 s; before that, its task Task-2 had failed: KeyError: 'tok'"
    )  # fmt: skip


@pytest.mark.parametrize(
    "heading",
    ["Exception in callback bad() at t.py:3\nhandle: <Handle bad() at t.py:3>", "exception calling callback for <Future at 0x7f>"],
)
def test_a_callback_that_has_failed_before_is_told(heading: str) -> None:
    failed = f"{heading}\n{FRAMES}KeyError: 'tok'\n".replace("<module>", "_run")
    last = "RuntimeError: no answer in 60 s"
    assert told(f"{failed}{FRAMES}{last}\n", 1, "train.py", 2)[0] == f"{last}; before that, a callback of it had failed: KeyError: 'tok'"


POOL = "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running."


@pytest.mark.parametrize("broken", [POOL, "concurrent.futures.thread.BrokenThreadPool: A thread initializer failed, it is not usable"])
def test_the_initializer_of_a_pool_is_why_it_is_broken(broken: str) -> None:
    why = "FileNotFoundError: [Errno 2] No such file: '/data/vocab.json'"
    heading = f"Exception in initializer:\n{FRAMES}{why}\n".replace("<module>", "_process_worker")
    plan = helpers.plan(helpers.local(2), method="spawn", program="train.py")
    error = words.known(f"{heading}{heading}{FRAMES}{broken}\n".encode(), plan, code=1)
    assert error
    assert error.line == f"{broken}; before that, the initializer of its pool had failed: {why}"
    assert error.name == ("python-file-not-found" if broken == POOL else "python-uncaught-exception")


def test_what_a_thread_has_interrupted_the_program_for_is_told() -> None:
    why = "PermissionError: [Errno 13] Permission denied: '/data/x'"
    printed = f"{FRAMES}{why}\n".replace("<module>", "watch")
    interrupt = f"{FRAMES}KeyboardInterrupt\n"
    assert told(f"step 3 loss 0.2\n{printed}{interrupt}", 130, "train.py", 2)[0] == f"KeyboardInterrupt; before that: {why}"
    assert told(f"{printed}step 3 loss 0.2\nstep 4 loss 0.1\n{interrupt}", 130, "train.py", 2)[0] == "KeyboardInterrupt"
    assert told(f"step 3 loss 0.2\n{THREAD}{interrupt}", 130, "train.py", 2)[0] == f"KeyboardInterrupt; {OF_THREAD}"


def test_a_heading_without_a_traceback_near_it_is_none() -> None:
    steps = "".join(f"step {step} loss 0.2\n" for step in range(9))
    caught = f"{FRAMES}OSError: no tracker\n".replace("<module>", "upload")
    assert told(f"Process 7:\n{steps}{caught}{steps}{LOSS}", 1, "train.py", 2)[0] == "ValueError: loss is nan"


def test_the_notice_of_absl_is_no_sign_that_the_program_went_on() -> None:
    """TensorFlow logs its first line as a parameter server is taken down."""
    notice = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
    line = "W0000 00:00:1795806165.812121      89 local_rendezvous.cc:412] Local rendezvous is aborting with status: ABORTED: Cleanup"
    assert told(f"step 1\nstep 2\n{FRAMES}MemoryError\n{notice}\n{line}\n", 1, "ps.py", 2)[0] == "MemoryError"


def test_a_rank_that_mindspore_ends_for_its_worker_is_told_so() -> None:
    said = "Dataset worker process 55 was killed by signal: Killed. Main process will be terminated."
    line = f"[ERROR] MD(11,7f383f013b80,python):2026-11-27-19:37:47.934.672 [mindspore/x.cc:556] SIGCHLDHandler] {said}"
    plan = helpers.plan(helpers.local(2), method="spawn", program="train.py")
    error = words.known(f"step 3 loss 0.2\n{line}\n".encode(), plan, code=143)
    assert error
    assert (error.name, error.line) == ("mindspore-dataset-worker-killed", line)
