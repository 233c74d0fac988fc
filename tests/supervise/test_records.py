"""What stays: verdict, events, last words for Kubernetes; also where nothing can be written, and where the command line is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ranklaunch.cli.launch import begin
from ranklaunch.plan import planning
from ranklaunch.plan.model import Plan
from ranklaunch.supervise import record
from ranklaunch.supervise.record import MOST_IDS, RUN_IDS, run_id
from testbench.jobs.ends import check_end, checked_verdict
from testbench.jobs.job import Job, Starter
from testbench.jobs.streams import tagged
from testbench.jobs.users import as_user, as_user_alone, copied_for_all, needs_root, open_to_all
from testbench.places import child

USER = 1000


# Where the log directory is


@needs_root
def test_an_ordinary_user(as_process: Starter, tmp_path: Path) -> None:
    """Whose console is another user's pipe, which he cannot open anew."""
    open_to_all(tmp_path)
    job = as_process.spawn(2, "sh", "-c", "i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i + 1)); done", prefix=as_user(USER))
    check_end(job, "succeeded", 0)
    assert os.stat(job.attempt).st_uid == USER
    for rank in range(2):
        assert tagged(job.out, f"[rank {rank}] ") == job.log(rank)
        assert job.log(rank).count(b"\n") == 9000


@needs_root
def test_a_folder_of_another_user(as_process: Starter, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o755)
    job = as_process.spawn(2, child("exits.py"), 0, prefix=as_user(USER))
    check_refused(job, 78, str(folder), f"uid {USER}", "Permission denied", "--log-dir")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["[" * 100_000, '{"x": ' + "[" * 900 + "]" * 900 + "}", "[1]", '"x"', "\xff"], ids=range(5))
def test_what_another_user_has_left_of_runs_is_no_defect(text: str, tmp_path: Path) -> None:
    (tmp_path / RUN_IDS).write_text(text, encoding="latin-1")
    found = run_id(str(tmp_path), "j", "python x.py")
    assert run_id(str(tmp_path), "j", "python x.py") == found


@needs_root
def test_runs_of_a_user_who_lets_nobody_read_them_stay(tmp_path: Path) -> None:
    """In a folder that both may write to."""
    open_to_all(tmp_path)
    (tmp_path / "packages").mkdir()
    interpreter = copied_for_all(tmp_path / "packages")
    if not interpreter:
        pytest.skip("no interpreter that another user may run")
    path = tmp_path / RUN_IDS
    path.write_text('{"other 1": "00112233445566aa"}')
    path.chmod(0o600)
    imports, call = "import sys; from ranklaunch.supervise.record import run_id", "run_id(sys.argv[1], 'j', 'x', trouble)"
    program = f"{imports}; trouble = []; print(len({call}), *trouble)"
    done = subprocess.run(
        [*as_user_alone(1000, 100), interpreter, "-c", program, tmp_path], env={"PYTHONPATH": str(tmp_path / "packages")}, cwd="/",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"16 {path}: Permission denied: the run's id is not kept, so a later attempt gets a new one\n"
    assert path.read_text() == '{"other 1": "00112233445566aa"}'


def test_jobs_that_begin_at_once_in_one_folder_keep_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LOCK_S", 60)
    with ThreadPoolExecutor(16) as together:
        found = dict(zip(range(64), together.map(lambda number: run_id(str(tmp_path), f"j{number}", "python x.py"), range(64))))
    assert {number: run_id(str(tmp_path), f"j{number}", "python x.py") for number in found} == found
    assert len(set(found.values())) == len(found)


def test_the_newest_of_very_many_jobs_keep_their_runs(tmp_path: Path) -> None:
    path = tmp_path / RUN_IDS
    path.write_text(json.dumps({**{f"j{number} 0": f"{number:016x}" for number in range(MOST_IDS)}, "odd": "x" * 100_000, "none": None}))
    found = run_id(str(tmp_path), "j", "python x.py")
    assert run_id(str(tmp_path), "j", "python x.py") == found
    kept = json.loads(path.read_text())
    assert list(kept)[:2] == ["j1 0", "j2 0"]
    assert [len(kept), kept["j9999 0"], list(kept.values())[-1]] == [MOST_IDS, f"{9999:016x}", found]


def test_a_file_in_place_of_the_folder(as_process: Starter, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    job = as_process.spawn(2, child("exits.py"), 0)
    check_refused(job, 78, str(tmp_path / "logs"), f"uid {os.getuid()}", "--log-dir")


def check_refused(job: Job, code: int, *named: str) -> None:
    """It says why, in one message without a traceback, and starts nothing."""
    assert job.end() == code
    for text in named:
        assert text in job.err.text
    assert "Traceback" not in job.err.text
    assert all(line.startswith("ranklaunch: ") for line in job.err.lines)
    assert job.out.text == ""


@needs_root
def test_a_full_disk(as_process: Starter, tmp_path: Path) -> None:
    """The job goes on, the console has everything, and what could not be stored is said."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = ("unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=256k none '{folder}' && exec \"$@\"", "sh")
    job = as_process.spawn(2, child("prints.py"), "--lines", 5000, "--size", 99, outside=mounted, log_dir=folder / "logs")
    assert job.end() == 0
    for rank in range(2):
        assert tagged(job.out, f"[rank {rank}] ").count(b"\n") == 5000
        assert f"cannot write {folder}/logs/attempt_1/rank_{rank}.log: the disk is full" in job.err.text
    assert "succeeded with exit code 0" in job.err.text


@needs_root
def test_a_disk_that_is_full_from_the_start(as_process: Starter, tmp_path: Path) -> None:
    """Not even a file can be made: the ranks still tell what happened to them."""
    folder = tmp_path / "small"
    folder.mkdir()
    fill = f"mount -t tmpfs -o size=64k none '{folder}' && mkdir -p '{folder}/logs' && cat /dev/zero > '{folder}/zeros' 2>/dev/null"
    mounted = ("unshare", "--mount", "sh", "-c", f'{fill}; exec "$@"', "sh")
    job = as_process.spawn(2, child("exits.py"), 42, "--rank", 1, outside=mounted, log_dir=folder / "logs")
    assert job.end() == 42
    assert "rank 1 exits with 42" in job.out.text


# What Kubernetes shows


def test_the_termination_log(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("of an earlier start\n" * 100)
    job = as_process.spawn(2, child("exits.py"), 42, "--rank", 1, env={"RANKLAUNCH_TERMINATION_LOG": str(path)})
    verdict = check_end(job, "failed", 42, culprit={"rank": 1})
    assert path.read_text() == verdict["reason"] + "\n"


def test_the_termination_log_of_a_success(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("of an earlier start\n")
    job = as_process.spawn(1, child("exits.py"), 0, env={"RANKLAUNCH_TERMINATION_LOG": str(path)})
    check_end(job, "succeeded", 0)
    assert path.read_text() == ""


def test_the_termination_log_is_never_made(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    job = as_process.spawn(1, child("exits.py"), 3, env={"RANKLAUNCH_TERMINATION_LOG": str(path)})
    check_end(job, "failed", 3, culprit={"rank": 0})
    assert not path.exists()


def test_the_termination_log_of_a_wrong_configuration(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("")
    env = {"RANKLAUNCH_TERMINATION_LOG": str(path), "RANKLAUNCH_METHOD": "torchrunn"}
    job = as_process.run(child("exits.py"), 0, env=env)
    assert job.end() == 78
    assert "torchrunn" in path.read_text()
    assert len(path.read_bytes()) <= 4096


def test_secrets_stay_in_the_raw_log(as_process: Starter, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_text("")
    job = as_process.spawn(1, child("tells.py"), env={"RANKLAUNCH_TERMINATION_LOG": str(path)})
    assert job.end() == 1
    verdict = checked_verdict(job.attempt / "verdict.json")
    log = job.log(0).decode()
    said = json.dumps(verdict) + path.read_text() + job.err.text
    assert all(text in log for text in ("hunter2", "hf_", "\x1b[2J"))
    assert "for https://***@host/ with ***" in path.read_text() == verdict["reason"] + "\n"
    assert not any(text in said for text in ("hunter2", "hf_", "\x1b", "\\u001b"))


# Before there is a plan


WRONG = {
    "method": (78, (), {"RANKLAUNCH_METHOD": "torchrunn"}, ("RANKLAUNCH_METHOD='torchrunn'", "did you mean 'torchrun'?")),
    "option": (2, ("--grace-s", "soon"), {}, ("--grace-s", "soon", "expected seconds")),
    "count": (78, (), {"MA_NUM_HOSTS": "two"}, ("MA_NUM_HOSTS='two'", "whole number")),
    "contradiction": (
        78,
        (),
        {"MA_NUM_HOSTS": "2", "MA_NUM_GPUS": "2", "MA_VJ_NAME": "j", "MA_TASK_INDEX": "0", "VC_TASK_INDEX": "1"},
        ("MA_TASK_INDEX='0'", "contradicts", "VC_TASK_INDEX='1'"),
    ),
    "template": (78, (), {"RANKLAUNCH_LOG_TAG": "{{ rnak }}", "RANKLAUNCH_METHOD": "spawn"}, ("RANKLAUNCH_LOG_TAG", "rnak")),
    "rank table": (78, (), {"RANKLAUNCH_METHOD": "ranktable"}, ("RANK_TABLE_FILE is not set",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration(as_process: Starter, case: str) -> None:
    """The message is on the console and in the verdict; nothing was started."""
    code, options, env, named = WRONG[case]
    job = as_process.run(child("exits.py"), 0, options=options, env=env)
    check_refused(job, code, *named)
    verdict = job.verdict
    assert (verdict["outcome"], verdict["exit_code"], verdict["culprit"], verdict["victims"]) == ("failed", code, None, [])
    for text in named:
        assert text in verdict["reason"]


def test_a_wrong_command_line(as_process: Starter) -> None:
    check_refused(as_process.command("run", "--no-such-option", "train.py"), 2, "--no-such-option", "usage: ranklaunch run")
    check_refused(as_process.command("run"), 2, "no PROGRAM given")
    check_refused(as_process.command("rnu", "train.py"), 2, "unknown command 'rnu'", "did you mean 'run'?")
    assert list(as_process.folder.iterdir()) == []


def test_every_problem_at_once(as_process: Starter) -> None:
    env = {"MA_NUM_HOSTS": "two", "RANKLAUNCH_GRACE_S": "soon", "RANKLAUNCH_WAIT_S": "-1"}
    job = as_process.command("run", "--log-dir", "logs", child("exits.py"), 0, env=env)
    check_refused(job, 78, *env)


def test_plan_is_what_runs(as_process: Starter) -> None:
    """The plan that is stored names each rank's command, files and environment, with secrets hidden."""
    job = as_process.spawn(2, child("exits.py"), 0, "--password", "hunter2", env={"HF_TOKEN": "hf_secret"})
    check_end(job, "succeeded", 0)
    text = (job.attempt / "plan.json").read_text()
    plan = json.loads(text)
    assert plan["schema"] == "ranklaunch.plan/2"
    assert [process["rank"] for process in plan["processes"]] == [0, 1]
    assert [Path(process["log"]).read_bytes() for process in plan["processes"]] == [job.log(0), job.log(1)]
    assert "hunter2" not in text
    assert "hf_secret" not in text


@pytest.mark.parametrize(("told", "attempt"), [((), 2), (("--attempt", "1"), 1)], ids=["counted", "told"])
def test_runs_that_begin_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: tuple[str, ...], attempt: int) -> None:
    """As of a loop in a shell over learning rates: where each counts the attempts that are there, none gets the folder of another."""
    plan_of = planning.make_plan

    def overtaken(request: planning.Request) -> Plan:
        plan = plan_of(request)
        (tmp_path / "attempt_1").mkdir(exist_ok=True)  # another one has counted the same
        return plan

    monkeypatch.setattr(planning, "make_plan", overtaken)
    start, _ = begin(["--method", "spawn", "--slots", "1", "--log-dir", str(tmp_path), *told, "true"], {})
    start.record.close()
    assert start.plan.job.attempt == attempt
    assert [path.name for path in tmp_path.glob("*/events.jsonl")] == ["events.jsonl"]
    assert (tmp_path / f"attempt_{attempt}" / "events.jsonl").exists()


def test_an_earlier_attempt_is_kept(as_process: Starter) -> None:
    """The same attempt again, as a platform may say: its logs and events are added to, not replaced."""
    for number in (1, 2):
        job = as_process.spawn(1, child("exits.py"), number, env={"RANKLAUNCH_ATTEMPT": "1"})
        assert job.end() == number
    assert job.log(0) == b"ready\nrank 0 exits with 1\nready\nrank 0 exits with 2\n"
    assert [event["event"] for event in job.events].count("read") == 2
    assert checked_verdict(job.attempt / "verdict.json")["exit_code"] == 2


def test_a_folders_name_makes_no_line_of_its_own(as_process: Starter) -> None:
    job = as_process.spawn(1, child("exits.py"), 3, log_dir=as_process.folder / "a\nranklaunch: succeeded with exit code 0\x1b[2J")
    assert job.end() == 3
    (line,) = (line for line in job.err.text.split("\n") if line.startswith("ranklaunch: logs "))
    assert line.count(r"a\nranklaunch: succeeded with exit code 0\x1b[2J") == 2
    assert "\nranklaunch: succeeded" not in job.err.text
