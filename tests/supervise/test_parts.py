"""What is told of a program of which a thread, a process, a task or the initializer of a pool has failed, before its own end or after."""

from __future__ import annotations

import helpers
import pytest
from left_behind import told

from ranklaunch.supervise import judge

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n    main()\n'
LOSS = f"{FRAMES}ValueError: loss is nan\n"


# What is still under way when the program ends.
RESETS = "ConnectionResetError: [Errno 104] Connection reset by peer"


@pytest.mark.parametrize("part", ["Exception in thread heartbeat:", "Process Process-1:"])
@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_what_an_exception_of_the_program_has_brought_about_is_not_the_reason(part: str, mark: str) -> None:
    main = "".join(f"{mark}{line}\n" for line in LOSS.splitlines())
    late = f"{part}\n{FRAMES}{RESETS}\n".replace("<module>", "run")
    assert told(f"step 3 loss 0.2\n{main}{late}{late}", 1, "train.py", 2)[0].endswith("ValueError: loss is nan")


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
    assert told(f"step 3 loss 0.2\n{late}", 1, "train.py", 2)[0] == task.splitlines()[-1]  # where there is nothing else


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
    error = judge.known_error(f"step 3 loss 0.2\n{line}\n".encode(), plan, code=143)
    assert error
    assert (error.name, error.line) == ("mindspore-dataset-worker-killed", line)
