"""A running job is asked how it stands and told to save, by the commands that people type in its containers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import companions
import helpers
import pytest
from companions import Asked

from ranklaunch.control.desk import Desk
from ranklaunch.control.server import MOST_ASKED, SocketServer
from ranklaunch.control.stops import Stops
from ranklaunch.entrypoints import save
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job, Starter, attempts, codes
from testbench.judges import formats
from testbench.places import child
from testbench.waiting import DEADLINE_S, free_port, sleep_until

needs_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


def asked(*words: object) -> subprocess.CompletedProcess[str]:
    """A command, typed in a container of the job."""
    argv = [sys.executable, "-m", "ranklaunch", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def opened(log_dir: Path, node: int = 0) -> Path:
    """The socket, once it is there."""
    found = lambda: [path / f"node_{node}.sock" for path in attempts(log_dir) if (path / f"node_{node}.sock").exists()]  # noqa: E731
    return Path(sleep_until(found, f"there is no socket below {log_dir}")[0])


def status(log_dir: Path) -> dict[str, Any]:
    found = asked("status", log_dir, "--format", "json")
    assert found.returncode == 0, found.stderr
    formats.check("status", json.loads(found.stdout))
    return dict(json.loads(found.stdout))


def two_nodes(starter: Starter, *words: object, **settings: object) -> list[Job]:
    return [node_of_two(starter, node, port, *words, **settings) for port in [free_port()] for node in (0, 1)]


def node_of_two(starter: Starter, node: int, port: int, *words: object, grace_s: int = 2, **settings: object) -> Job:
    log_dir = starter.folder / f"node_{node}"
    shape = ("--hosts", "127.0.0.1,127.0.0.2", "--node", node, "--slots", 1, "--muster-port", port, "--method", "spawn")
    env = {f"RANKLAUNCH_{name.upper()}": str(value) for name, value in settings.items()}
    given = ("--python", sys.executable, "--log-dir", log_dir, "--grace-s", grace_s, *shape)
    return starter.command("run", *given, "--", *words, env=env, log_dir=log_dir)


def test_any_node_tells_of_every_rank_of_all_and_of_their_stacks(as_process: Starter) -> None:
    """And the job goes on."""
    jobs = two_nodes(as_process, child("saves_on_term.py"), stacks="on")
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    found = status(jobs[1].log_dir)
    assert (found["schema"], found["node"], found["method"]) == ("ranklaunch.status/1", 1, "spawn")
    assert [(node["node"], node["phase"]) for node in found["nodes"]] == [(0, "running"), (1, "running")]
    assert [(rank["rank"], rank["node"], rank["state"], rank["output_bytes"]) for rank in found["ranks"]] == [
        (0, 0, "sleeping", 6), (1, 1, "sleeping", 6),
    ]  # fmt: skip
    assert all(os.path.exists(f"/proc/{rank['pid']}") for rank in found["ranks"])
    stacks = asked("stacks", jobs[1].log_dir, "--all-nodes").stdout
    assert (stacks.count("ranks 0-1 (state S):"), stacks.count("saves_on_term.py")) == (1, 1)
    assert re.search(r"^ +1 +1 +[0-9]+ +sleeping ", asked("status", jobs[0].log_dir).stdout, re.MULTILINE)
    jobs[0].send(signal.SIGTERM)
    assert codes(jobs) == [143, 143]
    assert not [path for job in jobs for path in job.log_dir.glob("**/*.sock")]


def test_whoever_asks_in_the_first_second_waits_for_the_answer(as_process: Starter) -> None:
    job = as_process.spawn(1, child("saves_on_term.py"))
    job.out.wait_for("ready", 1)
    assert [rank["rank"] for rank in status(job.log_dir)["ranks"]] == [0]
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_job_that_lasts_only_after_its_restart_is_asked_too(as_process: Starter) -> None:
    """Its first round is over before there is a socket."""
    program = as_process.folder / "train.py"
    program.write_text('import os, time\nif os.environ["RANKLAUNCH_RESTART_COUNT"] == "0":\n    os._exit(3)\ntime.sleep(600)\n')
    job = as_process.spawn(1, program, env={"RANKLAUNCH_MAX_RESTARTS": "1"})
    sleep_until(lambda: list(job.log_dir.rglob("node_0.sock")), "there is no socket")
    assert [rank["rank"] for rank in status(job.log_dir)["ranks"]] == [0]
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_rank_that_floods_its_output_keeps_nobody_from_asking(as_process: Starter) -> None:
    """Who is asked goes round within 0.8 s, or says what it knew before: here, twice, what it has just seen."""
    job = as_process.spawn(1, child("floods.py"))
    opened(job.log_dir)
    first, second = (status(job.log_dir) for _ in range(2))
    assert [answer["nodes"][0]["age_s"] for answer in (first, second)] == [0.0, 0.0]
    assert 0 < first["ranks"][0]["output_bytes"] < second["ranks"][0]["output_bytes"]
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_one_node_that_is_warned_asks_the_ranks_of_all_to_save(as_process: Starter) -> None:
    """And a process that does not catch the signal is not sent it. What a stop did, each node knows of its own ranks."""
    jobs = two_nodes(as_process, child("signals.py"), save_signal="USR2", save_file=as_process.folder / "save")
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    jobs[1].send(signal.SIGUSR1)
    for job in jobs:
        job.out.wait_for("SIGUSR2", 1)
    assert (as_process.folder / "save").exists()
    again = asked("save", jobs[0].log_dir)
    assert (again.returncode, again.stdout.count("asked a moment ago")) == (0, 2)
    assert all("SIGUSR1" not in job.out.text for job in jobs)
    jobs[0].send(signal.SIGTERM)  # which they catch, and go on
    codes(jobs)
    stops = [checked_verdict(job.of_attempt(1) / "verdict.json")["stop"] for job in jobs]
    found = [(stop["signal"], stop["caught_by"], stop["killed"] + stop["ended_by_themselves"]) for stop in stops]
    assert found == [("SIGTERM", [0], [0]), ("SIGTERM", [1], [1])]
    assert [(job.of_attempt(1) / f"stop_clock_{node}").exists() for node, job in enumerate(jobs)] == [True, False]


def test_nodes_that_do_not_answer_in_time_are_named(tmp_path: Path) -> None:
    attempt = companions.attempt(helpers.plan({"RANKLAUNCH_HOSTS": "a,b,c,d", "RANKLAUNCH_NODE": "0"}, method="spawn"), tmp_path)
    asked = Asked(lambda: attempt, lambda: ("running", ""), dict, lambda number: (False, []), companions.nobody, companions.nobody)
    with contextlib.closing(Desk(asked, attempt.loop)) as desk:
        answer = desk._asked_to_save({0: {"again": True, "stop_in_s": 5.0}, 2: {"again": True}})
    assert list(save._text(answer)) == [
        "node 0: its ranks were asked a moment ago",
        "node 2: its ranks were asked a moment ago",
        "nodes 1,3: no answer yet: it is not known whether the ranks there were asked",
        "the job is stopped in 5 s",
    ]


def test_a_rank_that_would_die_of_the_signal_is_named(as_process: Starter) -> None:
    job = as_process.spawn(2, child("sleeper.py"), env={"RANKLAUNCH_SAVE_SIGNAL": "USR1"})
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    found = asked("save", job.log_dir)
    deaf = "node 0: its ranks could not be asked to save: no process of rank 0, rank 1 catches SIGUSR1, so it would end them\n"
    assert (found.returncode, found.stdout) == (75, deaf)
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_deadline_becomes_a_stop_in_time_and_the_trainers_marker_tells_that_it_has_saved(as_process: Starter) -> None:
    marker = as_process.folder / "latest"
    marker.write_text("1000")  # of before, and the same number again
    job = as_process.spawn(2, child("saves_on_term.py"), "--writes", marker, env={"RANKLAUNCH_PROGRESS_FILE": f"{as_process.folder}/lat*"})
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    assert "the job is stopped in 1 s" in asked("save", job.log_dir, "--deadline", 9).stdout
    assert job.end() == 143
    assert job.out.text.count("saved") == 2
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert {name: stop[name] for name in ("signal", "caught_by", "ended_by_themselves", "killed", "saved")} == {
        "signal": "SIGTERM", "caught_by": [0, 1], "ended_by_themselves": [0, 1], "killed": [], "saved": "yes",
    }  # fmt: skip


@pytest.mark.parametrize(("end", "saved", "code"), [("sys.exit(143)", "yes", None), ("raise OSError(28, 'disk is full')", "unknown", 1)])
def test_a_folder_of_a_rank_that_fails_to_save_is_no_checkpoint(as_process: Starter, end: str, saved: str, code: int | None) -> None:
    program = as_process.folder / "train.py"
    program.write_text(
        "import os, signal, sys, time\ndef save(*_):\n    os.makedirs('checkpoint-1')\n    time.sleep(0.3)\n    "
        f"{end}\nsignal.signal(15, save)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    job = as_process.spawn(1, program, env={"RANKLAUNCH_PROGRESS_FILE": f"{as_process.folder}/checkpoint-*"})
    job.out.wait_for("ready", 1)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    verdict = checked_verdict(job.of_attempt(1) / "verdict.json")
    assert verdict["stop"]["saved"] == saved
    note = [f"rank 0 failed with exit code {code} while it was being stopped: see rank_0.log"] if code else []
    assert verdict["notes"] == note


def test_ranks_that_go_on_are_killed_before_a_deadline_on_all_nodes(as_process: Starter) -> None:
    """Whatever is left of a grace that would last for longer than this test may. They have heard that they should save."""
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(10, print); print('ready', flush=True); time.sleep(600)"
    )
    jobs = two_nodes(as_process, sys.executable, "-c", program, grace_s=10 * int(DEADLINE_S), save_signal="USR1")
    for job in jobs:
        job.out.wait_for("ready", 1)
        opened(job.log_dir, jobs.index(job))
    assert "the job is stopped in 1 s" in asked("save", jobs[1].log_dir, "--deadline", 4).stdout
    assert codes(jobs) == [143, 143]
    for node, job in enumerate(jobs):
        assert re.search(r"1 process left after the grace of [01](?:\.[0-9])? s: SIGKILL", job.err.text)
        stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
        assert (stop["caught_by"], stop["killed"], stop["saved"]) == ([node], [node], "unknown")


@pytest.mark.parametrize(
    ("method", "slots"),
    [("pytorch", 1), ("pytorch", 2), pytest.param("mpirun", 2, marks=[pytest.mark.launchers, needs_mpirun])],
)
def test_ranks_that_their_launcher_does_not_name_are_found(as_process: Starter, method: str, slots: int) -> None:
    """Where a program starts them itself and none is named by its environment, it stands for all."""
    named = 1 if method == "pytorch" else slots
    options = ("--method", method, "--slots", slots)
    job = as_process.run(child("saves_on_term.py"), options=options, env={"RANKLAUNCH_STACKS": "on"}, grace_s=10)
    job.out.wait_for("ready", named)
    opened(job.log_dir)
    ranks = json.loads(asked("status", job.log_dir, "--format", "json").stdout)["ranks"]
    known = [rank["rank"] for rank in ranks if rank["pid"]]
    assert (known, {rank["state"] for rank in ranks if rank["pid"]}) == (list(range(named)), {"sleeping"})
    assert "saves_on_term.py" in asked("stacks", job.log_dir).stdout
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert (stop["caught_by"], stop["ended_by_themselves"], stop["killed"]) == (known, known, [])


@pytest.mark.launchers
@needs_mpirun
def test_ranks_of_mpirun_that_outlast_the_grace_were_killed(as_process: Starter) -> None:
    job = as_process.run(child("ignores_term.py"), options=("--method", "mpirun", "--slots", 2), grace_s=1)
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert (stop["ended_by_themselves"], stop["killed"]) == ([], [0, 1])


SAVES_A_FOLDER = """
import os, signal, sys, time
def save(*_):
    os.mkdir(sys.argv[1])
    time.sleep(float(sys.argv[2]))
    os.mkdir(sys.argv[1] + "/complete")
    os._exit(0)
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.launchers
@needs_mpirun
@pytest.mark.parametrize(("takes_s", "is_whole"), [(2.5, True), (600, False)])
def test_a_rank_of_mpirun_that_saves_has_half_of_the_grace_before_others_die(as_process: Starter, takes_s: float, is_whole: bool) -> None:
    """mpirun kills it a second after it has seen the other die of SIGTERM, and says of neither how it has ended."""
    folder = as_process.folder / "checkpoint-20"
    words, env = (SAVES_A_FOLDER, folder, takes_s), {"RANKLAUNCH_PROGRESS_FILE": f"{as_process.folder}/checkpoint-*"}
    job = as_process.run(sys.executable, "-c", *words, options=("--method", "mpirun", "--slots", 2), env=env, grace_s=12)
    job.out.wait_for("ready", 2)
    opened(job.log_dir)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    known = [stop[name] for name in ("caught_by", "ended_by_themselves", "killed", "saved")]
    assert (known, folder.exists(), (folder / "complete").exists()) == ([[0], [], [], "unknown"], True, is_whole)


@pytest.mark.parametrize("hears", [True, False])
def test_a_program_behind_a_wrapper_has_heard_a_stop_request(as_process: Starter, hears: bool) -> None:
    """The wrapper dies of it, and the program is told as what it has left. Workers of a rank's own are not meant."""
    wrapper = "import subprocess, sys; subprocess.call(sys.argv[1:])"
    forks = "import os, signal; os.fork() or signal.signal(15, lambda *_: None); print('ready', flush=True); signal.pause()"
    words = (wrapper, sys.executable, child("saves_on_term.py")) if hears else (forks,)
    job = as_process.spawn(1, sys.executable, "-c", *words, grace_s=5)
    job.out.wait_for("ready", 1 if hears else 2)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert (stop["caught_by"], stop["saved"], "saved" in job.out.text) == (([0], "unknown", True) if hears else ([], "no", False))


def test_whoever_asks_for_stacks_hears_why_there_are_none(as_process: Starter) -> None:
    job = as_process.spawn(2, child("sleeper.py"), grace_s=5)
    job.out.wait_for("ready", 2)
    folder = opened(job.log_dir).parent
    (folder / "evidence").write_text("not a folder")
    for words in ((), ("--all-nodes",)):
        found = asked("stacks", job.log_dir, *words)
        assert (found.returncode, found.stdout) == (75, "")
        assert "node 0 could collect no evidence: Not a directory" in found.stderr
    (folder / "evidence").unlink()
    job.err.wait_for("no evidence can be taken: Not a directory", 2)
    (folder / "evidence" / "node_0" / "3" / "summary.json").mkdir(parents=True)
    assert asked("stacks", job.log_dir).returncode == 0
    job.err.wait_for("evidence/node_0/3; some files could not be written: ")
    job.send(signal.SIGTERM)
    assert job.end() == 143


def test_a_stop_that_nobody_heard_has_saved_nothing_and_its_clock_has_an_end(as_process: Starter) -> None:
    job = as_process.spawn(1, child("ignores_term.py"), options=("--grace-s", 2))
    job.out.wait_for("ready", 1)
    job.send(signal.SIGTERM)
    assert job.end() == 143
    stop = checked_verdict(job.of_attempt(1) / "verdict.json")["stop"]
    assert (stop["caught_by"], stop["killed"], stop["saved"]) == ([], [0], "no")
    assert re.fullmatch(r"SIGTERM 2\n\.+\nended\n", (job.of_attempt(1) / "stop_clock_0").read_text())


@pytest.mark.parametrize("question", [b"", b"x\n", b"[]\n", b"[" * 50_000 + b"\n", b'{"do": []}\n', b"x" * (2 * MOST_ASKED), b'{"do": "x"'])
def test_whatever_comes_the_counter_answers_the_next(question: bytes, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 50)  # longer than the path of a socket may be
    folder.mkdir()
    loop = Loop()
    counter = SocketServer(str(folder), "node_0.sock", loop, lambda question, answer: answer({"heard": question.get("do")}))
    assert (folder / "node_0.sock").stat().st_mode & 0o777 == 0o600
    strange = guest(folder)
    try:
        strange.sendall(question)
    except OSError:  # it had enough
        pass
    asks = guest(folder)
    asks.sendall(b'{"do": "it"}\n')
    said = b""
    while b"\n" not in said:
        loop.step(0.1)
        try:
            said += asks.recv(1000)
        except BlockingIOError:
            pass
    assert json.loads(said) == {"heard": "it"}
    counter.close()
    strange.close()
    asks.close()
    assert not list(folder.iterdir())


def guest(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    fd = os.open(folder, os.O_PATH)
    connection.connect(f"/proc/self/fd/{fd}/node_0.sock")
    os.close(fd)
    connection.setblocking(False)
    return connection


def own_rank(folder: Path) -> Attempt:
    """An attempt whose rank is this process, which catches SIGINT, and not SIGUSR2."""
    own = tree.identify(os.getpid())
    return companions.attempt(helpers.plan({}), folder, ranks=lambda: {0: own})


def test_ranks_that_whoever_signals_all_has_told_had_a_way_to_hear_it(tmp_path: Path) -> None:
    """Their launcher is gone, and nobody here tells them."""
    for number, caught in ((signal.SIGINT, [0]), (signal.SIGUSR2, [])):
        stops = Stops(own_rank(tmp_path))
        stops.on_stop_of_another(number)
        stops.stopped()
        assert stops.facts()["stop"]["caught_by"] == caught


@pytest.mark.parametrize(("ways", "caught"), [(("SIGINT",), [0]), (("SIGUSR2",), []), (("touching /x",), [0]), ((), [])])
def test_ranks_that_were_asked_to_save_before_a_deadline_have_heard_of_the_stop(
    tmp_path: Path, ways: tuple[str, ...], caught: list[int]
) -> None:
    stops = Stops(own_rank(tmp_path))
    stops.on_deadline(ways)
    stops.on_stop_of_another(signal.SIGUSR2)
    stops.stopped()
    stop = stops.facts()["stop"]
    assert (stop["caught_by"], stop["saved"]) == (caught, "unknown" if caught else "no")
