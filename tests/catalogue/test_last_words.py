"""What is told of an output that no entry knows: by its words, and only where the process was not at work after them."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.catalogue import CAUSE, CONSEQUENCE, STOPPED, find

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
    """As of a program that logs the exception which ends it. More of them are of one that goes on."""
    logged = "2026-11-24 08:00:00,123 {level} train: {message}\n".format
    ends = logged(level="ERROR", message="training failed") + f"{FRAMES}ValueError: loss is nan\n"
    way_out = [logged(level="INFO", message=message) for message in ("took 12.3 s", "bye", "rank 1 leaves")]
    for behind in (way_out[:1], way_out[:2]):
        found = find(ends + "".join(behind))
        assert found
        assert found.line == "ValueError: loss is nan"
    assert find(ends + "".join(way_out)) is None


def test_a_fault_while_the_handler_of_faults_writes_is_no_cause() -> None:
    timed_out = "[rank0]:[E1126 21:25:23.522746740 PG.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL()\n"
    aborted = f'{timed_out}Fatal Python error: Aborted\n\nThread 0x00007ffb (most recent call first):\n  File "<shim>", line ??? in <x>\n'
    found = find(f"{aborted}  File Fatal Python error: Segmentation fault\n\n")
    assert found
    assert found.error.name == "nccl-collective-timeout"


def test_what_abseil_says_of_its_end_is_told_before_its_abort() -> None:
    said = "F1126 14:27:03.708034 139641329855360 train.py:9] cannot restore checkpoint /ckpt/step-1200"
    found = find(f"{said}\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  <no Python frame>\n")
    assert found
    assert found.line == said


def test_a_progress_bar_that_goes_on_is_work() -> None:
    bars = "".join(f"\rEpoch 1:  4{n}%|████      | 4{n}/100 [00:12<00:18,  3.2it/s, loss=0.4]" for n in range(3))
    assert find(f"{WORK}{FRAMES}ValueError: loss is nan\n{bars}\n") is None


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
