"""Programs whose output goes through a filter of the user's: what it passes on late, and what it puts before each line."""

from __future__ import annotations

import re
import time

import pytest

from ranklaunch.catalogue.tracebacks import BEGINS
from ranklaunch.supervise.output import late
from ranklaunch.supervise.output.pipe import Output
from testbench.jobs.job import Starter

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    step()\nValueError: loss is nan\n'
CHAINED = f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK.replace('loss', 'grad')}"
AGO = 1.0  # seconds between two parts that did not come at once


def settled(*parts: str | float, filtered: bool = True, ended: bool = False) -> str:
    """Of an output that came in these parts. A number: seconds between two of them."""
    now = 5.0
    output = Output((), "", lambda *lines: None, lambda: now, lambda text: None, filtered=filtered)
    for part in parts:
        if isinstance(part, str):
            output.feed(part.encode())
        else:
            now += part
    return output.settled(ended=ended).decode()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["step 6\n", AGO, TRACEBACK, "step 7\n"], f"step 6\nstep 7\n{TRACEBACK}"),
        (["step 6\n", AGO, TRACEBACK, 0.05, "step 7\n"], f"step 6\nstep 7\n{TRACEBACK}"),
        (["step 6\n", AGO, CHAINED, "step 7\n"], f"step 6\nstep 7\n{CHAINED}"),
        (["loading the modules\n", TRACEBACK], f"loading the modules\n{TRACEBACK}"),
        ([AGO, TRACEBACK, "loading the modules\n"], f"loading the modules\n{TRACEBACK}"),
        (["step 6\n", AGO, TRACEBACK[:35], "step 7\n", TRACEBACK[35:]], f"step 6\nstep 7\n{TRACEBACK}"),
        (["step 6\n", AGO, f"ERROR: skipped\n{TRACEBACK}step 7\n"], f"step 6\nERROR: skipped\n{TRACEBACK}step 7\n"),
        ([TRACEBACK, "step 7\nstep 8\nstep 9\n"], f"{TRACEBACK}step 7\nstep 8\nstep 9\n"),
        # It went on, the message goes on, or the exception is not all there.
        (["step 6\n", AGO, TRACEBACK, AGO, "step 7\n"], f"step 6\n{TRACEBACK}step 7\n"),
        (["step 6\n", AGO, TRACEBACK, "  in shard 3: failed to read\n"], f"step 6\n{TRACEBACK}  in shard 3: failed to read\n"),
        (["step 6\n", AGO, TRACEBACK[:70], "step 7\n"], f"step 6\n{TRACEBACK[:70]}step 7\n"),
        (["step 6\n", AGO, TRACEBACK], f"step 6\n{TRACEBACK}"),
        (["step 6\n"], "step 6\n"),
        ([], ""),
    ],
)
def test_what_was_said_before_an_exception_stands_before_it(parts: list[str | float], expected: str) -> None:
    assert settled(*parts) == expected


@pytest.mark.parametrize("mark", ["", "2026-11-25 22:40:42,614 root INFO "])
@pytest.mark.parametrize("last", [TRACEBACK.replace("loss", "grad"), CHAINED])
def test_an_exception_that_was_caught_before_stays_where_it_was(mark: str, last: str) -> None:
    caught = f"{mark}step 5\n{TRACEBACK}" + "".join(f"{mark}step {number}\n" for number in range(6, 12))
    assert settled(caught + last, ended=True) == caught + last
    assert settled(caught, AGO, last + f"{mark}step 12\n") == f"{caught}{mark}step 12\n{last}"


@pytest.mark.parametrize(
    ("before", "pause_s", "moved"),
    [("", 0, True), ("step 6\n", AGO, True), ("ERROR: skipped\n", 0, False), ("step 6 loss 1.2\n", 0, False)],
)
def test_a_filter_may_hold_many_lines_back_until_the_program_ends(before: str, pause_s: float, moved: bool) -> None:
    """But a program that goes on may count as fast, and a filter of both streams holds back what was said before, too."""
    steps = "".join(f"step {number} loss 0.1\n" for number in range(30))
    came = f"{before}{TRACEBACK}{steps}"
    assert settled(before, pause_s, TRACEBACK + steps, ended=True) == (f"{before}{steps}{TRACEBACK}" if moved else came)
    assert settled(before, pause_s, TRACEBACK, AGO, steps, ended=True) == came
    assert settled(before, pause_s, TRACEBACK + steps) == came


def marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}" for line in text.splitlines(keepends=True))


WORKERS = f"""{TRACEBACK.replace("loss is nan", "Caught ValueError in DataLoader worker process 0.")}Original {TRACEBACK}"""


@pytest.mark.parametrize("mark", ["rank1: ", "E1: ", "[1] ", "12:07:01 err: ", "rank1: [rank1]: "])
@pytest.mark.parametrize("traceback", [TRACEBACK, CHAINED, WORKERS])
def test_a_filter_may_put_any_mark_before_each_line(mark: str, traceback: str) -> None:
    """Both streams through one filter, or each through its own."""
    before, said, step = marked(mark, "step 6\n"), marked(mark, traceback), "O1: step 7\n"
    assert settled(before, AGO, said) == before + said
    assert settled(before, AGO, said + step) == before + step + said
    cut = said.index("module>\n") + len("module>\n")
    assert settled(before, AGO, said[:cut] + step + said[cut:]) == before + step + said


def test_lines_that_come_one_by_one_are_no_filters() -> None:
    came = ["loading\n", AGO, TRACEBACK, *(part for number in range(8) for part in (0.02, f"step {number} loss 0.5\n"))]
    assert settled(*came, ended=True) == "".join(part for part in came if isinstance(part, str))


def test_without_a_filter_the_order_is_known() -> None:
    assert settled(TRACEBACK, "step 7\n", filtered=False) == f"{TRACEBACK}step 7\n"


# Rank 1 fails, and takes its time to leave, as PyTorch does; rank 0 notices, and ends before it, without a word.
TAKES_LONG_TO_LEAVE = """
import atexit, os, time
print("step 6", flush=True)
time.sleep(2)  # within which a launcher's ranks are found
if os.environ["RANK"] == "1":
    def leave():
        open("lost", "w").close()
        time.sleep(1.5)
    atexit.register(leave)
    print("step 7", flush=True)
    raise ValueError("loss is nan")
while not os.path.exists("lost"):
    time.sleep(0.01)
time.sleep(0.5)  # longer than a filter takes on a busy machine
os._exit(1)
"""
SLOW = 'while IFS= read -r line; do sleep 0.02; echo "$line"; done'


@pytest.mark.processes
@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
@pytest.mark.parametrize("behind", [f"> >({SLOW})", '2>&1 | sed -u "s/^/[$RANK] /"', "2>&1 | sed -u 's/^/[x] /'"])
def test_the_rank_that_failed_is_named(as_process: Starter, method: str, behind: str) -> None:
    (as_process.folder / "train.py").write_text(TAKES_LONG_TO_LEAVE)
    script = as_process.folder / "train.sh"
    script.write_text(f"set -o pipefail\npython train.py {behind}\n")
    job = as_process.run(script, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(120) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: loss is nan", job.err.text + job.out.text


# As PyTorch does once a process group is there.
HOOK = """
def hook(*of):
    print(*(f"[rank1]: {line}" for each in traceback.format_exception(*of) for line in each.splitlines()), sep="\\n", file=sys.stderr)
sys.excepthook = hook
"""


@pytest.mark.processes
@pytest.mark.parametrize("hook", ["", HOOK])
@pytest.mark.parametrize("behind", ["", "echo training finished\ncp log /nowhere/\ntrue\n"])
def test_a_script_that_hides_the_code_of_its_program_is_told(as_process: Starter, behind: str, hook: str) -> None:
    """The exit code is the script's own, and says success."""
    fails = "if os.environ['RANK'] == '1': raise ValueError('loss is nan')\n"
    (as_process.folder / "train.py").write_text(f"import os, sys, traceback\n{hook}{fails}")
    script = as_process.folder / "train.sh"
    script.write_text(f"python train.py 2>&1 | cat\n{behind}")
    job = as_process.run(script, options=("--method", "spawn", "--slots", 2))
    assert job.end(120) == 0
    (note,) = job.verdict["notes"]
    assert note.startswith("rank 1 ended with 0, although its output ends with an exception: ValueError: loss is nan (")
    assert note in job.err.text


# What it has caught was no failure of the program.
CATCHES = """
import traceback
def upload(): raise OSError("no route to the tracker")
def main():
    try:
        upload()
    except OSError:
        traceback.print_exc()
    print("training finished", flush=True)
main()
"""


@pytest.mark.processes
def test_what_a_scripts_program_has_caught_is_no_note(as_process: Starter) -> None:
    (as_process.folder / "train.py").write_text(CATCHES)
    script = as_process.folder / "train.sh"
    script.write_text("python train.py\n")
    job = as_process.run(script, options=("--method", "spawn", "--slots", 1))
    assert job.end(120) == 0
    assert job.verdict["notes"] == []


# Rank 0 catches an exception each time, at once before its next step, and dies of another thing.
CAUGHT = """
import os, time, traceback
print("step 0", flush=True)
time.sleep(0.5)
for step in (1,):
    try:
        raise ValueError(f"sample {step}")
    except ValueError:
        traceback.print_exc()
    print("step", step, flush=True)
os._exit(3)
"""


@pytest.mark.processes
def test_what_was_caught_a_moment_before_is_no_cause(as_process: Starter) -> None:
    (as_process.folder / "train.py").write_text(CAUGHT)
    script = as_process.folder / "train.sh"
    script.write_text("python -u train.py\n")
    job = as_process.run(script, options=("--method", "spawn", "--slots", 1), grace_s=5)
    assert job.end(120) == 3
    assert job.verdict["reason"] == "rank 0 on node 0 exited with code 3; its last line: step 1"


FRAMES = "".join(f'  File "train.py", line {number}, in f{number}\n    f{number + 1}()\n' for number in range(3))
OPEN = f"step 7\n{BEGINS}\n{FRAMES}"
CHAIN = f"\nDuring handling of the above exception, another exception occurred:\n\n{BEGINS}\n{FRAMES}KeyError: 'x'\n"
WORKER = f"{BEGINS}\n{FRAMES}EOFError\n"


@pytest.mark.parametrize(
    ("frozen", "since", "more"),
    [
        (OPEN, "ValueError: nan\n", "ValueError: nan\n"),
        (OPEN + "  Fi", f"le\n{FRAMES}Value: nan\n\tMissing key\n", f"le\n{FRAMES}Value: nan\n\tMissing key\n"),
        (OPEN, f"worker 3 is alone\n{FRAMES}ValueError: nan\nworker 3 goes\n{WORKER}", f"{FRAMES}ValueError: nan\n"),
        (OPEN + "Val", f"ueError: nan\n{CHAIN}{WORKER}", f"ueError: nan\n{CHAIN}"),
        (OPEN + "ValueError: nan\n", f"{CHAIN}{WORKER}", CHAIN),
        (OPEN + "ValueError: nan\n", WORKER, ""),
        (OPEN + "ValueError: nan\nstep 8\n", CHAIN, ""),
        (OPEN, WORKER, ""),
        (OPEN, FRAMES, ""),
        ("step 7\n", WORKER, ""),
    ],
)
@pytest.mark.parametrize("mark", ["", "20:11:08 "])
def test_a_traceback_that_a_filter_passes_on_after_the_end_is_whole(frozen: str, since: str, more: str, mark: str) -> None:
    """Of what else came since, nothing counts."""
    frozen, now = (re.sub("(?m)^(?=.)", mark, text) if mark else text for text in (frozen, frozen + since))
    said = late.continued(frozen.encode(), b"copied later\n" + now.encode()).decode()
    assert said[: len(frozen)] == frozen
    assert said.removeprefix(frozen).replace(mark, "") == more if mark else said.removeprefix(frozen) == more


def test_a_traceback_that_goes_on_is_found_in_time() -> None:
    hostile = b"Traceback (most recent call last):" * 960
    began = time.process_time()
    late.continued(hostile, hostile)
    late.continued(b"Traceback (most recent call last):\n" + b"  a" * 10_000, b"Traceback (most recent call last):\n" + b"  a" * 10_500)
    assert time.process_time() - began < 2


DEEP = """
import os, time
if os.environ["RANK"] != "1":
    time.sleep(60)
time.sleep(1)
for number in range(40):
    exec(f"def f{number}():\\n    f{number - 1}()" if number else "def f0(): raise RuntimeError('boom')")
f39()
"""


@pytest.mark.processes
@pytest.mark.launchers
def test_a_filter_may_be_slow_with_a_long_traceback(as_process: Starter) -> None:
    (as_process.folder / "train.py").write_text(DEEP)
    script = as_process.folder / "train.sh"
    script.write_text('python train.py 2> >(while IFS= read -r line; do echo "$line"; sleep 0.02; done >&2)\n')
    job = as_process.run(script, options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(120) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: RuntimeError: boom", job.err.text + job.out.text
