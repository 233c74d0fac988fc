"""Processes of another's that are watched: in which order they end, and how, for as long as their parent has not asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import helpers
import pytest

from ranklaunch.adapters.launchers import deepspeed, torchrun
from ranklaunch.adapters.launchers.shared.base import failed_with
from ranklaunch.plan.model import Process, RankLog, RankOutputs
from ranklaunch.processes.child_ranks import Announced, Below, ByFiles, Watched, Watcher
from ranklaunch.processes.children import LAUNCHER as IS_LAUNCHER
from ranklaunch.processes.children import SILENT_S, Child, End, Lone
from ranklaunch.processes.launchers import REPORT_S, Launchers
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from testbench.waiting import sleep_until

PATTERN = r"\bprocess (?P<pid>[0-9]+) spawned"
NUMBERS = range(4, 7)
# Starts processes, and asks how they ended when it is told to.
LAUNCHER = """
import signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # for those that it starts, from their first moment on
started = [subprocess.Popen([sys.executable, "-c", code]) for code in sys.argv[1:]]
for each in started:
    print(f"process {each.pid} spawned with command: {each.args}", flush=True)
for line in sys.stdin:
    print("asked", [each.wait() for each in started], flush=True)
"""
EXITS = "import signal, sys; signal.sigwait([signal.SIGUSR1]); sys.exit(3)"

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python was built without pidfd_open")

TORCHRUN, DEEPSPEED = (Process(name, (), "") for name in ("torchrun", "deepspeed"))


class Scene:
    def __init__(self) -> None:
        self.loop = Loop()
        self.told = False
        self.ends: list[int] = []
        self.ranks = Announced(Watcher(self.loop, lambda rank: self.ends.append(rank.rank), lambda: self.told), PATTERN, NUMBERS)
        self.popen = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *[EXITS] * len(NUMBERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.popen.stdout
        said = b"".join(self.popen.stdout.readline() for _ in NUMBERS)
        self.said = said
        self.pids = [int(line.split()[1]) for line in said.splitlines()]

    def until(self, ended: int) -> list[Watched]:
        timer = self.loop.after(60, lambda: pytest.fail("waited 60 s in vain"))
        self.loop.run_until(lambda: len(self.ranks.ended) >= ended)
        timer.cancel()
        return self.ranks.ended

    def kill(self, index: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[index], number)

    def ask(self) -> None:
        """Returns when all have been reaped."""
        assert self.popen.stdin
        assert self.popen.stdout
        self.popen.stdin.write(b"\n")
        self.popen.stdin.flush()
        assert self.popen.stdout.readline().startswith(b"asked")

    def close(self) -> None:
        for rank in self.ranks.alive:
            os.kill(rank.pid, signal.SIGKILL)
        self.popen.communicate(timeout=60)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.ranks.read(made.said)
    made.close()


def test_order_codes_and_signals(scene: Scene) -> None:
    scene.ranks.read(scene.said[:60])
    scene.ranks.read(scene.said)
    assert [rank.rank for rank in scene.ranks.alive] == [4, 5, 6]
    scene.kill(1)
    scene.until(1)
    scene.kill(2, signal.SIGUSR1)
    scene.until(2)
    assert scene.ends == [5, 6]
    first, second = scene.ranks.ended
    assert (first.pid, first.code, first.signal, first.failed) == (scene.pids[1], 137, signal.SIGKILL, True)
    assert (second.pid, second.code, second.signal, second.failed) == (scene.pids[2], 3, 0, True)
    assert [rank.rank for rank in scene.ranks.alive] == [4]
    assert scene.ranks.failed == [first, second]


def test_what_a_launcher_says_that_a_rank_has_started_is_not_of_these_ranks(scene: Scene) -> None:
    """As of an evaluation, into the output that they share, or of the others that it ends itself."""
    child = Child(DEEPSPEED, tree.identify(scene.popen.pid), IS_LAUNCHER, deepspeed.Deepspeed(DEEPSPEED))
    child.below = scene.ranks
    said = b"[2026-11-28 11:41:30,135] [%s] [launch.py:259:sigkill_handler] %s\n"
    of_another = said % (b"ERROR", b"['python', '-u', 'ev.py'] exits with return code = 3")
    assert child.says_failing(of_another)  # as far as is known by then
    scene.ranks.read(scene.said)
    assert not child.says_failing(of_another + said % (b"INFO", b"Killing subprocess 12"))
    assert child.says_failing(said % (b"INFO", b"Killing subprocess %d" % scene.pids[1]))
    scene.kill(1)
    scene.until(1)
    assert child.says_failing(of_another)


def test_whoever_was_told_has_not_failed(scene: Scene) -> None:
    scene.ranks.read(scene.said)
    scene.told = True
    scene.kill(0, signal.SIGTERM)
    (rank,) = scene.until(1)
    assert (rank.code, rank.signal, rank.failed) == (143, signal.SIGTERM, False)
    assert scene.ranks.failed == scene.ranks.unknown == []


def test_who_ends_as_told_after_another_was_told(scene: Scene) -> None:
    """By its launcher, which had heard of the other's end before we did."""
    scene.ranks.read(scene.said)
    scene.kill(0, signal.SIGTERM)
    scene.kill(1)
    sleep_until(lambda: all(tree.state(tree.identify(pid)) == "Z" for pid in scene.pids[:2]), "dead")
    scene.ranks.look()
    assert [(rank.rank, rank.failed) for rank in scene.ranks.ended] == [(5, True), (4, False)]


def test_who_ends_as_told_by_a_launcher_that_has_just_said_so(scene: Scene) -> None:
    """As one that somebody has told to end itself: what it says, and what becomes of that, may be seen at one time."""
    scene.ranks.read(scene.said)
    scene.kill(1, signal.SIGTERM)
    sleep_until(lambda: tree.state(tree.identify(scene.pids[1])) == "Z", "dead")
    child = Child(TORCHRUN, tree.identify(scene.popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN))
    child.below = scene.ranks
    assert child.says_failing(b"api.py:1028] Sending process %d closing signal SIGTERM\n" % scene.pids[1])
    assert [(rank.rank, rank.failed) for rank in scene.ranks.ended] == [(5, False)]


@pytest.mark.parametrize(("failing", "by_itself"), [(torchrun.CLOSING, False), (deepspeed.FAILING[0], True)])
def test_whom_a_launcher_names_while_it_lives_has_not_failed_by_itself(scene: Scene, failing: str, by_itself: bool) -> None:
    """Whatever its code: a program may save when it is told to end, and leave with one of its own. DeepSpeed names the dead too. What the
    launcher has written is read no later than that."""
    said = {
        torchrun.CLOSING: "Sending process {} closing signal SIGTERM\n",
        deepspeed.FAILING[0]: "[launch.py:1:sigkill_handler] Killing subprocess {}\n",
    }
    launcher = (torchrun.Torchrun if failing == torchrun.CLOSING else deepspeed.Deepspeed)(TORCHRUN)
    child = Child(TORCHRUN, tree.identify(scene.popen.pid), IS_LAUNCHER, launcher)
    child.reader = helpers.pipe_reader(b"")
    heard: list[bool] = []

    def hear() -> None:
        child.hear(lambda child: heard.append(child.says_failing(said[failing].format(scene.pids[2]).encode())))

    scene.ranks = Announced(Watcher(scene.loop, lambda rank: scene.ends.append(rank.rank), hear=hear), PATTERN, NUMBERS)
    child.below = scene.ranks
    scene.ranks.read(scene.said)
    scene.kill(2, signal.SIGUSR1)
    (rank,) = scene.until(1)
    assert (rank.code, rank.failed, heard) == (3, by_itself, [True])


def test_who_is_seen_while_its_launcher_is_heard_has_ended_after_that(scene: Scene) -> None:
    """Of one that has failed, the words about that are read: the launcher had ended the others by then."""
    scene.ranks = Announced(
        Watcher(scene.loop, lambda rank: scene.ends.append(rank.rank), hear=lambda: scene.ranks.look()), PATTERN, NUMBERS
    )
    scene.ranks.read(scene.said)
    scene.kill(2, signal.SIGUSR1)
    sleep_until(lambda: tree.state(tree.identify(scene.pids[2])) == "Z", "dead")
    scene.kill(0, signal.SIGTERM)
    sleep_until(lambda: tree.state(tree.identify(scene.pids[0])) == "Z", "dead")
    assert [(rank.rank, rank.failed) for rank in scene.until(2)] == [(6, True), (4, False)]


def test_what_a_launcher_says_of_a_rank_is_confirmed_by_how_they_ended(scene: Scene) -> None:
    """Else another one has said it, that a rank had started."""
    said = failed_with(3)

    def confirms() -> bool:
        return scene.ranks.confirmed(said, signalled=scene.told, has_failed=False) == said

    assert confirms()  # as far as is known by then
    scene.ranks.read(scene.said)
    assert not confirms()
    scene.told = True
    scene.kill(0, signal.SIGTERM)
    scene.until(1)
    assert not confirms()
    scene.told = False
    scene.kill(1)
    scene.until(2)
    assert confirms()


def test_a_parent_that_was_faster(scene: Scene) -> None:
    """Nobody knows how they ended then; that they did is known, whether they were watched by that time or not."""
    scene.ranks.read(scene.said.splitlines(keepends=True)[0])
    for index in range(3):
        scene.kill(index)
    scene.ask()
    scene.ranks.read(scene.said)
    scene.until(3)
    assert [(rank.rank, rank.code, rank.failed) for rank in sorted(scene.ranks.ended, key=lambda r: r.rank)] == [
        (4, None, False), (5, None, False), (6, None, False),
    ]  # fmt: skip
    assert len(scene.ranks.unknown) == 3


def test_a_look_at_once(scene: Scene) -> None:
    scene.ranks.read(scene.said)
    scene.kill(0)
    scene.until(1)
    scene.kill(2)
    while scene.ranks.alive[-1].rank == 6:
        scene.ranks.look()
    assert scene.ends == [4, 6]
    assert scene.ranks.ended[1].code == 137


def test_who_stands_between_a_launcher_and_its_ranks_is_halted_with_it() -> None:
    """It is who would kill them."""
    starts = "import subprocess, sys, time; started = [subprocess.Popen(sys.argv[1:])] if sys.argv[1:] else []; time.sleep(600)"
    popen = subprocess.Popen([sys.executable, "-c", starts, sys.executable, "-c", starts, sys.executable, "-c", starts])
    child = Child(DEEPSPEED, tree.identify(popen.pid), IS_LAUNCHER, deepspeed.Deepspeed(DEEPSPEED))
    (rank,) = sleep_until(lambda: tree.generation(popen.pid, 2), "a rank")
    (between,) = tree.generation(popen.pid, 1)
    child.hold()
    sleep_until(lambda: [tree.state(each) == "T" for each in (child.identity, between, rank)] == [True, True, False], "halted")
    child.go_on()
    sleep_until(lambda: not any(tree.state(each) == "T" for each in (child.identity, between)), "gone on")
    for each in (rank, between):
        tree.send(each, signal.SIGKILL)
    popen.kill()
    popen.wait(60)


def test_a_launcher_that_has_ended_is_not_halted() -> None:
    """The end of a rank that was killed with it may be seen later than its own, when its pid may be another process's."""
    popen = subprocess.Popen(["sleep", "600"])
    child = Child(TORCHRUN, tree.identify(popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN))
    popen.kill()
    popen.wait(60)
    child.end = End(signal.SIGKILL, 0.0, 0, (signal.SIGKILL,))
    child.hold()
    assert not child.held


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_launcher_that_has_told_all_is_not_waited_for_once_its_ranks_are_gone(ranks: int) -> None:
    """It would take a second or more to unload itself; what it does before its last word is complete, it does."""
    starts = f"import subprocess, sys, time; [subprocess.Popen(['sleep', '600']) for _ in range({ranks})]; time.sleep(600)"
    popen = subprocess.Popen([sys.executable, "-c", starts])
    child = Child(TORCHRUN, tree.identify(popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN))
    sleep_until(lambda: len(tree.generation(popen.pid, 1)) == ranks, "its ranks")
    launchers = Launchers(Mock(ending=None, children=Mock(running={popen.pid: child}), loop=Loop()))
    child.told.append(signal.SIGTERM)
    try:
        told = b"SignalException: Process %d got" % popen.pid
        for said, ends in ((told, False), (told + b" signal: 15\n", not ranks)):
            child.reader = helpers.pipe_reader(said)
            launchers.read(child)
            assert child.dismissed == ends
        assert not child.dismissed or popen.wait(60) == -signal.SIGKILL
    finally:
        for each in (*tree.generation(popen.pid, 1), child.identity):
            tree.send(each, signal.SIGKILL)
        popen.wait(60)


@pytest.mark.parametrize(("code", "silent"), [("time.sleep(600)", True), ("while True: pass", False)])
def test_a_launcher_that_is_busy_is_not_silent(code: str, silent: bool) -> None:
    """It may be slow to write what it knows of a failure; one that waits, as for other nodes, may for long."""
    popen = subprocess.Popen([sys.executable, "-c", f"import time; print(flush=True)\n{code}"], stdout=subprocess.PIPE)
    assert popen.stdout
    popen.stdout.readline()
    child = Child(Process("torchrun", (), ""), tree.identify(popen.pid), IS_LAUNCHER)
    clock = [0.0]
    lone = Lone(lambda: clock[0], grace_s=3 * SILENT_S)
    try:
        sleep_until(lambda: tree.state(child.identity) == ("S" if silent else "R"), "it is not there yet")
        assert not lone.is_silent(child)
        clock[0] = 2 * SILENT_S
        assert lone.is_silent(child) == silent
        clock[0] = 5 * SILENT_S  # the budget is over
        assert lone.is_silent(child)
    finally:
        popen.kill()
        popen.communicate(timeout=60)


@pytest.mark.parametrize("said", ["", "failed (exitcode: 3) local_rank: 0 (pid: 12) of binary: python"])
def test_a_launcher_that_is_silent_after_a_failure(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed where it has told which rank failed; else that it does not tell is why the job fails."""
    plan = helpers.plan({**helpers.local(1, "1"), "RANKLAUNCH_GRACE_S": "60"}, method="torchrun")
    popen = subprocess.Popen(["sleep", "600"])
    child = Child(TORCHRUN, tree.identify(popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN, plan))
    child.reader = helpers.pipe_reader(said.encode())
    loop, endings = Loop(), []
    attempt = Mock(ending=None, fail=endings.append, children=Mock(running={popen.pid: child}), loop=loop, plan=plan)
    attempt.nodes.wall = lambda at: at
    launchers = Launchers(attempt)
    monkeypatch.setattr(launchers._lone, "is_silent", lambda child: True)
    try:
        launchers._on_failing(child)
        tick = lambda: loop.after(0.05, tick)  # noqa: E731
        tick()
        loop.run_until(lambda: bool(endings) or popen.poll() is not None)
        assert (popen.poll(), len(endings)) == ((-signal.SIGKILL, 0) if said else (None, 1))
    finally:
        popen.kill()
        popen.wait(60)


def test_whose_end_nobody_knows_has_failed_where_its_launcher_says_no_more_than_that_one_has(scene: Scene, tmp_path: Path) -> None:
    below = ByFiles(Watcher(scene.loop, print), tree.identify(os.getpid()), 1, RankOutputs(str(tmp_path), "", ()))
    gone = Watched(0, tree.Identity(77, 0))
    told = Watched(1, tree.Identity(78, 0))
    told.by_itself, told.status = False, 143 << 8
    below.ended += [gone, told]
    found = below.confirmed(None, signalled=False, has_failed=True)
    assert found
    assert (found.rank, found.pid, found.exit_code) == (0, 77, 1)


@pytest.mark.parametrize("failed", [False, True])
def test_a_launcher_that_somebody_told_to_end_is_named_unless_a_rank_had_failed(tmp_path: Path, failed: bool) -> None:
    """Its ranks end as it tells them to, which may be seen before its words for it are read."""
    loop, started = Loop(), []
    outputs = RankOutputs(str(tmp_path), torchrun.OWN_LOGS, tuple(RankLog(str(i), i, "", "") for i in range(2)))
    launcher = os.getpid()
    below = ByFiles(Watcher(loop, print), tree.identify(launcher), 1, outputs)
    try:
        for local in "01":
            (tmp_path / "run/attempt_0" / local).mkdir(parents=True)
            with open(tmp_path / "run/attempt_0" / local / "stdout.log", "wb") as out:
                started.append(subprocess.Popen(["sh", "-c", "read line; exit 1"], stdin=subprocess.PIPE, stdout=out))
        below.find()
        if failed and started[0].stdin:
            started[0].stdin.close()
            loop.run_until(lambda: bool(below.ended))
        for each in started:
            each.terminate()
        loop.run_until(lambda: len(below.ended) == 2)
        found = below.confirmed(failed_with(-signal.SIGTERM, pid=launcher), signalled=False, has_failed=False)
        assert found
        assert (found.rank, found.pid, found.exit_code) == ((0, started[0].pid, 1) if failed else (None, launcher, 143))
    finally:
        for each in started:
            each.kill()
            each.communicate()
        below.close()


def test_no_more_than_expected(scene: Scene) -> None:
    """What a rank writes may look like the launcher's own words."""
    scene.ranks.read(scene.said + b"process 1 spawned with command: none\n")
    assert len(scene.ranks.alive) == 3


def test_a_launcher_that_was_faster_has_a_moment_to_tell(scene: Scene) -> None:
    """As long as it may still say how a rank of it ended, which nobody else knows."""
    child = Child(TORCHRUN, tree.identify(scene.popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN))
    child.below = scene.ranks
    launchers = Launchers(Mock(children=Mock(running={1: child}), loop=scene.loop))
    scene.ranks.read(scene.said)
    assert launchers.silent_s() == 0
    for index in range(3):
        scene.kill(index)
    scene.ask()
    launchers.look()
    assert [rank.code for rank in scene.ranks.unknown] == [None] * 3
    assert 0 < launchers.silent_s() <= REPORT_S
    for rank in scene.ranks.unknown:
        rank.ended_at -= REPORT_S
    assert launchers.silent_s() == 0


class Halted(Below):
    """Ranks of a launcher. seen: for each look at their ends, True if the launcher was halted."""

    def __init__(self, launcher: Child) -> None:
        super().__init__(Watcher(Loop(), print), ())
        self.launcher = launcher
        self.seen: list[bool] = []

    def look(self) -> None:
        self.seen.append(tree.state(self.launcher.identity) == "T")


def test_ends_are_looked_at_before_a_halted_launcher_can_make_them_forgotten() -> None:
    popen = subprocess.Popen(["sleep", "600"])
    child = Child(TORCHRUN, tree.identify(popen.pid), IS_LAUNCHER, torchrun.Torchrun(TORCHRUN))
    below = child.below = Halted(child)
    try:
        child.hold()
        sleep_until(lambda: tree.state(child.identity) == "T", "it is not stopped")
        child.go_on()
        sleep_until(lambda: tree.state(child.identity) != "T", "it does not go on")
    finally:
        popen.kill()
        popen.wait()
    assert below.seen == [True]


def test_a_round_that_its_launcher_outlived_does_not_count(tmp_path: Path) -> None:
    """torchrun --max_restarts: rank 1 fails, and all of its ranks are started anew, in another folder."""
    loop, started = Loop(), []
    outputs = RankOutputs(str(tmp_path), torchrun.OWN_LOGS, tuple(RankLog(str(i), i, "", "") for i in range(2)))
    below = ByFiles(Watcher(loop, print), tree.identify(os.getpid()), 1, outputs)

    def start_all(attempt: int) -> None:
        for local in "01":
            (tmp_path / f"run/attempt_{attempt}" / local).mkdir(parents=True)
            with open(tmp_path / f"run/attempt_{attempt}" / local / "stdout.log", "wb") as out:
                started.append(subprocess.Popen(["sleep", "600"], stdout=out))
        below.find()

    try:
        start_all(0)
        started[1].kill()
        loop.run_until(lambda: bool(below.ended))
        started[0].kill()
        os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)
        start_all(1)
        assert (below.ended, below.confirmed(None, signalled=False, has_failed=False)) == ([], None)
        assert (
            below.confirmed(failed_with(-signal.SIGKILL, pid=started[1].pid), signalled=False, has_failed=False) is None
        )  # which is still the last that it said
        started[2].kill()
        loop.run_until(lambda: bool(below.ended))
        assert [(end.rank, end.pid, end.failed) for end in below.ended] == [(0, started[2].pid, True)]
    finally:
        for each in started:
            each.kill()
            each.wait()
        below.close()


@pytest.mark.parametrize(("impatient", "failed"), [(True, [0]), (False, [0, 1])])
def test_an_impatient_launcher_kills_its_other_ranks_once_one_has_failed(tmp_path: Path, impatient: bool, failed: list[int]) -> None:
    """msrun does, while ranklaunch still takes the evidence of a failure elsewhere."""
    loop, started = Loop(), []
    outputs = RankOutputs(str(tmp_path), torchrun.OWN_LOGS, tuple(RankLog(str(i), i, "", "") for i in range(2)))
    launcher = tree.identify(os.getpid())
    below = ByFiles(Watcher(loop, print), launcher, 1, outputs, kills=impatient)
    try:
        for local in "01":
            (tmp_path / "run/attempt_0" / local).mkdir(parents=True)
            with open(tmp_path / "run/attempt_0" / local / "stdout.log", "wb") as out:
                started.append(subprocess.Popen(["sleep", "600"], stdout=out))
        below.find()
        started[0].send_signal(signal.SIGSEGV)
        loop.run_until(lambda: len(below.ended) == 1)
        started[1].kill()
        loop.run_until(lambda: len(below.ended) == 2)
        assert [rank.rank for rank in below.ended if rank.by_itself] == failed
    finally:
        for each in started:
            each.kill()
            each.wait()
        below.close()


@pytest.mark.parametrize(
    ("ends", "finished"),
    [
        ([(0, 0, 1.0), (1, 1, 2.0)], [0]),
        ([(0, 1, 1.0), (1, 0, 2.0)], []),  # its launcher told it to end, and it could save
        ([(0, 0, 1.98), (1, 1, 2.0)], []),
        ([(0, 0, 1.0), (1, None, 2.0), (2, 0, 3.0)], [0]),
        ([(0, 0, 1.0), (None, 0, 1.0)], [0]),
    ],
)
def test_ranks_that_have_finished_before_any_failed(ends: list[tuple[int | None, int | None, float]], finished: list[int]) -> None:
    ranks = Announced(Watcher(Loop(), print), PATTERN, NUMBERS)
    for number, code, at in ends:
        rank = Watched(number, tree.identify(os.getpid()))
        rank.status, rank.ended, rank.ended_at = None if code is None else code << 8, True, at
        ranks.ended.append(rank)
    assert [rank.rank for rank in ranks.finished] == finished
