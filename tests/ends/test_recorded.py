"""What ranks and launchers wrote down of themselves, in ends.json, `ranklaunch status`, `ranklaunch report` and evidence of real jobs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranklaunch.control import rank_records
from ranklaunch.ends.model import RECORD_SCHEMA
from ranklaunch.processes.records import Records
from ranklaunch.system.tree import Identity
from testbench.jobs.job import Job, Starter, attempts
from testbench.jobs.users import needs_root
from testbench.judges import formats
from testbench.waiting import DEADLINE_S, sleep_until

pytestmark = pytest.mark.processes

USER = 1000
LINE = "ValueError: loss is nan at train.py:{} in step"
RAISES = """
import os, time
def step():
    raise ValueError("loss is nan")
if os.environ["RANK"] == "1":
    step()
time.sleep(600)
"""
HELD = RAISES.replace(
    "    step()", "    import threading\n    threading.Thread(target=time.sleep, args=(20,), name='saver').start()\n    step()"
)

# Rank 1 raises, and rank 0 raises when it is told to end.
IN_HANDLER = """
import os, signal, time
def save(number, frame):
    raise ValueError("no checkpoint folder")
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, save)
    open("up", "w").close()
while not os.path.exists("up"):
    time.sleep(0.02)
if os.environ["RANK"] == "1":
    raise ValueError("loss is nan")
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def with_records(unchanged_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rest of the suite is tried with."""
    monkeypatch.delenv("RANKLAUNCH_RANKSIDE", raising=False)


METHODS = ["spawn", pytest.param("torchrun", marks=pytest.mark.training)]


def started(starter: Starter, method: str, text: str, *words: str, **how: Any) -> Job:
    (starter.folder / "train.py").write_text(text)
    return starter.run(
        *(words or ("train.py",)), options=("--method", method, "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=5, **how
    )


def asked(*words: object) -> str:
    argv = [sys.executable, "-m", "ranklaunch", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def ends(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job.attempt / "ends.json").read_text())
    formats.check("ends", found)
    return found


def status(job: Job) -> dict[str, Any]:
    found = json.loads(asked("status", job.log_dir, "--format", "json"))
    formats.check("status", found)
    return dict(found)


def wait_for_status(job: Job, key: str, rank: int) -> dict[str, Any]:
    """Until the records of a rank say this of it. Return the whole status."""
    sleep_until(lambda: [path for path in attempts(job.log_dir) if (path / "node_0.sock").exists()], "there is no socket")
    found: dict[str, Any] = {}

    def is_said() -> bool:
        found.update(status(job))
        return any(key in each for each in found["ranks"] if each["rank"] == rank)

    sleep_until(is_said, f"{key} of rank {rank} in status")
    return found


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


@pytest.mark.parametrize("method", METHODS)
def test_a_rank_that_raises(as_process: Starter, method: str) -> None:
    job = started(as_process, method, RAISES)
    assert job.end() == 1
    assert job.verdict["culprit"]["rank"] == 1
    found = ends(job)
    (end,) = (end for end in found["ends"] if end["rank"] == 1)
    (raised,) = of_kind(end["records"], "exception")
    assert (raised["where"], raised["number"]) == ("main", 1)
    assert (end["pid"], end["start"]) in ((raised["pid"], raised["start"]), (None, None))  # ended before ranklaunch saw it
    assert [(each["type"], each["message"], each["frames"][-1]["line"]) for each in raised["chain"]] == [("ValueError", "loss is nan", 4)]
    assert dict(of_kind(end["records"], "rank")[0]["variables"])["RANK"] == "1"
    assert found["others"] == []
    text = asked("report", job.log_dir)
    assert f"rank 1 (pid {raised['pid']})" in text
    assert LINE.format(4) in text
    assert "only together with the exit code" in text


def test_a_rank_that_raises_in_the_handler_of_a_signal(as_process: Starter) -> None:
    """The record names the signal: who raises so was told to end by somebody, although nobody may have seen that."""
    job = started(as_process, "spawn", IN_HANDLER)
    assert job.end() == 1
    signals = {end["rank"]: [each.get("signal") for each in of_kind(end["records"], "exception")] for end in ends(job)["ends"]}
    assert signals == {1: [None], 0: [15]}


@pytest.mark.parametrize("method", METHODS)
def test_a_rank_that_has_raised_and_is_held_by_a_thread(as_process: Starter, method: str) -> None:
    """It lives on, and whoever asks hears of the exception."""
    job = started(as_process, method, HELD)
    found = wait_for_status(job, "exception", 1)
    rank = next(each for each in found["ranks"] if each["rank"] == 1)
    assert (rank["exception"]["from"], rank["exception"]["text"]) == ("main", LINE.format(4))
    assert rank["head"] == {"pid": rank["pid"], "program": "train.py", "placed_by": "ranklaunch" if method == "spawn" else method}
    assert rank["state"] == "sleeping"
    assert [(each["name"], each["node"], each["alive"], each["ended"]) for each in found["launchers"]] == (
        [] if method == "spawn" else [(method, 0, True, None)]
    )
    text = asked("status", job.log_dir)
    assert f"UTC: {LINE.format(4)}" in text
    assert (" runs train.py as process " in text, "  launchers: " in text) == (False, method != "spawn")
    assert f"recorded exception: {LINE.format(4)}" in asked("stacks", job.log_dir)
    summary = json.loads((job.attempt / "evidence" / "node_0" / "1" / "summary.json").read_text())
    assert [(each["rank"], each["pid"], each["text"]) for each in summary["exceptions"]] == [(1, rank["pid"], LINE.format(4))]
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_ranks_below_a_shell(as_process: Starter) -> None:
    """The rank that ranklaunch knows is the shell."""
    (as_process.folder / "start.sh").write_text("echo begins\npython train.py\n")
    job = started(as_process, "spawn", HELD, "bash", "start.sh")
    found = wait_for_status(job, "exception", 1)
    assert all(rank["head"]["pid"] != rank["pid"] for rank in found["ranks"] if rank["rank"] == 1)
    assert "rank 1 runs train.py as process " in asked("status", job.log_dir)
    assert "recorded exception:" in asked("stacks", job.log_dir)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    others = ends(job)["others"]
    assert [(each["rank"], [one["kind"] for one in each["records"]]) for each in others if each["rank"] == 1] == [
        (1, ["rank", "exception"])
    ]
    assert all(end["records"] == [] for end in ends(job)["ends"])


# A folder into which others write

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"
EVIL = f"\\x1b[2J\\x1b]0;evil\\x07 HF_TOKEN={SECRET}"
HOSTILE = f"""
import json, os, sys, time
folder, rank = os.environ["RANKLAUNCH_RECORDS_DIR"], os.environ["RANK"]
if rank == "1":
    path = lambda kind, pid, number="": os.path.join(folder, f"{{kind}}-0-{{pid}}-5{{number}}.json")
    own = [name for name in os.listdir(folder) if name.startswith(f"rank-0-{{os.getpid()}}-")][0]
    start = int(own.split("-")[3].partition(".")[0])
    evil = "{EVIL}"
    frame = {{"file": evil, "line": 1, "function": evil}}
    value = {{"schema": "ranklaunch.record/1", "record": "exception", "node": 0, "host": evil, "pid": os.getpid(), "start": start,
        "time": time.time(), "monotonic": 1.5, "from": "main", "thread": evil, "number": 1,
        "chain": [{{"type": evil, "message": evil, "link": "", "frames": [frame], "library": None}}]}}
    write = lambda path, value: open(path, "w").write(value if isinstance(value, str) else json.dumps(value))
    write(os.path.join(folder, f"exception-0-{{os.getpid()}}-{{start}}-1.json"), value)
    launcher = {{**value, "record": "launcher", "start": 5, "pid": 7, "name": "torchrun", "argv": ["--token", "{SECRET}", evil],
        "parent": {{"pid": 1, "start": 1, "argv": [evil]}}}}
    write(path("launcher", 7), launcher)
    os.symlink("/etc/passwd", path("exit", 8))
    os.symlink("/dev/zero", path("exit", 9))
    os.mkfifo(path("rank", 10))
    os.mkdir(path("rank", 11))
    for number in range(10_000):
        os.close(os.open(os.path.join(folder, f"a{{number}}"), os.O_CREAT))
    write(path("exception", 12, "-1"), json.dumps({{**value, "pid": 12, "start": 5}}) + " " * 1_000_000)
    write(path("exception", 13, "-1"), "[" * 60_000)
    write(path("exception", 14, "-1"), '{{"schema"')
    write(path("exception", 15, "-1"), {{**value, "pid": 15, "start": 5}})
    write(path("exception", 16, "-1"), {{**value, "pid": 16, "start": 5, "from": evil}})
    write(path("launcher", 17), {{**launcher, "pid": 17, "name": evil}})
    if os.geteuid() == 0:
        os.chown(path("exception", 15, "-1"), {USER}, {USER})
    open("written", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(3)
time.sleep(600)
"""


def test_whatever_is_written_there_changes_nothing_and_shows_nothing_harmful(as_process: Starter) -> None:
    job = started(as_process, "spawn", HOSTILE)
    sleep_until((as_process.folder / "written").exists, "the rank has not written")
    found = wait_for_status(job, "exception", 1)
    shown = [json.dumps(found), asked("status", job.log_dir), asked("stacks", job.log_dir)]
    (as_process.folder / "go").touch()
    assert job.end() == 3
    verdict = json.loads((job.attempt / "verdict.json").read_text())
    assert (verdict["exit_code"], verdict["culprit"]["rank"], verdict["culprit"]["exit_code"]) == (3, 1, 3)
    assert "defect" not in job.err.text
    shown += [asked("report", job.log_dir, "--format", form) for form in ("text", "html", "json")]
    shown += [(job.attempt / "evidence" / "node_0" / "1" / "summary.json").read_text(), (job.attempt / "ends.json").read_text()]
    names = ("status as JSON", "status", "stacks", "report", "page", "report as JSON", "summary.json", "ends.json")
    assert [name for name, text in zip(names, shown) if SECRET in text] == []
    assert [name for name, text in zip(names, shown) if "\x1b" in text or "\x07" in text] == []
    assert [name for name, text in zip(names, shown) if "evil" not in text] == []
    (end,) = (end for end in ends(job)["ends"] if end["rank"] == 1)
    assert [each["kind"] for each in end["records"]] == ["exception", "rank"]
    (launcher, *others) = ends(job)["others"]
    assert (launcher["pid"], launcher["rank"], launcher["records"][0]["kind"]) == (7, None, "launcher")
    assert [each["pid"] for each in others] == ([] if Path("/proc/self").stat().st_uid == 0 else [15])


READ_ONLY = ("mount --bind {0} {0} && mount -o remount,ro,bind {0}", "rm -r {0} && touch {0}")


@needs_root
@pytest.mark.parametrize("command", READ_ONLY, ids=["read-only", "a file in its place"])
def test_a_folder_that_cannot_be_written(as_process: Starter, command: str) -> None:
    spoil = f"os.system({command!r}.format(os.environ['RANKLAUNCH_RECORDS_DIR']))"
    text = RAISES.replace("    step()", f"    assert {spoil} == 0\n    step()")
    job = started(as_process, "spawn", text, outside=("unshare", "--mount"))
    assert job.end() == 1
    assert job.verdict["culprit"]["rank"] == 1
    assert job.verdict["culprit"]["last_lines"][-1] == "ValueError: loss is nan"
    assert "defect" not in job.err.text
    assert [of_kind(end["records"], "exception") for end in ends(job)["ends"]] == [[], []]
    assert "exceptions:" not in asked("report", job.log_dir)


# What is read of a folder


def written(folder: Path, kind: str, pid: int, **more: object) -> None:
    common = {
        "schema": RECORD_SCHEMA,
        "record": kind,
        "node": 0,
        "host": "h",
        "pid": pid,
        "start": 5,
        "time": 1.0,
        "monotonic": float(pid),
    }
    own: dict[str, object] = {
        "rank": {"argv": ["python", "-u", "a/train.py"], "variables": {"RANK": str(pid)}, "top": {"pid": pid, "start": 5},
                 "parent": {"pid": 1, "start": 1, "argv": []}, "launcher": "spawn"},
        "launcher": {"argv": ["torchrun", "--token", SECRET], "parent": {"pid": 1, "start": 1, "argv": []}, "name": "torchrun"},
        "exit": {"from": "main", "code": 3, "text": "", "handling": None},
    }  # fmt: skip
    (folder / f"{kind}-0-{pid}-5.json").write_text(json.dumps({**common, **own[kind], **more}))  # type: ignore[dict-item]


def test_only_new_files_are_read_and_few_at_once(tmp_path: Path) -> None:
    for pid in range(2, 12):
        written(tmp_path, "rank", pid)
    found = Records(str(tmp_path))
    first = [next(iter(found.new())).pid for _ in range(3)]
    rest = [record.pid for record in found.new()]
    assert (first, sorted(first + rest), list(found.new())) == ([10, 11, 2], list(range(2, 12)), [])
    written(tmp_path, "exit", 20)
    written(tmp_path, "launcher", 20)
    assert [record.kind for record in found.new()] == ["launcher", "exit"]
    written(tmp_path, "launcher", 21)
    assert list(found.new(seconds=-1.0)) == []
    assert [record.pid for record in found.new()] == [21]


def test_a_launcher_that_has_ended_and_ranks_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_records, "MOST_S", 60.0)
    for kind, pid in (("launcher", 4_194_305), ("exit", 4_194_305), ("rank", 4_194_306)):  # no pid is as large
        written(tmp_path, kind, pid)
    found = rank_records.Recorded(str(tmp_path))
    found.look()
    assert found.launchers() == [{"name": "torchrun", "pid": 4_194_305, "argv": ["torchrun", "--token", "***"], "alive": False, "ended": 3}]
    assert found.of_ranks([4_194_306], {4_194_306: Identity(1, 1)}) == {}
