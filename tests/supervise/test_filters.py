"""Programs whose output goes through a filter of the user's, such as tee or sed: what they recorded is the reason all the same."""

from __future__ import annotations

import pytest

from testbench.jobs.job import Starter

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
    assert note.startswith("rank 1 ended with 0, although its program ended by an exception: ValueError: loss is nan at train.py:")
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
