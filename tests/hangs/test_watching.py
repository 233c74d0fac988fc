"""A running job looked at: what a look at real processes sees, tools that do not answer, and what becomes of an alarm on one node, whose
ranks and clock are values but for one real job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import companions
import helpers
import pytest

from ranklaunch.ends.model import RECORD_SCHEMA
from ranklaunch.hangs import monitor
from ranklaunch.hangs import rank_lines as heard_
from ranklaunch.hangs import uncaught as uncaught_
from ranklaunch.hangs.devices import Tool
from ranklaunch.hangs.expect import parse
from ranklaunch.hangs.frames import Rule
from ranklaunch.hangs.monitor import Watching
from ranklaunch.hangs.rank_lines import Heard
from ranklaunch.hangs.sample import Look, Seen
from ranklaunch.hangs.sampler import Sampler
from ranklaunch.hangs.uncaught import Uncaught
from ranklaunch.output.pipe import Output
from ranklaunch.supervise import running
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Companion
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.verdict.model import Ending
from testbench.jobs.ends import checked_verdict
from testbench.jobs.job import Job as StartedJob
from testbench.jobs.job import Starter
from testbench.places import child
from testbench.waiting import free_port, sleep_until

pytestmark = pytest.mark.processes

DEADLINE_S = 60.0
Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started() -> Iterator[Started]:
    """Programs of sh that have said that they are ready."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, **env: str) -> subprocess.Popen[str]:
        words = ["sh", "-c", f"{code}"]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **env}, start_new_session=True
        )
        processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass


def looked(sampler: Sampler, *known: subprocess.Popen[str], most: int = 0) -> dict[int | None, Look]:
    return sampler.look({rank: tree.identify(process.pid) for rank, process in enumerate(known)}, most, [], {})


def test_what_a_tree_spends_is_its_ranks(started: Started) -> None:
    """Its children's too, and what those that have ended had spent by the last look."""
    rank = started("echo ready; while :; do head -c 200000 /dev/zero | tail -c 1; done > /dev/null")
    sampler = Sampler()
    first = looked(sampler, rank)[0]
    assert (first.io, first.cpu_s) == (0, 0.0)

    def has_moved() -> bool:
        look = looked(sampler, rank)[0]
        return bool(look.io and look.io > 1 << 20 and look.cpu_s)

    sleep_until(has_moved, "I/O and CPU of its children", DEADLINE_S)


def test_states_are_those_of_who_does_the_work(started: Started) -> None:
    """Below a shell that waits, the one that it waits for."""
    rank = started("sh -c 'echo ready; kill -STOP $$'; true")
    sleep_until(lambda: looked(Sampler(), rank)[0].state == "T", "state T", DEADLINE_S)
    os.killpg(rank.pid, signal.SIGKILL)
    rank.wait()
    assert looked(Sampler(), rank)[0].state == ""


def test_ranks_that_nobody_tells_of_are_known_by_their_environment(started: Started) -> None:
    launcher = started(
        "env OMPI_COMM_WORLD_RANK=6 sh -c 'sleep 600; true' & env OMPI_COMM_WORLD_RANK=7 sh -c 'sleep 600; true' & echo ready; wait",
        RANK="no",
    )
    found = sleep_until(lambda: len(found := looked(Sampler(), most=2)) == 2 and found, "two ranks", DEADLINE_S)
    assert sorted(found) == [6, 7]
    assert launcher.pid not in {look.process.pid for look in found.values()}


@pytest.fixture
def tool(tmp_path: Path) -> Callable[[str], list[str]]:
    """What a program that stands in for nvidia-smi has said in so many seconds."""

    def heard(code: str) -> list[str]:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)
        loop, said = Loop(), []
        asked = Tool(("nvidia-smi", "-L"), {"PATH": f":{tmp_path}:{os.environ['PATH']}", "IS": "its own"}, loop, said.append)
        asked.ask()
        asked.ask()  # one is enough
        child_ = asked._child
        assert child_
        loop.run_until(lambda: asked._child is None, loop.clock() + DEADLINE_S)
        assert asked._child is None
        os.waitpid(child_.pid, 0)
        return said

    return heard


def test_a_tool_that_answers(tool: Callable[[str], list[str]]) -> None:
    assert tool('echo "$@" is $IS; echo trouble >&2') == ["-L is its own\n"]


def test_a_tool_that_does_not_answer_is_ended(tool: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranklaunch.hangs.devices.LIMIT_S", 0.2)
    assert tool("echo half; exec sleep 600") == []


def test_what_ranks_have_said_between_two_looks(tmp_path: Path) -> None:
    clock = [0.0]
    output = Output((), "", lambda *lines: None, lambda: clock[0], lambda text: None)
    heard = Heard(parse(r"step \d+ every 60s; loss=(\S+) is number; done by 9s"))
    for at in range(1, 6):
        clock[0] = at
        begun = b"st" if at == 1 else b""
        output.feed(begun + b"ep %d loss=%s\nst" % (at, b"0.5" if at < 4 else b"nan"))
        heard.look({3: output}, clock[0])
    clock[0] = 20.0
    sample = heard.add(Seen(3, "S", 0, None, None, full=False, traced=False, started=False))
    assert (sample.step, sample.printed) == (3, True)
    every, number, by = heard.rules(20.0)
    assert (every.age_s, by.age_s) == (15.0, None)
    assert (number.wrong, number.rank) == ("nan", 3)


def heard_of(rules: str, *looks: bytes, every: float = 10.0) -> tuple[Rule, ...]:
    """Rules after several looks at what rank 3 has written."""
    clock = [0.0]
    output = Output((), "", lambda *lines: None, lambda: clock[0], lambda text: None)
    heard = Heard(parse(rules))
    for data in looks:
        output.feed(data)
        heard.look({3: output}, clock[0])
        clock[0] += every
    return heard.rules(clock[0])


def test_values_of_several_lines_of_one_look() -> None:
    spike, none = Rule(10.0, "57.3", 3), Rule()
    assert heard_of(r"loss (\S+) < 20", b"loss 57.3\nloss 2.5\nlo") == (spike,)
    assert heard_of(r"loss (\S+) < 20", b"loss 2.5\nloss 57", b".3, lr 1\n") == (spike,)
    assert heard_of(r"loss=([^]]+)\] < 20", b" 1/9 [loss=2.5]\r 2/9 [loss=57.3]\r 3/9 [loss=2.5]\r") == (spike,)
    assert heard_of(r"loss (\S+) < 20", b"loss 57.3") == (none,)  # more digits may come
    assert heard_of(r"loss (\S+) < 20", b" " * 2000 + b"loss 57.3\n") == (none,)
    assert heard_of(r"loss (\S+) < 20; n (\d+) > 1; n is number", b"n 1\n" * 9)[1].wrong == "1"


def test_times_of_values_are_those_of_the_output() -> None:
    slow = b"tflops 150\n"
    assert heard_of(r"tflops (\S+) > 200 for 20s", slow, slow, b"", slow) == (Rule(40.0, "150", 3),)
    assert heard_of(r"tflops (\S+) > 200 for 20s", slow * 9, slow, b"tflops 250\n" + slow, slow) == (Rule(),)
    assert heard_of(r"tflops (\S+) > 0.9x median for 20s", b"tflops 200\n" * 50, *[slow] * 3) == (Rule(30.0, "150", 3, 180.0),)


def test_values_are_tried_for_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard_, "MOST_CPU_S", 0.1)
    assert heard_of(r"(a+)+$ < 20; loss (\S+) < 20", b"a" * 60 + b"!\n", b"loss 57.3\n")[1].wrong == "57.3"


def test_a_rule_that_takes_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals come through all the same, and the alarm itself does not reach whoever waits for them."""
    monkeypatch.setattr(heard_, "MOST_CPU_S", 0.1)
    readable, writable = os.pipe2(os.O_NONBLOCK)
    before, handler = signal.set_wakeup_fd(writable), signal.signal(signal.SIGUSR1, lambda *_: None)
    killed = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
    killed.start()
    output = Output((), "", lambda *lines: None, lambda: 5.0, lambda text: None)
    heard = Heard(parse("(a+)+$ every 60s; loss=(.*) is number"))
    for _ in range(3):
        output.feed(b"a" * 60 + b"!\nloss=nan\n")
        heard.look({0: output}, 5.0)
    killed.join()
    signal.signal(signal.SIGUSR1, handler)
    signal.set_wakeup_fd(before)
    assert heard.given_up == {0: "(a+)+$ every 60s"}
    assert (heard.rules(500.0)[0].age_s, heard.rules(500.0)[1].wrong) == (0.0, "nan")
    assert os.read(readable, 9) == bytes([signal.SIGUSR1])
    os.close(readable), os.close(writable)


def test_who_writes_that_it_waits_says_nothing() -> None:
    """As TensorFlow's sessions do each ten seconds, for ever."""
    output = Output((), "", lambda *lines: None, lambda: 5.0, lambda text: None)
    heard = Heard(())
    waits = b"I0000 CreateSession still waiting for response from worker: /job:worker/replica:0/task:0\n"
    said = [(b"step 1\n", 7), (waits, 7), (waits * 2, 7), (waits + b"step 2\n", 7 + len(waits) + 7), (b"...", 17 + len(waits))]
    for data, counted in said:
        output.feed(data)
        assert heard.look({0: output}, 5.0)[0] == counted


def recorded(folder: Path, where: str, message: str, frames: int = 1, pid: int = 77) -> None:
    """Write what a rank records: its head, and an exception."""
    common = {"schema": RECORD_SCHEMA, "node": 0, "host": "h", "pid": pid, "start": 5, "time": 1.0, "monotonic": 5.0}
    top = {"pid": pid, "start": 5}
    parent = {"pid": 1, "start": 1, "argv": []}
    head = {**common, "record": "rank", "top": top, "variables": {"RANK": "3"}, "argv": ["python"], "parent": parent, "launcher": ""}
    of = [{"file": "/job/train.py", "line": number, "function": f"f{number}"} for number in range(frames)]
    chain = [{"type": "ValueError", "message": message, "link": "", "frames": of, "library": None}]
    raised = {**common, "record": "exception", "from": where, "thread": "Thread-1", "number": 1, "chain": chain, "top": top}
    (folder / f"rank-0-{pid}-5.json").write_text(json.dumps(head))
    (folder / f"exception-0-{pid}-5-1.json").write_text(json.dumps(raised))


RANKS = {3: tree.Identity(77, 5)}


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine reads no record in the time of one look; the next look reads on."""
    monkeypatch.setattr(uncaught_, "MOST_S", 30.0)


@pytest.mark.parametrize(("where", "sure"), [("main", True), ("thread", False)])
def test_an_exception_that_a_living_rank_recorded(tmp_path: Path, where: str, sure: bool) -> None:
    uncaught = Uncaught(str(tmp_path))
    assert uncaught.look(RANKS, 6.0) == []
    recorded(tmp_path, where, "label 1003")
    (raised,) = uncaught.look(RANKS, 65.0)
    assert (raised.rank, raised.silent_s, raised.sure, raised.line, raised.pid) == (3, 60.0, sure, "ValueError: label 1003", 77)
    assert uncaught.look({}, 66.0) == []  # it has ended


def test_an_exception_of_a_helper_says_nothing_of_its_rank(tmp_path: Path) -> None:
    recorded(tmp_path, "main", "label 1003")
    (tmp_path / "rank-0-77-5.json").unlink()
    assert Uncaught(str(tmp_path)).look(RANKS, 9.0) == []


def test_of_a_long_traceback_the_last_whole_lines_are_sent(tmp_path: Path) -> None:
    recorded(tmp_path, "main", "label 1003", frames=60)
    (raised,) = Uncaught(str(tmp_path)).look(RANKS, 9.0)
    first, *others, last = raised.traceback.splitlines()
    assert (first, last, len(raised.traceback) <= 1000) == ("Traceback (most recent call last):", "ValueError: label 1003", True)
    assert all(line.startswith('  File "/job/train.py", line ') for line in others)


def test_no_secret_of_a_traceback_is_sent(tmp_path: Path) -> None:
    recorded(tmp_path, "main", "api_key='s3cr3t-of-mine'")
    (raised,) = Uncaught(str(tmp_path)).look(RANKS, 9.0)
    assert "ValueError: api_key=" in raised.traceback
    assert "s3cr3t" not in raised.traceback + raised.line


def test_of_a_flood_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    output = Output((), "", lambda *lines: None, lambda: 5.0, lambda text: None)
    heard = Heard(parse("step every 60s"))
    output.feed(b"x" * 79 + b"\n" * 10)
    output.feed((b"x" * 79 + b"\n") * 1000)
    heard.look({0: output}, 5.0)
    assert heard.rules(6.0)[0].age_s == 1.0


def test_an_alarm_is_said_and_taken_back_and_the_job_goes_on(as_process: Starter) -> None:
    job = as_process.spawn(
        2, child("hangs.py"), env={"WHAT": "SIGSTOP", "WHO": "1", "RANKLAUNCH_HANG_S": "2", "STAR_PORT": str(free_port())},
    )  # fmt: skip
    sleep_until(lambda: "evidence taken" in job.err.text, lambda: job.err.text, DEADLINE_S)
    stopped = next(line["pid"] for line in job.events if line["event"] == "spawn" and line["rank"] == 1)
    os.kill(stopped, signal.SIGCONT)
    assert job.end() == 0
    assert "rank 1: its process is stopped (state T)" in job.err.text
    assert "it moves again" in job.err.text
    assert "hang" not in job.verdict


def told(job: StartedJob, *words: str) -> str:
    """Output of a command that asks a running job."""
    command = [sys.executable, "-m", "ranklaunch", *words, str(job.log_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout


def test_status_report_and_stacks_show_the_present(as_process: Starter) -> None:
    """Before the alarm, at it, and during a stop that a rank ignores."""
    env = {"WHAT": "sleeps for ever", "WHO": "1", "RANKLAUNCH_HANG_S": "20", "STAR_PORT": str(free_port())}
    job = as_process.spawn(2, child("hangs.py"), env=env, grace_s=20)
    sleep_until(lambda: "hang alarm at 20 s" in job.err.text, lambda: job.err.text, DEADLINE_S)
    assert re.search(r"\n  silent \d+ s; hang alarm at 20 s \(RANKLAUNCH_HANG_S\)\n", told(job, "status"))
    assert " before this report: it still runs, or all of it was killed" in told(job, "report")
    sleep_until(lambda: "rank 1: sleeps at hangs.py" in job.err.text, lambda: job.err.text, DEADLINE_S)
    assert "; rank 1: its last step is 7, that of others 8" in told(job, "report")
    status = told(job, "status")
    assert re.search(r"\n  hang alarm, last sign of life \d+ s ago: the job hangs: .*; rank 1: its last step is 7", status), status
    assert "\n    rank 1: sleeps at hangs.py:" in status
    job.popen.send_signal(signal.SIGTERM)
    assert job.end() == 143


def test_stacks_during_a_stop(as_process: Starter) -> None:
    job = as_process.spawn(2, child("ignores_term.py"), grace_s=20)
    for rank in range(2):
        job.out.wait_for(f"[rank {rank}] ready")
    sleep_until(lambda: told(job, "status"), lambda: job.err.text, DEADLINE_S)
    job.popen.send_signal(signal.SIGTERM)
    sleep_until(lambda: "SIGTERM: stopping" in job.err.text, lambda: job.err.text, DEADLINE_S)
    assert "ranks 0-1 (state S):\n  " in told(job, "stacks")
    job.end()


def test_a_node_that_has_left_keeps_no_other_from_being_judged(as_process: Starter) -> None:
    """RANKLAUNCH_END_TIMEOUT_S is below RANKLAUNCH_HANG_S: node 1 has ended with 0 and left, and rank 0 hangs at its exit."""
    limits = {"RANKLAUNCH_FIRST_STEP_S": "20", "RANKLAUNCH_HANG_S": "6", "RANKLAUNCH_HANG": "stop"}
    env = {"SHAPE": "hangs_at_exit", "WHO": "0", "LONG": "1", **limits}
    options = ("--nodes", 2, "--slots", 1, "--method", "spawn", "--python", sys.executable, "--end-timeout-s", 3)
    job = as_process.command("simulate", *options, "--log-dir", as_process.folder / "logs", "--", child("lives.py"), env=env)
    assert job.end() == 75, job.err.text
    reason = checked_verdict(job.log_dir / "verdict.json")["reason"]
    assert "rank 0: it still runs, while others have ended, and it waits in no collective: hangs_at_exit at lives.py" in reason


@pytest.mark.parametrize(
    ("what", "mode", "code", "reason"),
    [
        ("raises", "stop", 1, "rank 1 on node 0 exited with code 1: ValueError: label 1003 out of range"),
        ("raises", "restart", 1, "rank 1 on node 0 exited with code 1: ValueError: label 1003 out of range"),
        ("loses a thread", "stop", 75, "an exception has ended a thread of it: ValueError: label 1003 out of range (RANKLAUNCH_HANG=stop)"),
    ],
)
def test_a_rank_that_waits_after_an_exception_is_to_blame_where_nobody_caught_it(
    as_process: Starter, what: str, mode: str, code: int, reason: str
) -> None:
    asked = {"RANKLAUNCH_HANG_S": "5", "RANKLAUNCH_HANG": mode, "RANKLAUNCH_MAX_RESTARTS": "1" if mode == "stop" else "0"}
    job = as_process.spawn(2, child("hangs.py"), env={**asked, "WHAT": what, "WHO": "1", "STAR_PORT": str(free_port())})
    assert job.end() == code
    verdict = job.verdict
    if mode == "stop":
        assert verdict["notes"][-1].startswith("not started again: RANKLAUNCH_HANG=stop ends a job that hangs; ")
    assert verdict["reason"].endswith(reason)
    assert [suspect["rank"] for suspect in verdict["hang"]["suspects"]] == [1]
    if code == 1:
        culprit = verdict["culprit"]
        assert (culprit["rank"], culprit["exit_code"], culprit["error"]["name"]) == (1, 1, "python-uncaught-exception")
        assert culprit["pid"] == next(line["pid"] for line in job.events if line["event"] == "spawn" and line["rank"] == 1)
        assert verdict["notes"][0].startswith(f"RANKLAUNCH_HANG={mode} has ended rank 1, which waited at its exit: the job hangs: for ")
        assert [victim["rank"] for victim in verdict["victims"]] == [0]
        assert verdict["failures"] == []
    else:
        assert verdict["culprit"] is None


LOSS = r"loss (\S+) < 20"


def exploding(who: int, hang: str = "stop", **env: str) -> dict[str, str]:
    return {"RANKLAUNCH_HANG": hang, "RANKLAUNCH_HANG_S": "5", "RANKLAUNCH_EXPECT": LOSS, "WHO": str(who), **env}


def test_a_loss_that_explodes_ends_the_job(as_process: Starter) -> None:
    job = as_process.spawn(2, child("explodes.py"), env=exploding(1))
    assert job.end() == 75, job.err.text
    verdict = job.verdict
    assert verdict["reason"].endswith(f"RANKLAUNCH_EXPECT: {LOSS}: rank 1 on node 0 wrote 5730.0 (RANKLAUNCH_HANG=stop)")
    assert (verdict["culprit"], verdict["hang"]["suspects"]) == (None, [])
    assert verdict["hang"]["signals"] == [f"RANKLAUNCH_EXPECT: {LOSS}: rank 1 on node 0 wrote 5730.0"]


def test_a_loss_that_explodes_on_another_node(as_process: Starter) -> None:
    options = ("--nodes", 2, "--slots", 2, "--method", "spawn", "--python", sys.executable, "--grace-s", 5)
    job = as_process.command("simulate", *options, "--log-dir", as_process.folder / "logs", "--", child("explodes.py"), env=exploding(3))
    assert job.end() == 75, job.err.text
    reason = f"RANKLAUNCH_EXPECT: {LOSS}: rank 3 on node 1 wrote 5730.0"
    assert reason in checked_verdict(job.log_dir / "verdict.json")["reason"]
    for node in range(2):
        events = (job.log_dir / f"node_{node}" / "attempt_1" / "events.jsonl").read_text().splitlines()
        assert [line["text"] for line in map(json.loads, events) if line["event"] == "hang"] == [reason]


def test_a_restart_in_place_begins_with_no_values(as_process: Starter) -> None:
    job = as_process.spawn(2, child("explodes.py"), env=exploding(1, "restart", RANKLAUNCH_MAX_RESTARTS="1"))
    assert job.end() == 0, job.err.text
    assert f"{LOSS}: rank 1 on node 0 wrote 5730.0 (RANKLAUNCH_HANG=restart); starting all ranks again" in job.err.text


# A job in this process


class Still:
    """Ranks that sleep, in place of what samples real ones."""

    process = tree.Identity(1 << 22, 0)

    def look(self, known: object, most: int, launchers: object, written: Mapping[int, int]) -> dict[int | None, Look]:
        return {rank: Look(self.process, "S", written.get(rank, 0), 0, 0.0, 0.0) for rank in range(most)}


class Taking(Companion):
    """Companion that takes evidence as long as the job says."""

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job = job

    @property
    def taking(self) -> bool:
        return self._job.taking

    def take(self, why: str, ends: bool) -> None:
        self._job.said.append(f"evidence: {why}")


class Job:
    """One node of it, whose ranks have done a step and sleep since. said: on the console. failed: by whom it was ended. now: by a clock
    that tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, **env: str) -> None:
        monkeypatch.setattr(monitor, "Sampler", Still)
        monkeypatch.setattr(monitor, "traffic", lambda: None)
        self.now = 0.0
        self.said: list[str] = []
        self.taking = False
        loop = self._loop = Loop(lambda: self.now)
        plan = self.plan = helpers.plan({"PATH": "", **env}, method="spawn")
        output = self.output = Output((), "", lambda *lines: None, loop.clock, self.said.append)
        output.feed(b"step: 1\nstep: 2\nstep: 3\n")
        self.attempt = companions.attempt(plan, folder / "attempt_1", loop, self.said.append)
        self.attempt.logs.by_rank = {0: output}
        self.attempt.companions.add(partial(Taking, self))
        self.watching = monitor.Watching(self.attempt)

    @property
    def failed(self) -> list[Ending]:
        return [self.attempt.ending] if self.attempt.ending else []

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until and not self.failed:
            self.now += self.plan.watch.look_s
            self._loop.step(0)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Job]:
    return lambda **env: Job(monkeypatch, tmp_path, **env)


def test_nobody_looks_where_that_is_not_wanted() -> None:
    plans = [helpers.plan({"RANKLAUNCH_HANG": mode}, method="spawn") for mode in ("off", "observe")]
    assert [Watching in [join for _, join, _ in running.later(plan)] for plan in plans] == [False, True]


@pytest.mark.parametrize(("use", "hangs"), [("0, 500, 90.0, 700.0, 0", True), ("99, 500, 650.0, 700.0, 40", False)])
def test_devices_are_asked_once_nothing_else_moves(job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, use: str, hangs: bool) -> None:
    """One that is at work keeps a job alive."""
    asked: list[float] = []

    class Answers:
        """nvidia-smi, at once."""

        def __init__(self, argv: object, env: object, loop: Loop, hear: Callable[[str], None]) -> None:
            self._clock, self._hear = loop.clock, hear

        def ask(self) -> None:
            asked.append(self._clock())
            self._hear(f"{use}\n")

    monkeypatch.setattr(monitor.devices, "Tool", Answers)
    watched = job(RANKLAUNCH_ACCELERATOR="gpu")
    watched.wait(30)
    watched.output.feed(b"step: 4\n")
    watched.wait(600)
    assert asked[0] == 120  # at the end of the first window without a word
    assert any("the job hangs" in line for line in watched.said) is hangs


def test_without_a_muster_each_node_judges_by_itself(job: Callable[..., Job]) -> None:
    """And ends, once evidence has been waited for."""
    hosts = {"RANKLAUNCH_HOSTS": "n0,n1", "RANKLAUNCH_NODE": "1", "RANKLAUNCH_MUSTER": "off"}
    watched = job(RANKLAUNCH_HANG="stop", RANKLAUNCH_HANG_S="100", **hosts)
    watched.wait(600)
    (ending,) = watched.failed
    assert (ending.outcome, ending.exit_code) == ("failed", 75)
    assert ending.judgement.reason.startswith("the job hangs: for 100 s nothing has moved on 1 rank (output, I/O, CPU)")
    assert [line for line in watched.said if line.startswith("evidence: ")]


@pytest.mark.parametrize("taking", [True, False])
def test_what_ranks_do_for_evidence_is_no_sign_of_life(job: Callable[..., Job], taking: bool) -> None:
    """As recorders of NCCL, which say that they dump what they have; and what comes shortly after that."""
    watched = job(RANKLAUNCH_HANG_S="100")
    while not any("the job hangs" in line for line in watched.said):
        watched.wait(10)
    watched.taking = taking
    watched.output.feed(b"ProcessGroupNCCL preparing to dump debug info.\n")
    watched.wait(10)
    watched.taking = False
    watched.output.feed(b"dumped\n")
    watched.wait(200)
    assert any("it moves again" in line for line in watched.said) is not taking
    assert sum(line.startswith("the job hangs") for line in watched.said) == 1 + (not taking)
    watched.output.feed(b"step: 4\n")
    watched.wait(40)
    assert "it moves again: output" in watched.said[-1]


def test_who_asks_for_evidence_again_and_again_puts_off_no_alarm(job: Callable[..., Job]) -> None:
    watched = job(RANKLAUNCH_HANG_S="100")
    for _ in range(20):
        watched.taking = True
        watched.wait(10)
        watched.taking = False
        watched.wait(50)
    assert any(line.startswith("the job hangs") for line in watched.said), watched.said


def test_a_launcher_is_no_rank_that_hangs(job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, launcher = Still.look, Look(Still.process, "S", 0, 0, 0.0, 0.0)
    monkeypatch.setattr(Still, "look", lambda *those: {**ranks(*those), None: launcher})
    watched = job(RANKLAUNCH_HANG_S="100", RANKLAUNCH_SLOTS="2")
    watched.wait(600)
    assert any("for 100 s nothing has moved on 2 ranks" in line for line in watched.said), watched.said


def test_ranks_that_have_ended_are_told_apart_from_those_that_hang(job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    watched = job(RANKLAUNCH_HANG_S="100", RANKLAUNCH_SLOTS="3")
    all_ranks = Still.look
    monkeypatch.setattr(Still, "look", lambda *those: {r: look for r, look in all_ranks(*those).items() if r == 0 or watched.now < 50})
    watched.wait(600)
    assert "the job hangs: for 100 s nothing has moved on 1 rank, and 2 have ended (output, I/O, CPU)" in watched.said, watched.said
    assert "rank 0: it still runs, while most others have ended" in watched.said, watched.said


@pytest.mark.parametrize("code", ["echo ready; while :; do sleep 600; done", "trap : TERM; echo ready; while :; do sleep 600; done"])
def test_that_a_stop_loses_work_is_said_once_after_the_first_step(
    job: Callable[..., Job], started: Started, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(Still, "process", tree.identify(started(code).pid))
    watched = job()
    watched.wait(200)
    said = 'no rank catches SIGTERM: a stop loses the work since the last checkpoint (see "Save at a stop" in docs/status.md)'
    assert watched.said.count(said) == ("trap" not in code)


def alarms(watched: Job) -> list[str]:
    return [line.partition(": ")[2] for line in watched.said if line.startswith("RANKLAUNCH_EXPECT")]


def test_a_broken_limit_fails_the_job_although_later_values_keep_it(job: Callable[..., Job]) -> None:
    watched = job(RANKLAUNCH_HANG="stop", RANKLAUNCH_HANG_S="5", RANKLAUNCH_EXPECT=LOSS)
    watched.output.feed(b"loss 57.3\n")
    for _ in range(40):
        watched.wait(0.5)
        watched.output.feed(b"loss 2.5\n")
    (ending,) = watched.failed
    assert (ending.exit_code, ending.hung) == (75, True)
    assert ending.judgement.reason == f"RANKLAUNCH_EXPECT: {LOSS}: rank 0 on node 0 wrote 57.3 (RANKLAUNCH_HANG=stop)"


def test_an_alarm_that_is_over_leaves_another_that_stands(job: Callable[..., Job]) -> None:
    watched = job(RANKLAUNCH_HANG_S="100", RANKLAUNCH_EXPECT=rf"{LOSS}; lr (\S+) is number")
    watched.output.feed(b"lr nan\nloss 57.3\n")
    for number in range(60):
        watched.wait(10)
        watched.output.feed(b"loss 2.5 of step %d\n" % number)
    assert alarms(watched) == [
        f"{LOSS}: rank 0 on node 0 wrote 57.3",
        r"lr (\S+) is number, but a line of rank 0 has 'nan'",
        f"{LOSS}: the limit is kept again",
    ]
    hang = watched.watching.facts()["hang"]
    assert hang["signals"] == [r"RANKLAUNCH_EXPECT: lr (\S+) is number, but a line of rank 0 has 'nan'"]


def test_a_job_hangs_while_a_rule_is_broken(job: Callable[..., Job]) -> None:
    watched = job(RANKLAUNCH_HANG_S="100", RANKLAUNCH_EXPECT=LOSS)
    watched.output.feed(b"loss 57.3\n")
    watched.wait(300)
    assert any("the job hangs" in line for line in watched.said)
    watched.output.feed(b"loss 58\n")
    watched.wait(100)
    assert "it moves again: output" in watched.said
    assert alarms(watched) == [f"{LOSS}: rank 0 on node 0 wrote 57.3"]
    assert watched.watching.facts()["hang"]["signals"] == [f"RANKLAUNCH_EXPECT: {LOSS}: rank 0 on node 0 wrote 57.3"]
