"""What is told of a script that starts one thing after the other, of which more than one fails."""

from __future__ import annotations

import helpers
import left_behind
import pytest
from left_behind import told

from ranklaunch.supervise import words
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Failure

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


@pytest.mark.parametrize("report", [mpirun(3), torchrun(3)])
@pytest.mark.parametrize("last", [CP, "ERROR: cannot open omega\n", LOSS])
def test_what_failed_after_a_launcher(report: str, last: str) -> None:
    assert told(f"{report}going on without it\n{last}", 1)[0] == last.splitlines()[-1]


FULL = f"{FRAMES}OSError: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("first", [f"{FULL}{mpirun(1)}", f"{FULL}{torchrun(1)}", f"{FULL}{deepspeed(1)}"])
@pytest.mark.parametrize("last", [LOSS, f"{LOSS}{torchrun(1)}", f"{LOSS}{mpirun(1)}done\n"])
def test_what_a_later_launcher_or_program_failed_of(first: str, last: str) -> None:
    found = told(f"{first}once more\n{last}", 1)[0]
    assert found.partition("; before that, its launcher had failed: OSError: ")[0] == "ValueError: loss is nan"
    assert found == "ValueError: loss is nan" or last == LOSS  # no launcher reports that it has ended this one


OPTIONAL = f"{FRAMES}ModuleNotFoundError: No module named 'apex'\n"
LACKS = "train.py: error: the following arguments are required: --data"
UNMOUNTED = "ERROR: data set /data/imagenet is not mounted"
SHARDS = "reading a shard\n" * 20


@pytest.mark.parametrize("program", ["run.py", "./train.sh"])
def test_an_exception_that_was_caught_is_told_beside_what_a_program_ended_for_later(program: str) -> None:
    """A code other than 1 is of no exception that nobody caught; behind what was got over, the last words count first."""
    why = OPTIONAL.splitlines()[-1]
    for code, last in ((2, LACKS), (66, UNMOUNTED), (1, UNMOUNTED)):
        assert told(f"{OPTIONAL}going on without apex\n{last}\n", code, program)[0] == f"{last}; before that: {why}"
    assert told(f"{OPTIONAL}{UNMOUNTED}\n", 1, program)[0] == f"{why}; after that: {UNMOUNTED}"
    assert told(f"{OPTIONAL}{UNMOUNTED}\n", 3, program)[0] == f"{UNMOUNTED}; before that: {why}"
    samples = "data set /data/imagenet has 0 samples"
    assert told(f"{OPTIONAL}{samples}\n", 42, program)[0] == f"{why}; its last line: {samples}"
    assert told(f"{OPTIONAL}training failed\n", 3, program)[0] == why
    uploads = f"going on\n{CURL}upload to bucket failed\n"
    assert told(f"{OPTIONAL}{uploads}", 4, program)[0] == f"{CURL.strip()}; before that: {why}"
    assert told(f"{OPTIONAL}wandb: Synced 4 files\n", 1, program)[0] == why


@pytest.mark.parametrize("program", ["run.py", "./train.sh"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_behind_a_caught_exception_do_not_hide_what_a_program_ended_for_later(program: str, steps: int) -> None:
    """As of an epoch or two; many lines of other things do not either."""
    work = "".join(f"epoch {number}/3 loss 0.{number}\n" for number in range(steps))
    fatal = "FATAL: validation set is empty"
    for code, last in ((1, UNMOUNTED), (2, LACKS), (3, fatal), (1, CP.strip()), (4, CURL.strip()), (4, "upload failed")):
        for text in (f"{OPTIONAL}{work}{last}\n", f"{OPTIONAL}{SHARDS}{work}saved model.bin\n{last}\n"):
            assert told(text, code, program)[0].partition("; before that: ")[0] == last
    assert told(f"{OPTIONAL}{SHARDS}{LACKS}\n", 2, program)[0].startswith(LACKS)
    message = "ValueError: loss is not a number\n  step: 140\n  loss: nan\n"
    assert told(f"{FRAMES}{message}ERROR: cannot go on\n", 1, program)[0].startswith("ValueError: loss is not a number")


@pytest.mark.parametrize("steps", ["", "epoch 1/3 loss 0.5\n", "epoch 1/3 loss 0.5\nepoch 2/3 loss 0.4\n"])
@pytest.mark.parametrize("between", ["", "apex is not there, going on\n"])
def test_what_a_shell_says_of_a_killed_program_comes_before_what_another_had_failed_of(steps: str, between: str) -> None:
    why = OPTIONAL.splitlines()[-1]
    for code, how in ((137, "Killed"), (139, "Segmentation fault"), (135, "Bus error")):
        line = f"train.sh: line 2:  8641 {how}                  python train.py"
        found = told(f"{OPTIONAL}{between}{steps}{line}\n", code)[0]
        if code == 137 or between or steps:
            assert found == f"{line}; before that: {why}"
        else:  # Python may crash on its way out
            assert found == f"{why}; after that: {line}"
    aborted = "terminate called without an active exception\ntrain.sh: line 2: 8641 Aborted                 (core dumped) python train.py\n"
    assert told(f"{OPTIONAL}{aborted}", 134)[0].startswith(why)


LOGGED = "ERROR:root:apex could not be loaded\n" + OPTIONAL.replace("<module>", "load")
IN_THREAD = "Exception in thread Thread-1 (run):\n" + OPTIONAL.replace("<module>", "_bootstrap_inner")


@pytest.mark.parametrize("steps", ["", "epoch 1/3 loss 0.5\n", "epoch 1/3 loss 0.5\nepoch 2/3 loss 0.4\n"])
@pytest.mark.parametrize("between", ["", SHARDS])
def test_an_exception_that_a_function_has_caught_and_logged_is_told_beside_what_came_later(steps: str, between: str) -> None:
    why = OPTIONAL.splitlines()[-1]
    for code, last in ((2, LACKS), (66, UNMOUNTED), (4, CURL.strip())):
        for program in ("run.py", "./train.sh"):
            assert told(f"{LOGGED}{between}{steps}{last}\n", code, program)[0] == f"{last}; before that: {why}"
    assert told(f"{LOGGED}{between}{steps}{UNMOUNTED}\n", 1, "run.py")[0] == (
        f"{UNMOUNTED}; before that: {why}" if steps else f"{why}; after that: {UNMOUNTED}"
    )
    assert told(f"{LOGGED}{between}{steps}{LOSS}", 1, "run.py")[0] == "ValueError: loss is nan"
    assert told(f"{LOGGED}training failed\n", 3, "run.py")[0] == why
    assert told(f"{LOGGED}validation set is empty\n", 1, "run.py")[0] == f"{why}; its last line: validation set is empty"


RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


@pytest.mark.parametrize("caught", [RESET, "TimeoutError: timed out"])
def test_a_lost_connection_that_was_caught_does_not_hide_what_came_later(caught: str) -> None:
    """With peers it stays the consequence that it may be."""
    logged = LOGGED.replace(OPTIONAL.splitlines()[-1], caught)
    for code, last in ((3, "FATAL: validation set is empty"), (1, UNMOUNTED)):
        assert told(f"{logged}{last}\n", code, "run.py")[0] == f"{last}; before that: {caught}"
        assert told(f"{logged}{last}\n", code, "run.py", ranks=2)[0] == f"{caught}; after that: {last}"
    assert told(f"{logged}training failed\n", 3, "run.py")[0] == caught


def test_an_exception_that_ends_a_program_comes_before_one_that_was_caught() -> None:
    memory = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    logged = LOGGED.replace(OPTIONAL.splitlines()[-1], memory)
    assert told(f"{logged}{LOSS}", 1, "run.py")[0] == f"ValueError: loss is nan; before that: {memory}"
    failed = f"{FRAMES}RuntimeError: training failed\n"
    assert told(f"{logged}{failed}", 1, "run.py")[0] == memory


@pytest.mark.parametrize("by_itself", [True, False])
def test_an_exception_that_was_caught_does_not_hide_that_which_ends_a_rank(by_itself: bool) -> None:
    """PyTorch's hook marks each line. What came of another rank's end stays a consequence."""
    plan = helpers.plan(helpers.local(2), method="spawn", program="run.py")
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/part-3.idx'"
    logged = LOGGED.replace(OPTIONAL.splitlines()[-1], missing)
    for line, kind in (("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "cause"), (RESET, "consequence")):
        for mark in ("", "[rank1]: "):
            raised = "".join(f"{mark}{each}\n" for each in f"{FRAMES}{line}".splitlines())
            error = words.known(f"{logged}closing\n{raised}".encode(), plan, by_itself, code=1 if by_itself else None)
            assert error
            assert error.kind == kind
            assert error.line == line


def test_an_exception_that_was_caught_is_not_why_a_process_was_killed() -> None:
    for program in ("run.py", "./train.sh"):
        assert told(LOGGED, 137, program)[0] == told(f"{OPTIONAL}{SHARDS}", 137, program)[0] == ""
        why = OPTIONAL.splitlines()[-1]
        assert told(OPTIONAL, 137, program)[0] == told(IN_THREAD, 137, program)[0] == ""  # whoever has printed it
        out = "slurmstepd: error: Detected 1 oom_kill event in StepId=47.0. Some of the step tasks have been OOM Killed."
        assert told(f"{LOGGED}{SHARDS}{out}\n", 137, program)[0] == f"{out}; before that: {why}"


def test_steps_of_a_peer_do_not_hide_what_a_rank_has_failed_of() -> None:
    steps = "".join(f"step {number} loss 0.{9 - number}\n" for number in range(4))
    assert told(f"step 0 loss 0.9\n{LOSS}{steps}{torchrun(1)}", 1)[0] == "ValueError: loss is nan"
    assert told(f"step 0 loss 0.9\n{LOSS}{steps}{torchrun(3)}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"
    caught = LOSS.replace("<module>", "load")
    assert told(f"{caught}{steps}{torchrun(1)}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 1"
    assert told(f"{LOSS}{steps * 4}{torchrun(1)}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 1"


CURL = "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Could not connect to server\n"
WORDS = ("training failed, notifying slack", "ERROR: training failed, see the log above", "Job failed at Fri Nov 27 02:50:00 UTC 2026")


@pytest.mark.parametrize("report", [torchrun(1), mpirun(1)])
@pytest.mark.parametrize("last", [*WORDS, CURL.strip(), CP.strip(), "Error: training did not finish"])
def test_what_a_script_says_of_its_launchers_failure_does_not_hide_why(report: str, last: str) -> None:
    why = "OSError: [Errno 28] No space left on device"
    assert told(f"{FULL}{report}{last}\n", 1)[0] in (why, f"{why}; after that: {last}")
    assert told(f"{FULL}{report}{last}\n", 7)[0] in (why, f"{last}; before that, its launcher had failed: {why}")
    assert why in told(f"{FULL}{report}{last}\n", 7)[0]


def test_what_a_script_does_after_its_program_has_failed_does_not_hide_why() -> None:
    why = "ValueError: loss is nan"
    assert told(f"{LOSS}{CURL}", 1)[0] == f"{why}; after that: {CURL.strip()}"
    assert told(f"{LOSS}{CURL}", 7)[0] == f"{CURL.strip()}; before that: {why}"
    refused = "ConnectionRefusedError: [Errno 111] Connection refused"
    assert told(f"{LOSS}{FRAMES}{refused}\n", 1)[0] == f"{why}; after that: {refused}"
    assert told(f"{LOSS}{FRAMES}{refused}\n", 1, ranks=2)[0] == f"{refused}; before that: {why}"  # it may be that of a peer
    assert told(f"{FRAMES}KeyError: 'x'\n{LOSS}", 1)[0] == f"{why}; before that: KeyError: 'x'"
    assert told(f"{LOSS}step 1 loss 2.1\nstep 2 loss 2.0\n{CURL}", 1)[0] == CURL.strip()
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert told(f"{LOSS}{chained}{FRAMES}{refused}\n", 1)[0] == refused


@pytest.mark.parametrize("after", ["RuntimeError: training failed", "RuntimeError: torchrun exited with code 1", "AssertionError"])
def test_a_program_that_tells_how_its_launcher_ended(after: str) -> None:
    assert told(f"{FULL}{torchrun(1)}{FRAMES}{after}\n", 1, "run.py")[0] == "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("work", ["", "step 1 loss 2.1\n"])
def test_what_a_program_failed_of_that_went_on_without_its_launcher(work: str) -> None:
    both = "ValueError: loss is nan; before that, its launcher had failed: OSError: [Errno 28] No space left on device"
    assert told(f"{FULL}{torchrun(1)}{work}{LOSS}", 1, "run.py")[0] == both


def test_what_a_program_says_itself_behind_its_launchers_failure_is_told_too() -> None:
    full = "OSError: [Errno 28] No space left on device"
    error = "error: evaluation set is empty"
    assert told(f"{FULL}{torchrun(1)}{error}\n", 1, "run.py")[0] == f"{error}; before that, its launcher had failed: {full}"
    key = "config key model.width is not known"
    assert told(f"{FULL}{torchrun(1)}{key}\n", 1, "run.py")[0] == f"{full}; its last line: {key}"
    for other in ("wandb: Synced 4 files", "training failed", "INFO:root:uploaded part 7", ""):
        assert told(f"{FULL}{torchrun(1)}{other}\n", 1, "run.py")[0] == full


def test_a_chained_exception_of_many_frames_does_not_hide_what_its_launcher_failed_of() -> None:
    frames = "".join(f'  File "subprocess.py", line {number}, in run\n    call()\n' for number in range(9))
    failed = "subprocess.CalledProcessError: Command '['mpirun']' returned non-zero exit status 1."
    chained = f"{FRAMES}{frames}{failed}\n\nDuring handling of the above exception, another exception occurred:\n\n{FRAMES}KeyError: 'x'\n"
    found = told(f"{FULL}{mpirun(1)}{chained}", 1, "run.py")[0]
    assert found == "OSError: [Errno 28] No space left on device; its last line: KeyError: 'x'"


def test_an_exception_without_a_message_may_say_enough() -> None:
    """As that of memory which ran out."""
    assert told(f"{FULL}{torchrun(1)}{FRAMES}MemoryError\n", 1, "run.py")[0].startswith(
        "MemoryError; before that, its launcher had failed: "
    )


@pytest.mark.parametrize("behind", ["", "going on alone\n", "epoch 1 loss 1.9\n"])
@pytest.mark.parametrize("program", ["run.py", "./train.sh"])
def test_no_launchers_failure_is_why_another_process_was_killed(behind: str, program: str) -> None:
    assert told(f"{FULL}{torchrun(1)}{behind}", 137, program) == ("", "")


def test_a_program_that_made_steps_without_its_launcher_had_got_over_it() -> None:
    text = f"{FULL}{torchrun(1)}training alone\nepoch 0 loss 2.0\nepoch 1 loss 1.9\nno samples left, giving up\n"
    assert told(text, 3, "run.py") == ("", "")


def test_a_launcher_that_reports_twice_of_one_failure() -> None:
    line = torchrun(1).partition("\n")[0] + "\n"
    assert told(f"{FULL}{line}{torchrun(1)}", 1)[0] == "OSError: [Errno 28] No space left on device"


def test_the_last_of_several_reports_counts() -> None:
    assert told(f"{mpirun(3)}going on\n{mpirun(5, 1)}", 5)[1] == "its mpirun says that rank 1 exited with code 5"
    assert told(f"{torchrun(3)}going on\n{mpirun(5, 1)}", 5)[1] == "its mpirun says that rank 1 exited with code 5"
    assert told(f"{mpirun(5, 1)}going on\n{deepspeed(-9)}", 247)[1] == "its deepspeed says that a rank was killed by signal 9"
    assert told(f"{mpirun(5, 1)}going on\n{torchrun(3)}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"


@pytest.mark.parametrize("program", ["run.py", "./train.sh"])
def test_what_a_torchrun_had_started_its_ranks_again_after_is_not_the_reason(program: str) -> None:
    """It tells of it before, in a line of its own."""
    line = torchrun(1).partition("\n")[0] + "\n"
    assert told(f"{FULL}{line}trained\nuploading the model\n", 2, program) == ("", "")
    assert told(f"{FULL}{line}trained\n{CP}", 1, program)[0] == CP.strip()
    assert told(f"{FULL}{line}trained\n{LOSS}{torchrun(1)}", 1, program)[0] == "ValueError: loss is nan"
    cut = torchrun(1).partition("ChildFailedError")[0]
    assert told(f"{FULL}{cut}", 1, program)[0] == FULL.splitlines()[-1]
    assert last_exception(f"{FULL}{line}trained\nuploading the model\n") == ""


def test_what_a_torchrun_died_of_that_another_was_started_after_is_not_the_reason() -> None:
    box = torchrun(3)
    assert box.rstrip().endswith("=" * 20)
    assert told(f"{FULL}{torchrun(1)}preparing again\n{box}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"
    sent = "W1126 21:59:22.975000 64 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 65 closing signal SIGTERM\n"
    assert told(f"{FULL}{torchrun(1)}{sent}{box}", 1)[0] == "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    "end", ["", "done\n", "Job finished at 12:00\n", "finished with rc 3\n", "training failed\n", "Error: run failed with exit code 3!\n"]
)
def test_what_a_script_says_at_its_end_does_not_hide_a_report(end: str) -> None:
    assert told(f"{mpirun(3)}{end}", 3)[1] == "its mpirun says that rank 0 exited with code 3"
    assert told(f"{torchrun(3)}{end}", 1)[1] == "its torchrun says that local rank 0 (pid 9) exited with code 3"
    assert told(f"{deepspeed(3)}{end}", 3)[1] == "its deepspeed says that a rank exited with code 3"
    assert told(f"{LOSS}{torchrun(1)}{end}", 1)[0] == told(f"{LOSS}{deepspeed(1)}{end}", 1)[0] == "ValueError: loss is nan"


def test_a_report_of_another_code_is_not_the_reason() -> None:
    assert told(f"{mpirun(3)}warm-up failed, going on\n", 7) == ("", "")
    assert told(f"{LOSS}{mpirun(1)}cleaning up\n", 7)[0] == "ValueError: loss is nan"


def last_exception(text: str, code: int = 1) -> str:
    """That, or the last error, is told beside the last line where nothing is known of how it ended."""
    culprit = left_behind.culprit(exit_code=code)
    found = words.with_failures([Suspect(0, 0.0, "failed", code, "", culprit)], lambda _: text.encode())
    return found[0].reason.partition("lines behind it: ")[2]


def test_a_launchers_own_exception_does_not_hide_that_of_its_rank() -> None:
    uploads = "".join(f"INFO:root:uploaded part {number}/20\n" for number in range(20))
    assert last_exception(f"{LOSS}{torchrun(1)}{uploads}") == "ValueError: loss is nan"
    assert last_exception(f"{LOSS}{torchrun(1)}{FRAMES}KeyError: 'x'\n{uploads}") == "KeyError: 'x'"
    assert last_exception(f"{torchrun(1)}{uploads}") == ""


@pytest.mark.parametrize("code", [1, 13])
def test_what_a_program_saves_last_does_not_hide_what_it_has_logged(code: int) -> None:
    why = LOGGED.splitlines()[-1]
    saves = "INFO:root:saving emergency checkpoint\nINFO:root:saved to /x at step 12\n"
    assert told(f"{LOGGED}{saves}", code, "run.py") == ("", "")
    assert last_exception(f"{LOGGED}{saves}", code) == why
    assert last_exception(f"CRITICAL:root:aborting: loss is nan\n{saves}", code) == "CRITICAL:root:aborting: loss is nan"
    steps = "".join(f"step {number} loss 0.5\n" for number in range(4))
    assert last_exception(f"{LOGGED}{steps}{saves}", code) == (why if code == 1 else "")
    assert last_exception(f"ERROR:root:no metrics sent\n{steps}{saves}", code) == ""


def test_the_last_of_an_exception_and_an_error_is_told() -> None:
    saves = "INFO:root:saved to /x\n"
    diverged = "ERROR:root:loss diverged"
    assert last_exception(f"{LOGGED}going on\n{diverged}\n{saves}", 4) == diverged
    assert last_exception(f"{diverged}\n{LOGGED}{saves}", 4) == LOGGED.splitlines()[-1]


def test_an_error_that_names_its_step_is_no_step() -> None:
    diverged = "ERROR:train:loss diverged (nan) at step 5, aborting"
    assert told(f"step 4 loss 0.5\n{diverged}\n", 1, "run.py")[0] == diverged


def test_two_errors_of_a_program_are_told_both() -> None:
    first = "ERROR:root:could not read: [Errno 2] No such file or directory: '/data/x'"
    last = "CRITICAL:root:no samples are left"
    assert told(f"{first}\n{last}\n", 4, "run.py")[0] == f"{first}; its last line: {last}"
    assert told(f"{first}\nERROR: training failed\n", 4, "run.py")[0] == first
    assert told(f"{last}\n", 4, "run.py")[0] == last


def test_a_threads_exception_is_told_beside_what_the_program_ended_for() -> None:
    why = OPTIONAL.splitlines()[-1]
    assert told(f"{IN_THREAD}no samples are left\n", 1, "run.py")[0] == f"{why}; its last line: no samples are left"
    aborted = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA driver is gone\n"
    assert told(f"{IN_THREAD}{aborted}", 134, "run.py")[0].endswith(f"; before that: {why}")


def test_what_a_logger_calls_fatal_is_told_before_what_was_caught() -> None:
    why = LOGGED.splitlines()[-1]
    for level in ("F1127 08:23:30.867249", "F20261127 08:23:30.867249"):
        fatal = f"{level} 4711 train.py:7] Checkpoint ckpt-7 is corrupt"
        stack = 'Current thread 0x7 (most recent call first):\n  File "train.py", line 8 in main\n'
        aborted = f"{fatal}\nFatal Python error: Aborted\n\n{stack}"
        for caught in (LOGGED, f"ERROR:root:no apex\n{OPTIONAL}"):
            found = told(f"{caught}I1127 08:23:30.0 4711 train.py:6] training\n{aborted}", 134, "run.py")[0]
            assert found == f"{fatal}; before that: {why}"
        assert told(f"{LOGGED}step 1 loss 2\n{aborted}", 134, "run.py")[0].startswith(fatal)
    assert told(f"{LOGGED}Fatal Python error: Aborted\n", 134, "run.py")[0] == why


def test_what_a_logger_says_above_an_exception_tells_that_it_was_caught() -> None:
    config = "config error: model.hidden must be divisible by heads"
    assert told(f"ERROR:root:no luck\n{LOSS}{config}\n", 1, "run.py")[0] == f"ValueError: loss is nan; after that: {config}"
    assert told(f"ERROR:root:retrying\n{LOSS}{config}\n", 1, "run.py")[0] == f"{config}; before that: ValueError: loss is nan"
    assert told(f"{LOSS}{config}\n", 1, "run.py")[0] == "ValueError: loss is nan"  # which may be of its message


def test_the_end_of_an_exception_s_own_message_is_told_once() -> None:
    """As seen with TensorFlow 2.21 and MindSpore 2.10."""
    frames = 'Traceback (most recent call last):\n  File "run.py", line 34, in <module>\n    m.fit(ds)\n'
    value = "  0: <tf.Tensor: shape=(2, 4), numpy=\narray([[0., 0., 0., 0.],\n       [1., 1., 1., 1.]], dtype=float32)>\n"
    said = "ValueError: Attempt to convert a value (PerReplica:{{\n{}}}) with an unsupported type (<class 'PerReplica'>) to a Tensor."
    warned = "W0000 00:00:1795815409.856163       3 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized\n"
    behind = "W0000 00:00:1795815413.085317       3 generator_dataset_op.cc:113] Error occurred when finalizing it\n\t [[{node P}]]\n"
    found = told(f"{warned}{frames}{said.format(value)}\n{behind}", 1, "run.py")[0]
    assert found == said.format("...").replace("\n", "")
    parts = (
        "[ERROR] Execute user Python code failed, check 'Python Call Stack' above.",
        "mindspore/ccsrc/minddata/dataset/data_source/generator_op.cc(383).",
    )
    text = "\n".join((f"{frames.replace('<module>', '__getitem__')}ValueError: corrupt record 60", *parts, ""))
    assert told(text, 1, "run.py")[0] == "ValueError: corrupt record 60"


@pytest.mark.parametrize(("rank", "found"), [(1, 1), (2, None), (999999, None)])
def test_a_rank_that_the_job_does_not_have_is_not_believed(rank: int, found: int | None) -> None:
    """Whatever has written such a line."""
    plan = helpers.plan(helpers.local(2, "1"), method="torchrun")
    failure = words.explained("", plan, lambda text: Failure(rank, 3))
    assert failure
    assert (failure.rank, failure.exit_code) == (found, 3)


@pytest.mark.parametrize(("env", "host", "node"), [({}, "n1", 1), ({}, "", None), ({"RANKLAUNCH_HOSTS": ""}, "", None), ({}, "n7", None)])
def test_only_a_launcher_that_names_a_host_tells_the_node(env: dict[str, str], host: str, node: int | None) -> None:
    """Nodes may have no names, as on platforms that tell the address of node 0 alone."""
    unnamed = {"RANKLAUNCH_MASTER_ADDR": "h0", **env}
    plan = helpers.plan({**helpers.local(3, "2"), **unnamed}, method="torchrun")
    failure = words.explained(": exited\n", plan, lambda text: Failure(1, 3, host=host))
    assert failure
    assert failure.node == node


def test_a_name_that_pdsh_may_give_two_hosts_tells_no_node() -> None:
    plan = helpers.plan({**helpers.local(2, "1"), "RANKLAUNCH_HOSTS": "w1,w1.job"}, method="spawn")
    for host, node in (("w1", None), ("w1.job", 1)):
        failure = words.explained("", plan, lambda text, host=host: Failure(None, 3, host=host))  # type: ignore[misc]
        assert failure
        assert failure.node == node
