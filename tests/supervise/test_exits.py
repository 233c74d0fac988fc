"""Which exit code and which verdict a job ends with, by what its ranks do."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ranklaunch.errors import MissingProgramError
from ranklaunch.plan.model import Process
from ranklaunch.processes import children
from ranklaunch.system import memory, signals
from testbench.jobs.ends import check_end
from testbench.jobs.job import Starter
from testbench.jobs.streams import tagged
from testbench.places import child


def test_all_succeed(ranklaunch: Starter) -> None:
    """0 when every rank has ended with 0; every log is whole, and every line on the console has its rank's tag."""
    job = ranklaunch.spawn(3, child("exits.py"), 0)
    verdict = check_end(job, "succeeded", 0, victims={})
    assert verdict["victims"] == []
    for rank in range(3):
        text = b"ready\nrank %d exits with 0\n" % rank
        assert job.log(rank) == text
        assert tagged(job.out, f"[rank {rank}] ") == text
    assert len(job.out.lines) == 6
    assert [event["event"] for event in job.events].count("first output") == 3


def test_success_waits_for_the_last_rank(as_process: Starter) -> None:
    job = as_process.spawn(3, child("told.py"), "--code", 0, "--rank", 1, "--others", "--after", 0.3)
    job.out.wait_for("ready", 3)
    job.send(signal.SIGUSR1)  # rank 1 exits with 0 at once, the others a while later
    check_end(job, "succeeded", 0)
    assert next(event["rank"] for event in job.events if event["event"] == "exit") == 1


@pytest.mark.parametrize("code", [1, 255])
def test_a_rank_exits_with_a_code(as_process: Starter, code: int) -> None:
    """Its code is the job's; the others are told by SIGTERM and are its victims."""
    job = as_process.spawn(3, child("told.py"), "--code", code, "--rank", 1)
    job.out.wait_for("ready", 3)
    job.send(signal.SIGUSR1)
    culprit = {
        "node": 0, "rank": 1, "exit_code": code, "signal": None, "out_of_memory": False,
        "last_lines": ["ready", f"rank 1 exits with {code}"],
    }  # fmt: skip
    verdict = check_end(job, "failed", code, culprit=culprit, victims={0: "SIGTERM", 2: "SIGTERM"})
    assert verdict["reason"] == f"rank 1 on node 0 exited with code {code}; its last line: rank 1 exits with {code}"
    assert verdict["culprit"]["pid"] in [event["pid"] for event in job.events if event["event"] == "spawn" and event["rank"] == 1]
    assert f"last lines of rank 1:\n  ready\n  rank 1 exits with {code}\n" in job.err.text


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), ("SIGSEGV", 139), ("SIGABRT", 134)])
def test_a_rank_is_killed(as_process: Starter, name: str, code: int) -> None:
    """128+N after signal N, and the verdict names the signal."""
    job = as_process.spawn(2, child("killed.py"), "--signal", name, "--rank", 0)
    culprit = {"rank": 0, "exit_code": code, "signal": name, "out_of_memory": False}
    verdict = check_end(job, "failed", code, culprit=culprit, victims={1: "SIGTERM"})
    of_memory = "; the kernel killed nothing here for memory" if name == "SIGKILL" and memory.look().counted else ""
    assert verdict["reason"] == f"rank 0 on node 0 was killed by {name}; its last line: ready{of_memory}"


CAUGHT = """\
import os, sys, time, traceback
try:
    raise ValueError("no header")
except ValueError:
    traceback.print_exc()
time.sleep(0.7)  # within the time that an exception may take to end a rank
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_is_killed_soon_after_an_exception_was_killed(as_process: Starter, ranks: int) -> None:
    """Whether it had caught that or not: nobody has told it to end."""
    program = as_process.folder / "train.py"
    program.write_text(CAUGHT)
    job = as_process.spawn(ranks, program, int(signal.SIGKILL))
    assert job.end(120) == 137
    assert job.verdict["culprit"]["signal"] == "SIGKILL"


SLOW = """\
import atexit, os, sys, time
said = __file__ + ".said"
def hook():
    open(said, "w").close()
    time.sleep(60)
if os.environ["RANK"] == "0":
    while not os.path.exists(said):
        time.sleep(0.02)
    raise RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:31441")
print("step 3 loss 1", flush=True)
if os.environ["RANK"] == "1":
    atexit.register(hook)  # Python has written the message by then
    sys.exit("vocab mismatch")
time.sleep(60)
"""


def noted_beside(as_process: Starter, text: str, ranks: int, culprit: int) -> list[str]:
    """The notes of a job whose culprit has lost another rank."""
    program = as_process.folder / "train.py"
    program.write_text(text)
    job = as_process.spawn(ranks, program)
    assert job.end(120) == 1
    assert job.verdict["culprit"]["rank"] == culprit
    notes: list[str] = job.verdict["notes"]
    return notes


def test_what_a_rank_has_said_that_is_slow_to_end_is_told_where_others_lost_it(as_process: Starter) -> None:
    (note,) = [note for note in noted_beside(as_process, SLOW, 3, culprit=0) if "had an error" in note]
    assert note == "rank 1 was still running when it was stopped, but its output had an error: vocab mismatch"


WRITES = """\
import os, queue, threading, time
def write():
    while True:
        step = saves.get()
        open(f"/nowhere/step_{step}.pt", "wb").close()
        saves.task_done()
saves, rank = queue.Queue(), int(os.environ["RANK"])
threading.Thread(target=write, name="writer", daemon=True).start()
for step in range(9):
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.1)
    if rank == 0 and step == 2:
        saves.put(step)
saves.join()
time.sleep(2)
raise RuntimeError("[../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 40000ms for recv operation to complete")
"""


# Rank 0 fails first, as PyTorch's hook writes it, and takes its time to end; rank 1 leaves for that, and has ended before.
ON_ITS_WAY_OUT = """\
import atexit, os, subprocess, sys, time, traceback
def hook(*error):
    print("".join(f"[rank0]: {line}\\n" for line in "".join(traceback.format_exception(*error)).splitlines()), end="", file=sys.stderr)
    open("raised", "w").close()
if os.environ["RANK"] == "0":
    sys.excepthook = hook
    atexit.register(time.sleep, 600)
    FIRST
while not os.path.exists("raised"):
    time.sleep(0.02)
SECOND
"""
TOO_LATE = "Rank 2 failed to pass monitoredBarrier in 10000 ms"
PASSED = "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (f"raise RuntimeError('[Rank 0]: {TOO_LATE}')", f"raise RuntimeError('{PASSED}')", TOO_LATE),
        ("subprocess.run(['false'], check=True)", "os._exit(5)", "returned non-zero exit status 1."),
    ],
    ids=["monitored barrier", "subprocess"],
)
def test_who_was_on_its_way_out_is_named_and_not_who_left_for_that(as_process: Starter, first: str, second: str, said: str) -> None:
    program = as_process.folder / "train.py"
    program.write_text(ON_ITS_WAY_OUT.replace("FIRST", first).replace("SECOND", second))
    job = as_process.spawn(2, program, options=("--grace-s", 5))
    assert job.end() == 1, job.err.text
    assert job.verdict["culprit"]["rank"] == 0
    assert said in job.verdict["reason"]


def test_a_thread_that_has_failed_is_told_where_others_waited_for_its_rank(as_process: Starter) -> None:
    notes = noted_beside(as_process, WRITES, 2, culprit=1)
    why = "its thread writer had failed: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/step_2.pt'"
    assert f"rank 0 was still running when it was stopped, but {why}" in notes


WAITS = """\
import os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("ready", flush=True)
if os.environ["RANK"] == "1":
    raise RuntimeError("shard 7 is damaged")
"""


def test_an_exception_behind_which_a_rank_waits_is_told_where_the_job_is_stopped(as_process: Starter) -> None:
    program = as_process.folder / "train.py"
    program.write_text(WAITS)
    job = as_process.spawn(2, program)
    job.out.wait_for("ready", 2)
    job.out.wait_for("shard 7 is damaged", 2)  # also in the line that raises it
    job.send(signal.SIGTERM)
    assert job.end(120) == 143
    assert "rank 1 was still running when it was stopped, but it had raised: RuntimeError: shard 7 is damaged" in job.verdict["notes"]


@pytest.mark.parametrize(("first", "gap"), [*(pytest.param(first, 0.02, marks=pytest.mark.table) for first in (0, 1)), (0, 0), (1, 0)])
def test_the_first_to_fail_is_the_culprit(as_process: Starter, tmp_path: Path, first: int, gap: float) -> None:
    """Of two ranks that die shortly after each other, the second by its own fault too, it is always the first."""
    for number in range(2):
        meeting = tmp_path / f"meeting_{number}"
        meeting.mkdir()
        words = (child("dies_in_order.py"), meeting, "--first", first, "--gap", gap)
        job = as_process.spawn(2, *words, log_dir=tmp_path / f"logs_{number}")
        verdict = check_end(job, "failed", 41, culprit={"rank": first, "exit_code": 41})
        assert [each["rank"] for each in (*verdict["victims"], *verdict["failures"])] == [1 - first]


def test_plain_has_no_tag(as_process: Starter) -> None:
    job = as_process.run(child("exits.py"), 7, options=("--method", "plain"))
    check_end(job, "failed", 7, culprit={"rank": 0, "exit_code": 7})
    assert job.out.text == "ready\nrank None exits with 7\n"


# What cannot be executed


def check_not_started(as_process: Starter, words: tuple[object, ...], options: tuple[object, ...], *named: str) -> None:
    job = as_process.spawn(2, *words, options=options)
    check_end(job, "failed", 69)
    for text in named:
        assert text in job.verdict["reason"]
    assert not [event for event in job.events if event["event"] == "spawn"]


def test_no_interpreter(as_process: Starter) -> None:
    check_not_started(as_process, (child("exits.py"), 0), ("--python", "/no/such/python3"), "/no/such/python3", "not found")


def test_no_program_file(as_process: Starter) -> None:
    check_not_started(as_process, ("no_such_file.py",), (), "no_such_file.py", "no such file")


def test_no_such_command(as_process: Starter) -> None:
    check_not_started(as_process, ("no-such-command",), (), "no-such-command", "PATH=")


def test_not_executable(as_process: Starter, tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text("#!/bin/sh\n")
    check_not_started(as_process, (program,), (), str(program), "not executable", "chmod +x")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_in_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    folder = tmp_path / "root's"
    folder.mkdir(mode=0o700)
    shutil.copy("/bin/true", folder / "train")
    process = Process("rank 0", (str(folder / "train"),), "rank_0.log")
    os.seteuid(65534)
    try:
        with pytest.raises(MissingProgramError, match="train cannot be accessed by user id 65534"):
            children.executable(process, {})
    finally:
        os.seteuid(0)


def test_too_much_for_the_kernel(as_process: Starter, tmp_path: Path) -> None:
    """One text of an environment may have 128 kB: execve fails, which is known in the started process only."""
    env_file = tmp_path / "env"
    env = {**as_process.environment, "LARGE": "x" * 200_000}
    env_file.write_text("".join(f"{name}={value}\n" for name, value in env.items()))
    job = as_process.spawn(2, child("exits.py"), 0, options=("--env-file", env_file))
    assert job.end() == 126
    assert f"cannot execute {sys.executable}" in job.out.text
    assert "Argument list too long" in job.out.text
    assert any("Argument list too long" in line for line in job.verdict["culprit"]["last_lines"])
    assert "Argument list too long" in job.verdict["reason"]


class NoHandlers(signals.Signals):
    """Signals of a process that handles none."""

    def __init__(self) -> None:
        self.handled = ()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.EMFILE, 75, "the system refuses to start /bin/true, trying again may help: [Errno 24] Too many open files: '/dev/null'"),
        (errno.ENOENT, 78, "cannot start /bin/true: [Errno 2] No such file or directory: '/dev/null'"),
    ],
)
def test_what_fails_before_the_program_is_executed(monkeypatch: pytest.MonkeyPatch, number: int, code: int, said: str) -> None:
    """126 says that it is the program which cannot be executed."""

    def refuse(path: str, *_: object) -> int:
        raise OSError(number, os.strerror(number), path)

    output, write = os.pipe()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        pid = children.start(Process("rank 0", ("/bin/true",), "rank_0.log"), "/bin/true", {}, write, NoHandlers()).pid
    os.close(write)
    with open(output, encoding="utf-8") as log:
        assert log.read() == f"ranklaunch: {said}\n"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code


def test_not_a_program_of_this_machine(as_process: Starter, tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_bytes(b"\x7fELF for another machine")
    program.chmod(0o755)
    job = as_process.spawn(2, program)
    assert job.end() == 126
    assert "Exec format error" in job.err.text
    assert job.verdict["culprit"]["error"]["name"] == "exec-format-error"


@pytest.mark.parametrize(("text", "name", "says"), [
    ("echo hello\n", "script-without-interpreter", "#!/bin/sh"), ("#!/no/such/shell\n", "program-not-executed", "'/no/such/shell'"),
    ("#!/bin/sh\r\n", "program-not-executed", "'/bin/sh\\r'"),
])  # fmt: skip
def test_a_script_that_the_kernel_refuses(as_process: Starter, tmp_path: Path, text: str, name: str, says: str) -> None:
    program = tmp_path / "train"
    program.write_text(text)
    program.chmod(0o755)
    job = as_process.spawn(1, program)
    assert job.end() == 126
    assert job.verdict["culprit"]["error"]["name"] == name
    assert says in job.verdict["reason"]


def test_a_script_whose_interpreter_is_not_for_this_user(as_process: Starter, tmp_path: Path) -> None:
    program, interpreter = tmp_path / "train", tmp_path / "python"
    interpreter.write_text("")
    program.write_text(f"#!{interpreter}\n")
    program.chmod(0o755)
    job = as_process.spawn(1, program)
    assert job.end() == 126
    assert f"names an interpreter that user id {os.geteuid()} may not execute: '{interpreter}'" in job.err.text


@pytest.mark.parametrize("off", [False, True])
def test_without_records_the_output_says_why(as_process: Starter, off: bool) -> None:
    """An isolated Python sees no PYTHONPATH, and so records nothing."""
    (as_process.folder / "train.py").write_text(
        "import os\nif os.environ['RANK'] == '1': raise ValueError('loss is nan')\nimport time; time.sleep(60)\n"
    )
    script = as_process.folder / "train.sh"
    script.write_text(f"exec python {'' if off else '-I'} train.py\n")
    env = {"RANKLAUNCH_RANKSIDE": "off"} if off else {}
    job = as_process.run(script, options=("--method", "spawn", "--slots", 2), env=env, grace_s=5)
    assert job.end() == 1
    verdict = job.verdict
    assert verdict["reason"] == "rank 1 on node 0 exited with code 1: ValueError: loss is nan"
    assert verdict["because"][0]["rule"] == "known-error"


def test_a_doubt_about_other_nodes_stands_in_the_verdict_of_a_success(as_process: Starter) -> None:
    job = as_process.spawn(1, child("exits.py"), 0, env={"NUM_NODES": "2"})
    assert job.end(60) == 0
    (note,) = job.verdict["notes"]
    assert note.startswith("NUM_NODES=2: this container may be one of several nodes")
