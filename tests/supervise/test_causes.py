"""Why a rank of a launcher ended may stand far above its last lines, and is found there too, whichever launcher has started it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import helpers
import pytest

from ranklaunch.system import tree
from testbench.jobs.job import Starter, attempts
from testbench.waiting import sleep_until

LONG_S = 240  # MindSpore and DeepSpeed take their time where there is much else to do
LINES = 20  # that a verdict has of a culprit

pytestmark = [pytest.mark.processes, pytest.mark.training]

# Rank 1 meets the cause, says much more, and leaves when it is told to; rank 0 has failed first, of rank 1's silence.
PROGRAM = """
import os, signal, sys, time
rank = next(os.environ[name] for name in ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "MS_ROLE") if name in os.environ)
if rank == "1":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
    print("\\n".join(f"memory of pool {number}: full" for number in range(40)), flush=True)
    open("said", "w").close()
elif rank == "0":
    while not os.path.exists("said"):
        time.sleep(0.02)
    time.sleep(1)
    sys.exit("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.11]:1234")
time.sleep(600)
"""


def needs(method: str, there: object, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(method, marks=[pytest.mark.launchers, pytest.mark.skipif(not there, reason=f"{method} is not installed"), *marks])


@pytest.mark.parametrize(
    "method",
    [
        "spawn", pytest.param("torchrun", marks=pytest.mark.table), needs("mpirun", shutil.which("mpirun")),
        needs("accelerate", importlib.util.find_spec("accelerate"), pytest.mark.table),
        needs("deepspeed", importlib.util.find_spec("deepspeed")), needs("msrun", importlib.util.find_spec("mindspore")),
    ],
)  # fmt: skip
def test_a_cause_above_the_last_lines(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(PROGRAM)
    env = {"RANKLAUNCH_ACCELERATOR": "cpu", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    job = as_process.run(program, options=("--method", method, "--slots", 2), env=env, grace_s=5)
    job.end(LONG_S)
    culprit = job.verdict["culprit"]
    assert (culprit["rank"], culprit["error"]["name"]) == (1, "cuda-out-of-memory"), job.err.text + job.out.text
    assert len(culprit["last_lines"]) == LINES
    assert "memory of pool 39: full" in culprit["last_lines"]


PEER = 'print("RuntimeError: Connection closed by peer [10.77.0.11]:1234", flush=True)'


@pytest.mark.parametrize("words", [pytest.param("", marks=pytest.mark.launchers, id="silent"), pytest.param(PEER, id="peer")])
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_a_torchrun_of_the_users_own_tells_which_rank_failed(as_process: Starter, words: str) -> None:
    """Rank 1 dies without a word, and its peer, where it says anything, of a connection that it has lost."""
    program = as_process.folder / "train.py"
    program.write_text(f"""import os, time
if os.environ["RANK"] == "1":
    os._exit(3)
{words}
time.sleep(600)
""")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, program)
    job = as_process.run(*torchrun, options=("--method", "plain"), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    reason = job.verdict["reason"]
    assert re.fullmatch(
        r"rank 0 on node 0 exited with code 1: its torchrun says that local rank 1 \(pid \d+\) exited with code 3", reason
    ), reason


LOGS_ITS_END = """import logging, os, sys, time
def train():
    if os.environ["RANK"] == "1":
        raise ValueError("tokenizer has no pad token")
    time.sleep(0.5)
    raise ConnectionResetError(104, "Connection reset by peer")
try:
    train()
except Exception:
    logging.exception("training failed")
    time.sleep(1)
    sys.exit(1)
"""


@pytest.mark.launchers
def test_of_a_torchrun_of_the_users_own_the_first_exception_counts(as_process: Starter) -> None:
    """All ranks log what has ended them, into one output."""
    program = as_process.folder / "train.py"
    program.write_text(LOGS_ITS_END)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, program)
    job = as_process.run(*torchrun, options=("--method", "plain"), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    assert job.verdict["reason"] == "rank 0 on node 0 exited with code 1: ValueError: tokenizer has no pad token"


# Rank 0 runs a torchrun of its own, as for an evaluation, which inherits where the ranks of the job's write; then rank 1 fails.
NESTED = """
import os, subprocess, sys, time
if "INNER" in os.environ:
    print("evaluating", os.environ["RANK"], flush=True)
    time.sleep(2)  # for it to be seen whose it is
    if os.environ["RANK"] == "1":
        raise KeyError("eval shard 12 is missing")
    sys.exit()
if os.environ["RANK"] == "0":
    own = ("TORCHELASTIC", "MASTER", "RANK", "LOCAL", "WORLD", "GROUP", "ROLE")
    kept = {name: value for name, value in os.environ.items() if name.startswith("RANKLAUNCH") or not name.startswith(own)}
    env = {**kept, "INNER": "yes"}
    inner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", __file__]
    subprocess.run(inner, env=env, check="needed" in sys.argv)
    open("evaluated", "w").close()
while not os.path.exists("evaluated"):
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    raise ValueError("no image 17")
time.sleep(600)
"""


@pytest.mark.launchers
@pytest.mark.parametrize("method", ["torchrun", "accelerate"])
def test_what_a_torchrun_that_a_rank_starts_writes_is_no_ranks(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(NESTED)
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: no image 17", job.err.text + job.out.text
    assert b"evaluating" not in job.log(0) + job.log(1)
    told = {line for line in job.out.text.splitlines() if "evaluating" in line}
    assert told == {f"[{method} of rank 0] evaluating {rank}" for rank in range(3)}
    assert b"eval shard 12 is missing" in (attempts(job.log_dir)[-1] / f"{method}_of_rank_0.log").read_bytes()


# Rank 0 gets over what its first torchrun fails of, and ends of its second one, whose rank says nothing.
TWICE = """
import os, subprocess, sys, time
if "INNER" in os.environ:
    if os.environ["INNER"] == "first":
        raise KeyError("shard 12")
    os._exit(7)
if os.environ["RANK"] == "0":
    own = ("TORCHELASTIC", "MASTER", "RANK", "LOCAL", "WORLD", "GROUP", "ROLE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    for inner in ("first", "second"):
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", __file__], env={**env, "INNER": inner})
    sys.exit(9)
time.sleep(600)
"""


@pytest.mark.launchers
def test_of_a_rank_that_ends_of_its_own_torchrun_what_that_has_told_last_is_the_reason(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(TWICE)
    job = as_process.run(program, options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    told = r"rank 0 on node 0 exited with code 9: its torchrun says that local rank 0 \(pid \d+\) exited with code 7"
    assert re.fullmatch(told, job.verdict["reason"]), job.verdict["reason"]


@pytest.mark.launchers
def test_what_a_torchrun_that_a_rank_needs_says_is_why_that_has_failed(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(NESTED)
    job = as_process.run(program, "needed", options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    assert job.verdict["reason"] == "rank 0 on node 0 exited with code 1: KeyError: 'eval shard 12 is missing'", job.err.text + job.out.text


# Rank 1 has one that fails, starts another, and ends as that does, with no word of why; what rank 0 has started has caught an exception.
SEVERAL = """
import os, subprocess, sys, time, traceback
what, rank = os.environ.get("INNER"), os.environ["RANK"]
if what:
    time.sleep(2)
    if what == "fails" and rank == "1":
        raise KeyError("eval shard 12 is missing")
    while what == "goes on":
        try:
            raise ValueError("sample skipped")
        except ValueError:
            traceback.print_exc()
        time.sleep(0.2)
    sys.exit(3 * int(what == "ends with 3"))
def run(what):
    own = ("TORCHELASTIC", "MASTER", "RANK", "LOCAL", "WORLD", "GROUP", "ROLE")
    env = {**{name: value for name, value in os.environ.items() if not name.startswith(own)}, "INNER": what}
    inner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    return subprocess.run(inner, env=env).returncode
if rank == "0":
    run("goes on")
run("fails")
print("again", flush=True)
sys.exit(run("ends with 3") + 4)
"""


@pytest.mark.launchers
def test_what_the_last_torchrun_of_the_rank_itself_has_written_counts(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(SEVERAL)
    job = as_process.run(program, options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(LONG_S) == 5
    culprit = job.verdict["culprit"]
    assert (culprit["rank"], culprit["error"]["name"]) == (1, "torchrun-child-failed"), job.err.text + job.out.text
    assert job.verdict["reason"].endswith(") exited with code 3")


# Rank 1 has caught an exception well before rank 0 fails, and ends as one does that was told to.
SAVES_WHAT_IT_HAS = """
import logging, os, signal, sys, time
def leave(number, frame):
    logging.error("got SIGTERM, saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
if os.environ["RANK"] == "1":
    try:
        raise ValueError("bad sample 11")
    except ValueError:
        logging.exception("sample skipped")
time.sleep(5)
if os.environ["RANK"] == "0":
    raise TimeoutError("read of s3://b/shard-7 timed out")
time.sleep(600)
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
def test_what_one_had_caught_that_was_told_to_end_is_no_cause(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(SAVES_WHAT_IT_HAS)
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=10)
    assert job.end(LONG_S) == 1
    assert job.verdict["culprit"]["rank"] == 0, job.err.text + job.out.text
    assert job.verdict["culprit"]["error"]["line"].startswith("TimeoutError: read of s3://b/shard-7")


# Rank 0 fails, and rank 1 ends as one does that is told to, each when a file says so.
ENDS_WHEN_IT_MAY = """
import logging, os, pathlib, signal, sys, time
def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.02)
def leave(number, frame):
    logging.error("got SIGTERM, saved")
    pathlib.Path("told").touch()
    wait_for("leave")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
wait_for("fail" if os.environ["RANK"] == "0" else "never")
raise TimeoutError("read of s3://b/shard-7 timed out")
"""


def _watched_by(pid: int) -> Iterator[int]:
    """Processes of which it has a pidfd."""
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        yield from map(int, re.findall(r"^Pid:\t([0-9]+)$", info.read_text(), re.MULTILINE))


@pytest.mark.launchers
def test_a_launcher_that_is_faster_than_we(as_process: Starter) -> None:
    """On a busy machine, torchrun has fetched the end of rank 0, and told rank 1, before we see either."""
    folder = as_process.folder
    program = folder / "train.py"
    program.write_text(ENDS_WHEN_IT_MAY)
    job = as_process.run(program, options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=30, cwd=folder)
    for rank in range(2):
        job.out.wait_for(f"[rank {rank}] ready", timeout=LONG_S)
    (launcher,) = tree.generation(job.supervisor, 1)
    ranks = tree.generation(launcher.pid, 1)
    sleep_until(lambda: {each.pid for each in ranks} <= set(_watched_by(job.supervisor)), "the ranks are watched")
    os.kill(job.supervisor, signal.SIGSTOP)
    (folder / "fail").touch()
    sleep_until((folder / "told").exists, "rank 1 is told to end")
    tree.send(launcher, signal.SIGSTOP)
    (folder / "leave").touch()
    sleep_until(lambda: {tree.state(each) for each in ranks} == {"X", "Z"}, "both have ended")
    os.kill(job.supervisor, signal.SIGCONT)
    job.wait_for_event("failing", timeout=LONG_S)
    tree.send(launcher, signal.SIGCONT)
    assert job.end(LONG_S) == 1
    assert job.verdict["culprit"]["rank"] == 0, job.err.text + job.out.text


# At a stop, rank 1 cannot save, and rank 0, which has saved, loses its peer.
LOSES_ITS_PEER = """
import os, signal, sys, time
def save(number, frame):
    if os.environ["RANK"] == "1":
        time.sleep(0.5)
        raise OSError(28, "No space left on device")
    time.sleep(1.5)
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
def test_who_has_lost_a_peer_while_it_was_being_stopped_has_not_failed(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(LOSES_ITS_PEER)
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=10)
    for rank in range(2):
        job.out.wait_for(f"[rank {rank}] ready", timeout=LONG_S)
    job.send(signal.SIGTERM)
    assert job.end(LONG_S) == 143
    assert job.verdict["notes"] == ["rank 1 failed with exit code 1 while it was being stopped: see rank_1.log"]


# Rank 1 is killed, and its worker finds that out; rank 0 fails once it is told to end.
ORPHANED = """
import os, signal, sys, time
rank, main = os.environ["RANK"], os.getpid()
def fail(*_):
    raise ValueError("cannot save: no checkpoint folder")
if rank == "0":
    signal.signal(signal.SIGTERM, fail)
elif os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.getppid() == main:
        time.sleep(0.02)
    time.sleep(0.1)
    raise ConnectionResetError(104, "Connection reset by peer")
print("step 1", flush=True)
open("up" + rank, "w").close()
while not (os.path.exists("up0") and os.path.exists("up1")):
    time.sleep(0.02)
time.sleep(2)  # within which a launcher's ranks are found
if rank == "1":
    os.kill(main, signal.SIGKILL)
time.sleep(600)
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
def test_what_a_rank_leaves_says_nothing_of_why_it_died(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(ORPHANED)
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(LONG_S) in (137, 1)
    verdict = job.verdict
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["exit_code"], culprit["signal"], culprit["error"]) == (1, 137, "SIGKILL", None), verdict
    assert culprit["last_lines"] == ["step 1"]
    assert b"Connection reset by peer" in job.log(1)


@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
def test_a_traceback_comes_behind_the_steps(as_process: Starter, method: str) -> None:
    """A launcher lets its ranks write to two files."""
    program = as_process.folder / "train.py"
    program.write_text(
        "import os, time\n"
        "for step in range(5):\n"
        "    print(f'step {step} loss 0.5', flush=True)\n"
        "    time.sleep(0.2)\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise ValueError('loss is nan')\n"
        "time.sleep(600)\n"
    )
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    job.end(LONG_S)
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: loss is nan"


# What rank 1 takes down when an exception has ended it is what rank 0 notices, which is gone first.
TAKEN_DOWN = """
import atexit, os, sys, time
def take_down():
    open("down", "w").close()
    time.sleep(1 if sys.argv[1] != "peer" else 600)
if os.environ["RANK"] == "1":
    atexit.register(take_down)
    time.sleep(2)  # within which a launcher's ranks are found
    raise ValueError("no image 17")
while not os.path.exists("down"):
    time.sleep(0.02)
if sys.argv[1] == "peer":
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
print("peer lost, saving", flush=True)
if sys.argv[1] == "abort":
    print("terminate called without an active exception", file=sys.stderr, flush=True)
    os.abort()
raise SystemExit("training failed at step 5")
"""


@pytest.mark.parametrize("how", ["exit", "abort", "peer"])
@pytest.mark.parametrize("method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers)])
def test_a_rank_that_an_exception_was_ending_failed_first(as_process: Starter, method: str, how: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(TAKEN_DOWN)
    job = as_process.run(program, how, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(LONG_S) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: no image 17", job.err.text + job.out.text
    assert [failure["rank"] for failure in job.verdict["failures"]] == [0]


# Each of two ranks fails by itself, and takes longer to leave than peers need to notice; the one that failed first takes longer.
LEAVES_LATE = f"""
import atexit, os, sys, time, traceback
rank = int(os.environ["RANK"])
{helpers.AS_PYTORCHS_HOOK}atexit.register(time.sleep, (0, 7, 6)[rank])
time.sleep((600, 1, 1.4)[rank])
raise ValueError(f"no image {{rank}}")
"""


def test_of_two_that_fail_by_themselves_the_first_to_say_so_failed_first(as_process: Starter) -> None:
    """The hook is as PyTorch's. They leave late as where CUDA is taken down, or a tracker uploads."""
    program = as_process.folder / "train.py"
    program.write_text(LEAVES_LATE)
    job = as_process.run(program, options=("--method", "spawn", "--slots", 3), grace_s=10)
    assert job.end(LONG_S) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: no image 1", job.err.text + job.out.text
    assert [failure["rank"] for failure in job.verdict["failures"]] == [2]


# Rank 1 has caught what it tells of, as far as can be seen, and rank 0 has a cause of its own, at whose end rank 1 aborts or waits.
CAUGHT = """
import os, signal, sys, time, traceback
def is_over(pid):
    try:
        return ") Z " in open(f"/proc/{pid}/stat").read()
    except OSError:
        return True
if os.environ["RANK"] == "1":
    while not os.path.exists("peer"):
        time.sleep(0.02)
    time.sleep(1)
    try:
        raise ValueError("no image 17")
    except ValueError:
        traceback.print_exc()
    os.rename("peer", "caught")
    peer = open("caught").read()
    while sys.argv[2] == "abort":
        if is_over(peer):
            print("terminate called without an active exception", file=sys.stderr, flush=True)
            os.abort()
        time.sleep(0.005)
    time.sleep(600)
with open("pid", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid", "peer")
while not os.path.exists("caught"):
    time.sleep(0.02)
time.sleep(0.2)
if sys.argv[1] == "3":
    sys.exit(3)
if sys.argv[1] == "130":
    signal.raise_signal(signal.SIGINT)
if sys.argv[1] == "peer":
    raise RuntimeError("worker 3 died unexpectedly")
raise KeyError("labels")
"""

# Rank 1 has caught one, and is told to end by another that it raises when rank 0 has gone.
CAUGHT_BEFORE = """
import os, signal, sys, time, traceback
def on_term(*_):
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
if os.environ["RANK"] == "1":
    signal.signal(signal.SIGTERM, on_term)
    try:
        raise ValueError("no image 17")
    except ValueError:
        traceback.print_exc()
    open("caught", "w").close()
    time.sleep(600)
while not os.path.exists("caught"):
    time.sleep(0.02)
time.sleep(0.2)
sys.exit("no more data")
"""


def test_an_exception_that_another_one_has_followed_did_not_end_its_rank(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(CAUGHT_BEFORE)
    job = as_process.run(program, options=("--method", "spawn", "--slots", 2), grace_s=5)
    assert job.end(LONG_S) == 1
    assert job.verdict["culprit"]["rank"] == 0, job.err.text + job.out.text


@pytest.mark.parametrize("how", ["wait", "abort"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1, "rank 0 on node 0 exited with code 1: KeyError: 'labels'"),
        (3, "rank 0 on node 0 exited with code 3"),
        (130, "rank 0 on node 0 was killed by SIGINT: it was told to end: KeyboardInterrupt"),
    ],
)
def test_what_a_rank_may_have_caught_is_not_why_another_one_failed(as_process: Starter, code: int, said: str, how: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(CAUGHT)
    job = as_process.run(program, code, how, options=("--method", "spawn", "--slots", 2), grace_s=5)
    assert job.end(LONG_S) == code
    assert job.verdict["reason"] == said, job.err.text + job.out.text


def test_where_a_rank_was_when_it_was_ended_shows_that_no_exception_was_ending_it(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(CAUGHT)
    job = as_process.run(program, "peer", "wait", options=("--method", "spawn", "--slots", 2), grace_s=5)
    assert job.end(LONG_S) == 1
    assert (job.verdict["culprit"]["rank"], job.verdict["failures"]) == (0, []), job.err.text + job.out.text


# Rank 0 has caught one, and trains on; rank 1 fails.
CAUGHT_EARLY = """
import os, sys, time, traceback
rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
for step in range(20):
    if rank == "0" and step == 2:
        try:
            raise FileNotFoundError("shard 17")
        except FileNotFoundError:
            traceback.print_exc()
    if rank == "1" and step == 10:
        raise ValueError("loss is nan")
    print(f"step {step}", flush=True)
    time.sleep(0.1)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "method", ["spawn", pytest.param("torchrun", marks=pytest.mark.launchers), needs("mpirun", shutil.which("mpirun"))]
)
def test_one_that_a_rank_has_caught_before_is_no_cause(as_process: Starter, method: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(CAUGHT_EARLY)
    job = as_process.run(program, options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5)
    assert job.end(LONG_S) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: loss is nan", job.err.text + job.out.text
    if method != "mpirun":  # which does not tell whom it has ended
        assert job.verdict["failures"] == []
        assert 0 in [victim["rank"] for victim in job.verdict["victims"]]


# What its exit hook tells looks as if the program had gone on after the exception that ended it.
COUNTING_HOOK = """
import atexit, os, time
def uploads(of):
    for number in range(5):
        print(f"{of} step {number} of 5", flush=True)
uploads("uploaded")
if os.environ["RANK"] == "1":
    atexit.register(uploads, "uploaded")
    raise RuntimeError("boom --token=aVerySecretWord123")
time.sleep(600)
"""


def test_an_exception_is_the_reason_whatever_a_hook_writes_behind_it(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(COUNTING_HOOK)
    job = as_process.run(program, options=("--method", "spawn", "--slots", 2), grace_s=5)
    assert job.end(LONG_S) == 1
    assert job.verdict["reason"] == "rank 1 on node 0 exited with code 1: RuntimeError: boom --token=***"


# What is to come to another process cannot be read there: Python writes that exception with no name of the process above it.
UNREADABLE = """
import multiprocessing, sys
class Images:
    def __init__(self): self.index = "/data/index.bin"
    def __setstate__(self, state): open(state["index"])
    def __len__(self): return 8
    def __getitem__(self, number): return number
def look(images): pass
if __name__ == "__main__":
"""
OF_SPAWNED = {
    "a process pool": """
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), look, (Images(),)) as pool:
        pool.submit(look, 1).result()
""",
    "data loading": """
    from torch.utils.data import DataLoader
    for sample in DataLoader(Images(), num_workers=1, multiprocessing_context="spawn"): pass
""",
}


@pytest.mark.parametrize("what", OF_SPAWNED)
def test_what_a_process_of_its_own_failed_of_as_it_was_spawned(as_process: Starter, what: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(UNREADABLE + OF_SPAWNED[what])
    job = as_process.run(program, options=("--method", "spawn", "--slots", 1), grace_s=5)
    assert job.end(LONG_S) == 1
    assert job.verdict["reason"].endswith("exited with code 1: FileNotFoundError: [Errno 2] No such file or directory: '/data/index.bin'")


# Rank 1 leaves with 0 while rank 0 needs it yet.
LEAVES = """
import os, sys, time
print("step 1", flush=True)
time.sleep(2)  # within which a launcher's ranks are found
if os.environ["RANK"] == "1":
    open("left", "w").close()
    sys.exit(0)
while not os.path.exists("left"):
    time.sleep(0.02)
time.sleep(1)
raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
"""


@pytest.mark.parametrize("method", ["torchrun", needs("accelerate", importlib.util.find_spec("accelerate"))])
def test_a_rank_that_has_left_with_0_is_named(as_process: Starter, method: str) -> None:
    """Where its launcher was sooner to ask how it ended, nobody else knows: on a busy machine that is so now and then."""
    program = as_process.folder / "train.py"
    program.write_text(LEAVES)
    found: list[str] = []
    for number in range(4):
        (as_process.folder / "left").unlink(missing_ok=True)
        options = ("--method", method, "--slots", 2, "--log-dir", as_process.folder / f"logs_{number}")
        job = as_process.run(program, options=options, env={"OMP_NUM_THREADS": "1", "RANKLAUNCH_ACCELERATOR": "cpu"}, grace_s=5)
        assert job.end(LONG_S) == 1
        verdict = json.loads((as_process.folder / f"logs_{number}" / "attempt_1" / "verdict.json").read_text(encoding="utf-8"))
        found += [note for note in verdict["notes"] if note.startswith("rank 1 on node 0 had ended with 0, ")]
        if found:
            break
    (note,) = found
    assert note.endswith("which looks like a consequence of that")


# Rank 0 ends of what a peer's end looks like; rank 1 a moment later, by a code of its own, before its launcher has looked.
OWN_CODE = """
import os, sys, time
def is_over(pid):
    try:
        return ") Z " in open(f"/proc/{pid}/stat").read()
    except OSError:
        return True
print("step 1", flush=True)
time.sleep(2)  # within which a launcher's ranks are found
if os.environ["RANK"] == "0":
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid", "peer")
    time.sleep(1.4)  # both ranks end between two looks of torchrun, which come each second
    if sys.argv[1] == "cause":
        raise ValueError("loss is nan")
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")
while not os.path.exists("peer"):
    time.sleep(0.02)
peer = open("peer").read()
while not is_over(peer):
    time.sleep(0.005)
time.sleep(0.1)
print("no image 17", flush=True)
os._exit(21)
"""


NAN = "rank 0 on node 0 exited with code 1: ValueError: loss is nan"
NO_IMAGE = "rank 1 on node 0 exited with code 21; its last line: no image 17"


@pytest.mark.parametrize(
    ("method", "first", "code", "reason", "others"),
    [
        ("spawn", "consequence", 21, NO_IMAGE, [0]),
        pytest.param("torchrun", "consequence", 21, NO_IMAGE, [0], marks=pytest.mark.launchers),
        pytest.param(
            "torchrun", "cause", 1, "rank 0 on node 0 exited with code 1: ValueError: loss is nan", [1], marks=pytest.mark.launchers
        ),
    ],
)
def test_a_rank_with_a_code_of_its_own_is_no_consequence(
    as_process: Starter, method: str, first: str, code: int, reason: str, others: list[int]
) -> None:
    program = as_process.folder / "train.py"
    program.write_text(OWN_CODE)
    looks_s = 15 if first == "cause" else 1  # longer than ranklaunch waits for its word; or shorter, with nobody left to be ended
    env = {"OMP_NUM_THREADS": "1", "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": f"--monitor_interval={looks_s}"}
    job = as_process.run(program, first, options=("--method", method, "--slots", 2), env=env, grace_s=5)
    assert job.end(LONG_S) == code, job.err.text + job.out.text
    assert job.verdict["reason"] == reason, job.err.text + job.out.text
    assert [failure["rank"] for failure in job.verdict["failures"]] == others
