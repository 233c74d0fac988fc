"""A program's 0 is the success of its job only if the work is done: a failure that a shell hides, and ranks that were left at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from testbench import standins
from testbench.jobs.job import Job, Starter

pytestmark = pytest.mark.processes

CRASH = "raise ValueError('loss is nan')\n"
# Ends once the file `go` is there; its exit code is in the file.
WORKS = """
import os, sys, time
rank = os.environ.get("RANK", "0")
print("works", rank, flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
open(f"done_{rank}", "w").close()
sys.exit(int(open("go").read() or 0))
"""


def run(starter: Starter, text: str, *options: object, program: str = CRASH, **env: str) -> Job:
    (starter.folder / "train.py").write_text(program)
    path = standins.put(starter.folder / "bin", "torchrun", "accelerate", "msrun")
    (starter.folder / "train.sh").write_text(f"export PATH={path}:$PATH\n{text}\n")
    return starter.run("train.sh", options=("--slots", 2, *options), env=env)


def cases(rows: Sequence[tuple[Any, ...]], names: Sequence[str], most: int = 1) -> list[Any]:
    """Name the rows; the first so many run in CI."""
    return [pytest.param(*row, id=name, marks=[pytest.mark.table] if i >= most else []) for i, (row, name) in enumerate(zip(rows, names))]


TORCHRUN = "torchrun --nproc_per_node 2 train.py"
HIDES = [
    (f"{TORCHRUN} 2>&1 | tee train.log", "set -o pipefail"),
    (f"{TORCHRUN}\necho finished", "set -e"),
    (f"cd .\nf() {{\n  {TORCHRUN}\n  cp train.py copy\n}}\nf", "set -e"),
    (f"for i in 1; do {TORCHRUN} > log.$i; done; true", "set -e"),
    (f'CMD="{TORCHRUN}"\neval $CMD\nexit 0', "set -e"),
    (f"{TORCHRUN} &\nwait", "wait with the pid of the command"),
    (f"true\nif [ $? -ne 0 ]; then exit 1; fi\ntrap 'true' EXIT\n{TORCHRUN}\necho exited with $?", "set -e"),
    (f'OUT=$({TORCHRUN} 2>&1)\necho "$OUT"', "set -e"),
    ("accelerate launch --nproc_per_node 2 train.py | cat", "set -o pipefail"),
    ("bash inner.sh | cat", "set -o pipefail"),
    ("./prepare.sh && torchrun -h > usage; torchrun --nproc_per_node 2 train.py | grep -v x; :", "set -o pipefail"),
]


@pytest.mark.parametrize(
    ("text", "how"),
    cases(
        HIDES,
        [
            "a tee",
            "a command behind it",
            "a function",
            "a loop",
            "an eval",
            "a bare wait",
            "another status is read",
            "in a substitution",
            "accelerate",
            "another script",
            "a filter after preparation",
        ],
    ),
)
def test_a_failure_that_the_shell_hides_is_the_failure_of_the_job(as_process: Starter, text: str, how: str) -> None:
    (as_process.folder / "inner.sh").write_text(f"{TORCHRUN}\n")
    (as_process.folder / "prepare.sh").write_text("#!/bin/sh\n")
    job = run(as_process, text)
    assert job.end(120) == 1, job.err.text
    reason, name = job.verdict["reason"], "accelerate" if "accelerate" in text else "torchrun"
    assert reason.startswith(f"{name} failed with exit code 1; train.sh hid that and ended with 0 ({how}")
    assert reason.partition(" raised ")[2] == "ValueError: loss is nan at train.py:1"
    assert job.verdict["culprit"]["rank"] in (0, 1)


FLAKY = "import os\nif not os.path.exists('tried'):\n    open('tried', 'w').close()\n    os._exit(1)\n"
BELIEVED = [
    (f"{TORCHRUN} || echo failed", "torchrun failed with exit code 1, and train.sh ended with 0: it handles failures itself"),
    (f"if ! {TORCHRUN}; then echo failed; fi", "it handles failures itself"),
    (f"{TORCHRUN}\ncode=$?; echo $code", "it handles failures itself"),
    (f"{TORCHRUN} | cat\n[ ${{PIPESTATUS[0]}} = 0 ] || echo failed", "it handles failures itself"),
    (f"trap 'echo failed; exit 0' EXIT\n{TORCHRUN}\ntrue", "it handles failures itself"),
    (f"python - <<'E'\nimport subprocess\nsubprocess.run('{TORCHRUN}'.split())\nE\n# torchrun", "it is not a script that could be checked"),
    (
        "until torchrun flaky.py; do :; done",
        "an earlier torchrun of train.sh failed with exit code 1; a later",
    ),
]


@pytest.mark.parametrize(
    ("text", "note"),
    cases(BELIEVED, ["or", "if not", "a status that is read", "PIPESTATUS", "a trap", "a Python in the script", "a retry loop"]),
)
def test_a_program_that_handles_a_failure_is_believed(as_process: Starter, text: str, note: str) -> None:
    (as_process.folder / "flaky.py").write_text(FLAKY)
    job = run(as_process, text, "--method", "plain")
    assert job.end(120) == 0, job.err.text
    assert any(note in each for each in job.verdict["notes"]), job.verdict["notes"]


def test_a_program_is_believed_where_it_is_to_be(as_process: Starter) -> None:
    job = run(as_process, HIDES[0][0], RANKLAUNCH_EXIT="program")
    assert job.end(120) == 0
    assert any("torchrun failed with exit code 1; train.sh hid that" in note for note in job.verdict["notes"])


def test_without_records_a_hidden_failure_is_none(as_process: Starter) -> None:
    job = run(as_process, HIDES[0][0], RANKLAUNCH_RANKSIDE="off")
    assert job.end(120) == 0


# Ranks that are left at work


LEAVES = [
    ("msrun --worker_num=2 --join=False train.py", 2),
    ("python train.py &\nsleep 0.5", 1),
    (f"{TORCHRUN} &\nsleep 0.5", 2),
    (f"nohup {TORCHRUN} > train.log 2>&1 &\nsleep 0.5; echo started", 2),
    ("nohup bash inner.sh > train.log 2>&1 &", 2),
]


@pytest.mark.parametrize(
    ("text", "ranks"),
    cases(
        LEAVES,
        ["msrun without join", "a Python in the background", "torchrun in the background", "nohup", "a script that has not begun"],
        most=2,
    ),
)
@pytest.mark.parametrize("code", [pytest.param("", id="ends well"), pytest.param("3", id="fails")])
def test_ranks_that_are_left_are_waited_for_and_count(as_process: Starter, text: str, ranks: int, code: str) -> None:
    (as_process.folder / "inner.sh").write_text(f"sleep 0.5\n{TORCHRUN}\n")
    job = run(as_process, text, "--method", "plain", program=WORKS)
    job.err.wait_for("train.sh ended with 0 and left ranks at work: ")
    (as_process.folder / "code").write_text(code)
    (as_process.folder / "code").rename(as_process.folder / "go")
    ended = job.end(120)
    assert len([*as_process.folder.glob("done_*")]) == ranks
    if not code:
        assert ended == 0, job.err.text
    else:
        assert ended in ((1, 3) if "torchrun" in text or "inner" in text else (3,)), job.err.text
        assert "train.sh left at work, failed with exit code" in job.verdict["reason"] or "torchrun failed" in job.verdict["reason"]


def test_ranks_that_are_left_are_waited_for_without_records(as_process: Starter) -> None:
    job = run(as_process, LEAVES[0][0], program=WORKS, RANKLAUNCH_RANKSIDE="off")
    job.err.wait_for("train.sh ended with 0 and left ranks at work: ")
    (as_process.folder / "go").write_text("")
    assert job.end(120) == 0
    assert len([*as_process.folder.glob("done_*")]) == 2


def test_ranks_that_are_left_may_be_ended(as_process: Starter) -> None:
    job = run(as_process, LEAVES[0][0], program=WORKS, RANKLAUNCH_LEFT_RANKS="kill")
    assert job.end(120) == 0
    assert any(note.startswith("train.sh left ranks at work, which were ended: ") for note in job.verdict["notes"])
    assert not [*as_process.folder.glob("done_*")]


def test_ranks_that_are_left_and_do_nothing_are_not_waited_for(as_process: Starter) -> None:
    job = run(as_process, LEAVES[0][0], "--end-timeout-s", 1, program="import time\ntime.sleep(600)\n")
    assert job.end(120) == 75
    assert "gave no sign of life for 1 s (RANKLAUNCH_END_TIMEOUT_S)" in job.verdict["reason"]


HELPERS = [
    f"python train.py --helper > tb.log &\n{TORCHRUN.replace('train.py', 'quick.py')} | cat",  # tensorboard
    f"{TORCHRUN.replace('train.py', 'quick.py')} &\nT=$!\npython train.py --helper > tb.log &\nwait $T",
    f"python train.py --helper > tb.log &\nTB=$!\n{TORCHRUN.replace('train.py', 'quick.py')}\nkill $TB",
    "python train.py --helper &\nsleep 0.5; python quick.py",  # as tensorboard, started before the training
    "python starts.py",  # a daemon of a rank
    "python -c 'import multiprocessing as m; m.get_context(\"spawn\").Process(target=print).start()'",
]


@pytest.mark.parametrize("text", HELPERS)
def test_helpers_are_not_waited_for(as_process: Starter, text: str) -> None:
    (as_process.folder / "quick.py").write_text("")
    daemon = "import subprocess, sys\nsubprocess.Popen([sys.executable, 'train.py'], start_new_session=True)\n"
    (as_process.folder / "starts.py").write_text(daemon)
    job = run(as_process, text, "--method", "plain", program=WORKS)
    assert job.end(120) == 0, job.err.text
    assert "left ranks at work" not in job.err.text
