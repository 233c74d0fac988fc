"""What is told of an output that no entry knows: by its words, and only where the process was not at work after them."""

from __future__ import annotations

import json

import helpers
import pytest

from ranklaunch.catalogue import CAUSE, CONSEQUENCE, STOPPED, find
from ranklaunch.catalogue.tracebacks import Lines

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    step()\n'
NCCL = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:264, unhandled system error"
WORK = "step 12 | loss 2.31\n"
# Of a process that has ended: by trackers, profilers, `time`, and a progress bar that is drawn once more.
PARTING = (
    "wandb: Waiting for W&B process to finish... (failed 1). Press Control-C to abort syncing.\nwandb: Run history:\nwandb: loss 0.4\n",
    "wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)\n",
    "[neptune] [info   ] Shutting down background jobs, please wait a moment...\n[neptune] [info   ] Done!\n",
    "ClearML Task: completed\n",
    "[INFO] DISTRIBUTED(11,7f8a16ffd6c0,python):2026-11-23-18:02:12.931.999 [rpc/tcp_client.cc:367] Start] Event base dispatch success!\n",
    "2.13user 0.10system 0:02.23elapsed 100%CPU (0avgtext+0avgdata 16304maxresident)k\n0inputs+8outputs (0major+1minor)pagefaults 0swaps\n",
    "Command exited with non-zero status 1\n\tPercent of CPU this job got: 99%\n\tExit status: 1\n",
    "Generating '/tmp/nsys-report-abcd.qdstrm'\n[1/1] [========================100%] report1.nsys-rep\nGenerated:\n    /work/r.nsys-rep\n",
    "Scalene: profile written to profile.html\n",
    "\nExtension modules: numpy._core._multiarray_umath, numpy.linalg._umath_linalg (total: 2)\n",
    "     22775 Done                    | tee train.log\n",
    "\rEpoch 1:  40%|████      | 40/100 [00:12<00:18,  3.2it/s, loss=0.4]\n",
)
OF = {
    CAUSE: (
        "train: error: no such split: dev",
        "[node 3] fatal: the plan has no stage 3",
        "solver.cc:81: int solve(Grid*): Assertion `grid->n > 0' failed.",
        "F1122 08:00:00.123 4711 pipeline.cc:33] Check failed: stages.size() == 4 (3 vs. 4)",
        "Error locating target 'torch.optim.AdamWW', set env var HYDRA_FULL_ERROR=1 to see chained exception.",
        "FATAL: loss is NaN at step 20, aborting",
        "FATAL Flags parsing error: flag --data=None: Flag --data must have a value other than None.",
        "thread 'main' panicked at src/main.rs:12:5: no such stage",
        'Exception in thread "main" java.lang.IllegalStateException: no stage',
        "train.sh: line 3: data.txt: No such file or directory",
        "2026-11-22 08:00:00 | ERROR | pipeline:run:33 - stage 3 cannot be built",
        "Worker 2: grid.StageError: no stage 3",
        "[trainer] cannot reach the peer h2: No route to host",
        "floating point exception (core dumped)",
    ),
    CONSEQUENCE: (
        "grid: lost connection to worker 3",
        "grid.StepFailed: rank 5 died unexpectedly",
        "[engine] child process 4711 exited with code 3",
        "E1122 08:00:00.123 4711 ring.cc:33] stage barrier timed out after 300 s",
        "ring: peer h3 closed the stream",
        "terminating all other workers",
        "ring.Aborted: aborted because another rank failed",
    ),
    STOPPED: (
        "trainer: caught SIGTERM, leaving",
        "the job was cancelled by the user",
        "runner: time limit of 3600 s reached",
        "this instance has been reclaimed",
    ),
}
SURVIVED = (
    "WARNING: could not open the cache, rebuilding it",
    "ERROR: upload failed, attempt 2 of 5",
    "fatal: not a git repository (or any of the parent directories): .git",
    "E1122 08:00:00.123 4711 cuda_fft.cc:477] Unable to register cuFFT factory: one has already been registered",
    "connection to h2 timed out; retrying",
    "metric error: 0.031, failed: 0",
    "bash: no job control in this shell",
    "skip_failed_samples: False",
    "worker 3 exited with code 0",
)


def kind(text: str) -> str | None:
    found = find(text)
    return found.error.kind if found else None


@helpers.for_each([(told, line) for told, lines in OF.items() for line in lines])
def test_by_its_words(told: str, line: str) -> None:
    assert kind(f"{WORK}{line}\n") == told
    assert kind(f"{line}\n{WORK}") is None


@helpers.for_each(list(SURVIVED))
def test_what_is_survived_is_no_last_word(line: str) -> None:
    assert find(f"{WORK}{line}\n") is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("worker 3 died unexpectedly", CONSEQUENCE),
        ("ring closed by peer", CONSEQUENCE),
        ("caught SIGTERM", STOPPED),
        ("no stage 3", CAUSE),
        ("cannot reach h2: connection failed: No route to host", CAUSE),
        ("worker 3 was killed: the host is out of memory", CAUSE),
    ],
)
def test_an_exception_that_no_entry_knows(message: str, told: str) -> None:
    found = find(f"{FRAMES}grid.Trouble: {message}\n")
    assert found
    assert (found.error.kind, found.line) == (told, f"grid.Trouble: {message}")


@helpers.for_each(list(PARTING))
def test_what_is_said_of_a_process_that_has_ended_is_no_work(said: str) -> None:
    found = find(f"{WORK}{FRAMES}ValueError: loss is nan\n{said}")
    assert found
    assert found.line == "ValueError: loss is nan"


def test_a_line_or_two_that_a_logger_has_for_the_way_out_are_no_work() -> None:
    """As of a program that logs the exception which ends it. More of them, or an exception called a warning, are of one that goes on."""
    logged = "2026-11-24 08:00:00,123 {level} train: {message}\n".format
    ends = logged(level="ERROR", message="training failed") + f"{FRAMES}ValueError: loss is nan\n"
    way_out = [logged(level="INFO", message=message) for message in ("took 12.3 s", "bye", "rank 1 leaves")]
    for behind in (way_out[:1], way_out[:2]):
        found = find(ends + "".join(behind))
        assert found
        assert found.line == "ValueError: loss is nan"
        assert find(ends.replace("ERROR", "WARNING") + "".join(behind)) is None
        raised_from = f"{FRAMES}KeyError: 'loss'\n\nThe above exception was the direct cause of the following exception:\n\n"
        assert find(ends.replace("ERROR", "WARNING").replace(FRAMES, raised_from + FRAMES) + "".join(behind)) is None
    assert find(ends + "".join(way_out)) is None


@pytest.mark.parametrize("error", ['error: Parser key "trainer.max_epochs":', "ERROR: the data folder /d is empty"])
def test_a_line_of_usage_gives_way_to_the_error_behind_it(error: str) -> None:
    usage = "usage: train.py [-h] [--config CONFIG] {fit,validate,test} ..."
    assert [found and found.line for found in (find(f"{usage}\n{error}\n"), find(f"{usage}\n"))] == [error, usage]


def test_a_fault_while_the_handler_of_faults_writes_is_no_cause() -> None:
    timed_out = "[rank0]:[E1126 21:25:23.522746740 PG.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL()\n"
    aborted = f'{timed_out}Fatal Python error: Aborted\n\nThread 0x00007ffb (most recent call first):\n  File "<shim>", line ??? in <x>\n'
    found = find(f"{aborted}  File Fatal Python error: Segmentation fault\n\n")
    assert found
    assert found.error.name == "nccl-collective-timeout"


BAR = "epoch 0:  33%|███▎      | 20/60 [00:01<00:02, 18.81it/s]"


@pytest.mark.parametrize(
    "told", [f"{BAR}ERROR: no such split: dev\n\r{BAR}\n", f"{BAR}\r{' ' * 60}\rERROR: no such split: dev\n\r{BAR}\n\r{BAR}\n"]
)
def test_a_progress_bar_that_is_drawn_once_more_is_no_work(told: str) -> None:
    assert kind(f"{BAR.replace('20/60', '19/60')}\r{told}") == CAUSE
    assert kind(f"{told}\r{BAR.replace('20/60', '21/60')}\n") is None


def test_what_abseil_says_of_its_end_is_told_before_its_abort() -> None:
    said = "F1126 14:27:03.708034 139641329855360 train.py:9] cannot restore checkpoint /ckpt/step-1200"
    found = find(f"{said}\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  <no Python frame>\n")
    assert found
    assert found.line == said


def test_a_progress_bar_that_goes_on_is_work() -> None:
    bars = "".join(f"\rEpoch 1:  4{n}%|████      | 4{n}/100 [00:12<00:18,  3.2it/s, loss=0.4]" for n in range(3))
    assert find(f"{WORK}{FRAMES}ValueError: loss is nan\n{bars}\n") is None


def test_an_exception_within_a_line_is_looked_up_as_one_of_its_own() -> None:
    found = find(f"{WORK}<<stderr>> ModuleNotFoundError: No module named 'apex'\n")
    assert found
    assert found.error.name == "python-module-not-found"


def test_words_of_a_cause_win_over_a_line_that_leaves_it_open() -> None:
    assert kind(f"{FRAMES}{NCCL}\n") == CONSEQUENCE
    assert kind(f"ring.cc:12 bind failed: Address already in use\n{FRAMES}{NCCL}\n") == CAUSE


def test_what_a_launcher_says_after_its_report_is_no_cause() -> None:
    report = "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    ended = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)\n"
    assert kind(f"{report}{ended}") == CONSEQUENCE
    assert kind(f"ring: Segmentation fault\n{report}{ended}") == CAUSE


# Of asyncio.TaskGroup, whose second task found the connection of the first one closed.
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/work/train.py", line 10, in <module>
  |     asyncio.run(main())
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/work/train.py", line 3, in read
    |     raise ValueError(f"shard {n} has no samples")
    | ValueError: shard 2 has no samples
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/work/train.py", line 5, in send
    |     await sent
    | ConnectionResetError: [Errno 104] Connection reset by peer
    +------------------------------------
"""


@pytest.mark.parametrize("tag", ["", "[rank3]: ", "[default0]:"])
def test_a_group_of_exceptions_says_why_by_the_first_that_is_a_cause(tag: str) -> None:
    found = find(WORK + "".join(f"{tag}{line}\n" for line in GROUP.splitlines()))
    assert found
    assert (found.error.kind, found.line.rpartition("| ")[2]) == (CAUSE, "ValueError: shard 2 has no samples")


NEVER_RAISED = f"""{GROUP.partition("  +-+")[0]}\
  +-+---------------- 1 ----------------
    | OSError: shard 1 is gone
    +---------------- 2 ----------------
    | KeyError: 3
    +------------------------------------
"""


@pytest.mark.parametrize("group", [GROUP, NEVER_RAISED])
def test_a_script_may_say_how_it_ended_below_a_group(group: str) -> None:
    ends = find(f"{WORK}{group}")
    assert ends
    assert find(f"{WORK}{group}training ended with 1\n") == ends
    later = find(f"{FRAMES}KeyError: 'label'\n{WORK}{group}training ended with 1\n")
    assert later
    assert later.line == ends.line


def test_a_group_of_exceptions_that_were_never_raised() -> None:
    found = find(NEVER_RAISED)
    assert found
    assert found.line == "| OSError: shard 1 is gone"


WITHIN_ANOTHER = f"""{GROUP.partition("  +-+")[0]}\
  +-+---------------- 1 ----------------
{"".join(f"  {line}{chr(10)}" for line in GROUP.splitlines())}\
    +---------------- 2 ----------------
    | KeyError: 3
    +------------------------------------
"""


def test_a_group_within_a_group_says_nothing_itself() -> None:
    found = find(WITHIN_ANOTHER)
    assert found
    assert found.line.rpartition("| ")[2] == "ValueError: shard 2 has no samples"


@pytest.mark.parametrize("group", [GROUP, NEVER_RAISED])
def test_a_group_that_was_caught_is_no_cause(group: str) -> None:
    assert find(group + WORK) is None
    found = find(f"{group}{FRAMES}KeyError: 'label'\n")
    assert found
    assert found.line == "KeyError: 'label'"


def test_a_process_that_aborts_says_so_above_the_names_of_its_modules() -> None:
    where = 'Current thread 0x00007f13993d7b80 (most recent call first):\n  File "train.py", line 2 in <module>\n'
    found = find(f"{WORK}Fatal Python error: Aborted\n\n{where}\nExtension modules: numpy._core._multiarray_umath (total: 1)\n")
    assert found
    assert found.line == "Fatal Python error: Aborted"


def test_a_shell_tells_of_the_rest_of_a_pipe_below_what_was_killed() -> None:
    killed = "train.sh: line 2: 22774 Killed                  python train.py"
    found = find(f"{WORK}{killed}\n     22775 Done                    | tee train.log\n")
    assert found
    assert found.line == killed


QUOTING = f"""{FRAMES.splitlines()[0]}
  File "/app/train.py", line 14, in main
    with retry(read, on_error="NCCL timeout, CUDA out of memory"):
  File "/app/train.py", line 11, in read
    raise ValueError(text)
ValueError: label 1003
of 1000"""


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (json.dumps({"exc_info": QUOTING, "host": "n1"}), '{"exc_info": "ValueError: label 1003 of 1000", "host": "n1"}'),
        (f"ERROR {QUOTING!r} in n1", "ERROR 'ValueError: label 1003 of 1000' in n1"),
    ],
)
def test_what_a_traceback_in_one_line_quotes_is_no_cause(written: str, told: str) -> None:
    assert Lines(written).told == [told]
    found = find(f"{WORK}{written}\n")
    assert found
    assert (found.error.name, found.line) == ("words-of-a-failure", told)
    found = find(f"{WORK}{written.replace('ValueError:', 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate')}\n")
    assert found
    assert found.error.name == "cuda-out-of-memory"
