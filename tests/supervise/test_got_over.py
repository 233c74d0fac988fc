"""What is told of a program that had warned of a failure, or had caught one, before it ended for another."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from left_behind import told

MEMORY = "CUDA out of memory. Tried to allocate 400.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 138.77 GiB is free."
RAISED = f"torch.OutOfMemoryError: {MEMORY}"
CAUGHT = f'Traceback (most recent call last):\n  File "train.py", line 8, in step\n    loss.backward()\n{RAISED}\n'
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 13, in <module>\n    main()\n'
VALUE = "ValueError: label 7 of sample 12 is out of range"
ASSERTION = "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: indexSelectSmallIndex: block: [0,0,0] Assertion `i < n` failed."
HINTS = """Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

"""
KERNEL = f"{ASSERTION}\n{FRAMES}torch.AcceleratorError: CUDA error: device-side assert triggered\n{HINTS}"
TIMEOUT = (
    "[rank0]:[E1127 10:50:21.372915982 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=15000) ran for 15072 milliseconds before timing out."
)
WARNED = (
    f"WARNING:train:OOM, skipping batch: {MEMORY}",
    f"2026-11-27 10:49:00.1 | \x1b[33mWARNING \x1b[0m | __main__:step:8 - OOM: {MEMORY}",
    f"| WARNING: ran out of memory, retrying batch {MEMORY}",
    f"ran out of memory, skipping this batch: {MEMORY}",
    f"11:00:00,100 train WARNING batch 0: {MEMORY}\n11:00:00,200 train INFO batch 0 done\n11:00:00,300 train WARNING batch 1: {MEMORY}",
    f"train.py:5: UserWarning: halving the batch: {MEMORY}\n  warnings.warn('halving the batch: CUDA out of memory. Tried to')",
    f"2026-11-27 11:00:01 [warning  ] skip batch                     err={MEMORY!r}",
    json.dumps({"level": "warning", "event": "skip batch", "exc": MEMORY}),
    f'level=warning msg="skip batch" err="{MEMORY}"',
)


@pytest.mark.parametrize("warned", WARNED)
@pytest.mark.parametrize("steps", ["", "step 1 loss 0.1\n", "step 1 loss 0.1\nstep 2 loss 0.1\n"])
def test_what_a_program_had_warned_of_does_not_hide_what_ended_it(warned: str, steps: str) -> None:
    missing = "Error: the validation data is missing"
    ends = ((1, f"{FRAMES}{VALUE}\n", VALUE), (1, KERNEL, ASSERTION), (3, f"{missing}\n", missing), (134, f"{TIMEOUT}\n", TIMEOUT))
    for code, last, why in ends:
        for ranks in (1, 2):
            found = told(f"{warned}\n{steps}{last}", code, "run.py", ranks)[0]
            assert found.startswith(why.removeprefix("[rank0]:")[:60])


@pytest.mark.parametrize("warned", WARNED)
def test_what_a_program_has_warned_of_is_not_why_it_was_killed(warned: str) -> None:
    assert told(f"{warned}\n", 137, "run.py")[0] == told(f"{warned}\nepoch 1\n", 137, "run.py")[0] == ""


@pytest.mark.parametrize("warned", WARNED)
def test_what_a_program_has_warned_of_last_is_why_it_ended(warned: str) -> None:
    assert MEMORY[:60] in told(f"{warned}\n", 1, "run.py")[0]


def test_what_cuda_says_below_its_errors_is_no_programs_last_line() -> None:
    logged = KERNEL.replace(FRAMES, f"ERROR:root:training failed\n{FRAMES.replace('<module>', 'main')}")
    assert told(logged, 1, "run.py")[0] == ASSERTION


FIRST = "Traceback (most recent call last):\n  File \"train.py\", line 5, in <module>\n    parse()\nValueError: invalid literal: 'abc'\n"
CHAINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
WHY = "RuntimeError: shard 12 is corrupt"


def hooked(text: str) -> str:
    """As PyTorch's hook writes it, which leaves empty lines as they are."""
    return "\n".join(f"[rank0]: {line}" if line else "" for line in text.split("\n"))


@pytest.mark.parametrize("how", CHAINS)
@pytest.mark.parametrize("write", [str, hooked])
@pytest.mark.parametrize(
    "before",
    [
        f"ERROR:train:parse failed\n{FIRST}",
        f"WARNING:train:no optimizer state\n{FIRST.replace('ValueError: invalid literal', 'KeyError')}",
        FIRST,
        f"ERROR:train:parse failed\n{FIRST}retrying from backup\n",
        f"WARNING:train:skipping a batch: {MEMORY}\n",
    ],
)
def test_what_was_logged_does_not_hide_an_exception_that_was_raised_from_another(
    before: str, write: Callable[[str], str], how: str
) -> None:
    chain = write(f"{FIRST}\n{how}\n\n{FRAMES}{WHY}\n")
    for ranks in (1, 2):
        found = told(f"{before}{chain}", 1, "run.py", ranks)[0]
        assert found.rpartition("[rank0]: ")[2] == WHY


# By RichHandler(rich_tracebacks=True) and by Console().print_exception(), 60 columns wide.
DRAWN = (
    """\
[11/27/26 13:09:10] ERROR    sample skipped      train.py:13
                             ╭─ Traceback (mos─╮
                             │ /job/train.py:9 │
                             │ in parse        │
                             │                 │
                             │    8 def parse( │
                             │ ❱  9 │   return │
                             ╰─────────────────╯
                             ValueError: invalid
                             literal for int()
                             with base 10: 'abc'
""",
    """\
╭─────────── Traceback (most recent call last) ────────────╮
│ /job/train.py:9 in parse                                 │
│                                                          │
│ ❱  9 │   return int("abc")                               │
╰──────────────────────────────────────────────────────────╯
ValueError: invalid literal for int() with base 10: 'abc'
""",
)


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("write", [str, hooked])
def test_a_panel_of_an_exception_that_was_caught_hides_nothing(drawn: str, write: Callable[[str], str]) -> None:
    """Where rich's title is wider than the panel, it is cut."""
    last = write(f"{FRAMES}{WHY}\n")
    assert told(f"{drawn}{last}", 1, "run.py")[0].rpartition("[rank0]: ")[2] == WHY
    assert told(drawn, 1, "run.py")[0].startswith("ValueError: invalid")


@pytest.mark.parametrize(
    "caught", [FIRST, f"ERROR:train:no such thing\n{FIRST}", "could not read: [Errno 2] No such file or directory: '/x'\n"]
)
def test_what_stands_before_sigkill_is_not_why(caught: str) -> None:
    """It comes from outside; what ends a program in any start would be said to come again."""
    assert told(caught, 137, "run.py")[0] == ""


def test_what_a_program_logs_last_is_what_it_ended_for() -> None:
    """Where it had warned of the first, and where both are errors."""
    first = CAUGHT.replace(RAISED, "OSError: [Errno 28] No space left on device: '/cache/1'")
    last = FRAMES.replace("<module>", "main") + VALUE
    for level in ("WARNING:train:cache is off", "ERROR:train:cache is off"):
        found = told(f"{level}\n{first}ERROR:train:run failed\n{last}\n", 1, "run.py")[0]
        assert found == VALUE


@pytest.mark.parametrize("code", [137, 139, 143])
def test_what_a_program_has_warned_of_is_not_why_a_signal_came(code: int) -> None:
    assert told(f"WARNING:train:{MEMORY}\n", code, "run.py")[0] == ""
    assert told(f"CRITICAL:train:{MEMORY}\n", 134, "run.py")[0] == f"CRITICAL:train:{MEMORY}"
