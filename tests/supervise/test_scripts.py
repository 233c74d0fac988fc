"""What is told of a script that starts one thing after the other, of which more than one fails."""

from __future__ import annotations

import helpers
import pytest
from left_behind import told

from ranklaunch.supervise import judge

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n    main()\n'
LOSS = f"{FRAMES}ValueError: loss is nan\n"
CP = "cp: cannot stat '/data/x.bin': No such file or directory\n"
LINE = "-" * 74 + "\n"


def mpirun(code: int, rank: int = 0) -> str:
    aborted = "Primary job  terminated normally, but 1 process returned\na non-zero exit code. The job has been aborted.\n"
    told = "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. "
    first = f"The first process to do so was:\n\n  Process name: [[9830,1],{rank}]\n  Exit code:    {code}\n"
    return f"{LINE}{aborted}{LINE}{LINE}{told}{first}{LINE}"


def torchrun(code: int) -> str:
    failed = f"E1126 12:00:00.0 7 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: 0 (pid: 9)"
    error = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
    box = f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'=' * 60}\n"
    return f"{failed} of binary: python\n{FRAMES}{error}: \n{box}"


def deepspeed(code: int) -> str:
    at = "[2026-11-26 12:56:13,946]"
    ends = f"{at} [INFO] [launch.py:253:sigkill_handler] Killing subprocess 5864\n"
    return f"{ends}{at} [ERROR] [launch.py:259:sigkill_handler] ['python', 'p2.py', '--local_rank=1'] exits with return code = {code}\n"


@pytest.mark.parametrize("first", ["x.sh: line 1: nvidia-smi: command not found\n", "cat: /data/cfg: No such file or directory\n"])
@pytest.mark.parametrize("work", ["", "epoch 1 step 10 loss 0.5\n"])
def test_a_command_that_failed_before_a_traceback(first: str, work: str) -> None:
    assert told(f"{first}start training\n{work}{LOSS}", 1)[0] == "ValueError: loss is nan"


def test_where_mindspore_raised_an_error_is_not_its_last_line() -> None:
    line = "-" * 52
    stack = f"\n{line}\n- C++ Call Stack: (For framework developers)\n{line}\nmindspore/ccsrc/utils/op_runner.cc:671 LaunchKernels\n\n"
    ends = "[INFO] DISTRIBUTED(11,7fabccd9a6c0,python):2026-11-27-17:52:16.677.750 [mindspore/x.cc:367] Start] Event base dispatch success!"
    why = "RuntimeError: Launch kernel failed, name:Default/MatMul-op0"
    log = "[ERROR] KERNEL(11,7fabb67fc6c0,python):2026-11-27-17:52:16.629.821 [mindspore/ops/kernel/cpu/x.cc:89] Launch] launch failed.\n"
    assert told(f"step 3 loss 4.0\n{log}{FRAMES}{why}\n{stack}{ends}\n", 1, "ms.py")[0] == why


def test_a_command_that_python_had_looked_for_is_what_it_failed_of() -> None:
    assert told(f"sh: 1: nvcc: not found\n{FRAMES}RuntimeError: Error compiling objects for extension\n", 1)[0] == "sh: 1: nvcc: not found"


@pytest.mark.parametrize("before", [LOSS, "x.sh: line 1: nvidia-smi: command not found\n", mpirun(3), f"{torchrun(3)}going on\n"])
@pytest.mark.parametrize(("last", "code"), [("x.sh: line 9: omega: command not found\n", 127), ("sh: 1: omega: not found\n", 127)])
def test_a_last_command_that_is_not_there(before: str, last: str, code: int) -> None:
    assert told(before + last, code)[0] == last.strip()


FULL = f"{FRAMES}OSError: [Errno 28] No space left on device\n"


OPTIONAL = f"{FRAMES}ModuleNotFoundError: No module named 'apex'\n"


LOGGED = "ERROR:root:apex could not be loaded\n" + OPTIONAL.replace("<module>", "load")


RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


@pytest.mark.parametrize("by_itself", [True, False])
def test_an_exception_that_was_caught_does_not_hide_that_which_ends_a_rank(by_itself: bool) -> None:
    """PyTorch's hook marks each line. What came of another rank's end stays a consequence."""
    plan = helpers.plan(helpers.local(2), method="spawn", program="run.py")
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/part-3.idx'"
    logged = LOGGED.replace(OPTIONAL.splitlines()[-1], missing)
    for line, kind in (("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "unknown"), (RESET, "consequence")):
        for mark in ("", "[rank1]: "):
            raised = "".join(f"{mark}{each}\n" for each in f"{FRAMES}{line}".splitlines())
            error = judge.known_error(f"{logged}closing\n{raised}".encode(), plan, by_itself, code=1 if by_itself else None)
            assert error
            assert error.kind == kind
            assert error.line == line


CURL = "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Could not connect to server\n"
WORDS = ("training failed, notifying slack", "ERROR: training failed, see the log above", "Job failed at Fri Nov 27 02:50:00 UTC 2026")


@pytest.mark.parametrize("report", [torchrun(1), mpirun(1)])
@pytest.mark.parametrize("last", [*WORDS, CURL.strip(), CP.strip(), "Error: training did not finish"])
def test_what_a_script_says_of_its_launchers_failure_does_not_hide_why(report: str, last: str) -> None:
    why = "OSError: [Errno 28] No space left on device"
    assert told(f"{FULL}{report}{last}\n", 1)[0] in (why, f"{why}; after that: {last}")
    assert told(f"{FULL}{report}{last}\n", 7)[0] in (why, f"{last}; before that, its launcher had failed: {why}")
    assert why in told(f"{FULL}{report}{last}\n", 7)[0]


@pytest.mark.parametrize("after", ["RuntimeError: training failed", "RuntimeError: torchrun exited with code 1", "AssertionError"])
def test_a_program_that_tells_how_its_launcher_ended(after: str) -> None:
    assert told(f"{FULL}{torchrun(1)}{FRAMES}{after}\n", 1, "run.py")[0] == "OSError: [Errno 28] No space left on device"


def test_a_launcher_that_reports_twice_of_one_failure() -> None:
    line = torchrun(1).partition("\n")[0] + "\n"
    assert told(f"{FULL}{line}{torchrun(1)}", 1)[0] == "OSError: [Errno 28] No space left on device"


def test_the_last_of_several_reports_counts() -> None:
    assert told(f"{mpirun(3)}going on\n{mpirun(5, 1)}", 5)[1] == "its mpirun says that rank 1 exited with code 5"
    assert told(f"{torchrun(3)}going on\n{mpirun(5, 1)}", 5)[1] == "its mpirun says that rank 1 exited with code 5"
    assert told(f"{mpirun(5, 1)}going on\n{deepspeed(-9)}", 247)[1] == "its deepspeed says that a rank was killed by signal 9"
    assert told(f"{mpirun(5, 1)}going on\n{torchrun(3)}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"


@pytest.mark.parametrize(
    "end", ["", "done\n", "Job finished at 12:00\n", "finished with rc 3\n", "training failed\n", "Error: run failed with exit code 3!\n"]
)
def test_what_a_script_says_at_its_end_does_not_hide_a_report(end: str) -> None:
    assert told(f"{mpirun(3)}{end}", 3)[1] == "its mpirun says that rank 0 exited with code 3"
    assert told(f"{torchrun(3)}{end}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"
    assert told(f"{deepspeed(3)}{end}", 3)[1] == "its deepspeed says that a rank exited with code 3"
    assert told(f"{LOSS}{torchrun(1)}{end}", 1)[0] == told(f"{LOSS}{deepspeed(1)}{end}", 1)[0] == "ValueError: loss is nan"


def test_an_error_that_names_its_step_is_no_step() -> None:
    diverged = "ERROR:train:loss diverged (nan) at step 5, aborting"
    assert told(f"step 4 loss 0.5\n{diverged}\n", 1, "run.py")[0] == diverged
