"""Whatever ends a job, no process of it lives on: also not one that has left its session, its group and its parent."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from ranklaunch.processes.children import Child
from ranklaunch.processes.orphans import Leftovers, groups_below
from ranklaunch.supervise import guardian
from ranklaunch.supervise.record import now
from ranklaunch.system import bounded, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import HALT
from ranklaunch.system.tree import is_pending
from testbench.jobs.ends import check_end
from testbench.jobs.job import Job, Starter
from testbench.jobs.processes import command_of, parent_of, state_of
from testbench.places import child
from testbench.waiting import free_port, sleep_until

# A stubborn one has to be killed, after all that is done with one that obeys.
STUBBORN = pytest.mark.parametrize("stubborn", [pytest.param([], marks=pytest.mark.table), ["--stubborn"]], ids=["obeys", "stubborn"])


def grandchildren(job: Job, count: int) -> list[int]:
    """They have come to ranklaunch, since their own parents are dead."""
    return sleep_until(lambda: _orphans(job, count), "the grandchildren are not below ranklaunch")


def _orphans(job: Job, count: int) -> list[int]:
    job.out.wait_for("grandchild ", count)
    found = [pid for pid in job.children if os.getsid(pid) not in (0, os.getsid(job.supervisor))]
    return found if len(found) == count else []


@pytest.mark.parametrize(
    ("code", "stubborn"),
    [
        pytest.param(0, [], marks=pytest.mark.table),
        (0, ["--stubborn"]),
        (42, []),
        pytest.param(42, ["--stubborn"], marks=pytest.mark.table),
    ],
    ids=["0-obeys", "0-stubborn", "42-obeys", "42-stubborn"],
)
def test_when_the_ranks_end(ranklaunch: Starter, code: int, stubborn: list[str]) -> None:
    """A grandchild that has escaped, and still holds the rank's output open, neither survives nor holds up the end."""
    job = ranklaunch.spawn(2, child("family.py"), *stubborn, "--exit", code, grace_s=1)
    if code == 0:
        check_end(job, "succeeded", 0, timeout=30)
    else:
        check_end(job, "failed", 42, culprit={"exit_code": 42}, timeout=30)
    assert ("SIGKILL" in job.err.text) == bool(stubborn)
    notes = " ".join(job.verdict["notes"])
    assert ("ended processes that the program left behind: " in notes) == (code == 0)
    assert all((f"{pid} (" in notes) == (code == 0) for pid in _told(job))
    assert ("family.py" in notes, "by SIGKILL" in notes) == (code == 0, code == 0 and bool(stubborn))


def _told(job: Job) -> list[str]:
    return re.findall(r"grandchild (\d+)", job.out.text)


def test_however_deep_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = {parent: [(parent + 1, tree.Entry(parent, "S", start=1))] for parent in range(1, 5000)}
    monkeypatch.setattr(tree, "by_parent", lambda: chain)
    assert len(groups_below(1, own=(), carriers=()).orphans) == len(groups_below(1, own=(2,), carriers=()).ranks) + 1 == 4999


def test_what_ends_by_itself_is_not_told(as_pid_1: Starter) -> None:
    """Python's own helpers live a little longer than the program."""
    job = as_pid_1.spawn(1, "sh", "-c", "sleep 0.05 & (trap '' TERM; sleep 0.5) & exit 0")
    check_end(job, "succeeded", 0)
    assert job.verdict["notes"] == []


def test_secrets_of_what_is_left_are_hidden(as_pid_1: Starter) -> None:
    job = as_pid_1.spawn(1, "sh", "-c", "setsid sh -c 'echo up; sleep 600; :' x --token=hunter2 & read x; exit 0", grace_s=1)
    check_end(job, "succeeded", 0)
    assert "hunter2" not in "".join(job.verdict["notes"])
    assert "--token=" in "".join(job.verdict["notes"])


@STUBBORN
def test_when_it_is_asked_to_stop(ranklaunch: Starter, stubborn: list[str]) -> None:
    job = ranklaunch.spawn(2, child("family.py"), *stubborn, grace_s=1)
    job.out.wait_for("ready", 2)
    assert len(grandchildren(job, 2)) == 2
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, victims={0: "SIGTERM", 1: "SIGTERM"}, timeout=30)


@STUBBORN
def test_when_ranklaunch_is_killed(ranklaunch: Starter, stubborn: list[str]) -> None:
    job = ranklaunch.spawn(2, child("family.py"), *stubborn, grace_s=600)
    job.out.wait_for("ready", 2)
    assert len(grandchildren(job, 2)) == 2
    job.send(signal.SIGKILL)
    job.end_killed()


@STUBBORN
def test_when_its_supervisor_is_killed(as_process: Starter, stubborn: list[str]) -> None:
    """The outer process ends what the supervisor left before it ends itself."""
    job = as_process.spawn(2, child("family.py"), *stubborn, grace_s=600)
    job.out.wait_for("ready", 2)
    assert len(grandchildren(job, 2)) == 2
    os.kill(job.supervisor, signal.SIGKILL)
    assert job.end() == 137
    assert "its supervisor was killed by SIGKILL" in job.err.text
    assert job.verdict["exit_code"] == 137
    assert "its supervisor was killed by SIGKILL" in job.verdict["reason"]
    there = {path.name for path in job.attempt.iterdir()} - {"times_0", "records"}  # the first of which it may not have begun
    assert there == {"events.jsonl", "plan.json", "rank_0.log", "rank_1.log", "verdict.json"}


@pytest.mark.parametrize("takes", [1, 600])
def test_a_supervisor_that_does_not_come_to_take_a_stop_request(as_process: Starter, takes: int) -> None:
    """Mounts that do not answer cannot be had everywhere: a supervisor that SIGSTOP holds stands for one that the kernel holds."""
    job = as_process.spawn(2, child("saves_on_term.py"), "--takes", takes, grace_s=3)
    job.out.wait_for("ready", 2)
    supervisor = job.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    sleep_until(lambda: tree.state(tree.identify(supervisor)) == "T", "it is not stopped")
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert "its supervisor has not handled SIGTERM for 10 s" in job.err.text
    assert "its ranks are signalled now, and have 3 s" in job.err.text
    assert [job.verdict[name] for name in ("outcome", "exit_code")] == ["stopped", 143]


SAVES = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (open("saved" + os.environ["RANK"], "a").write("x"), sys.exit(0)))
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.launchers
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_ranks_of_torchrun_are_told_past_it(as_process: Starter) -> None:
    """It would close the log of the first before it tells the second, and is held by what holds the supervisor."""
    program = as_process.folder / "train.py"
    program.write_text(SAVES)
    job = as_process.run(program, options=("--method", "torchrun", "--slots", 2), env={"OMP_NUM_THREADS": "1"}, grace_s=60)
    job.out.wait_for("ready", 2)
    supervisor = job.supervisor
    (torchrun,) = tree.generation(supervisor, 1)
    for held in (supervisor, torchrun.pid):
        os.kill(held, signal.SIGSTOP)
        sleep_until(lambda held=held: tree.state(tree.identify(held)) == "T", "it is not stopped")  # type: ignore[misc]
    job.send(signal.SIGTERM)
    assert job.end() == 143
    assert "its ranks are signalled now, and have 60 s" in job.err.text
    assert [(as_process.folder / f"saved{rank}").read_text() for rank in (0, 1)] == ["x", "x"]


def test_a_supervisor_that_is_held_after_it_has_taken_a_stop_request(as_process: Starter) -> None:
    """It had told the ranks, which are not told again."""
    job = as_process.spawn(2, child("saves_on_term.py"), "--takes", 2, grace_s=300)
    job.out.wait_for("ready", 2)
    supervisor = job.supervisor
    job.send(signal.SIGTERM)
    job.err.wait_for("SIGTERM: stopping")
    os.kill(supervisor, signal.SIGSTOP)
    assert job.end() == 143
    assert "its supervisor does not respond after SIGTERM" in job.err.text
    assert "its ranks are signalled now" not in job.err.text
    assert [job.verdict[name] for name in ("outcome", "exit_code")] == ["stopped", 143]


@pytest.mark.parametrize(("numbers", "code"), [([HALT], 128 + HALT), ([signal.SIGINT, signal.SIGINT], 130)], ids=["halt", "twice"])
def test_other_stop_requests_of_a_supervisor_that_is_held(as_process: Starter, numbers: list[int], code: int) -> None:
    """Those that mean SIGTERM to ranks; and a second SIGINT, for which no grace is waited, of ranks that hear none."""
    job = as_process.spawn(2, "sh", "-c", "trap '' INT; echo ready; exec sleep 600", grace_s=300)
    job.out.wait_for("ready", 2)
    supervisor = job.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    sleep_until(lambda: tree.state(tree.identify(supervisor)) == "T", "it is not stopped")
    for number in numbers:
        job.send(number)
        sleep_until(lambda number=number: is_pending(supervisor, number), "it is not passed on")  # type: ignore[misc]
    assert job.end() == code
    assert "its supervisor has not handled" in job.err.text


def test_pid_1_that_does_not_come_to_take_a_stop_request(as_pid_1: Starter) -> None:
    """Nobody in the container can end it; it does so itself as soon as it can."""
    job = as_pid_1.spawn(2, child("saves_on_term.py"), grace_s=300)
    job.out.wait_for("ready", 2)
    os.kill(job.pid, signal.SIGSTOP)
    sleep_until(lambda: tree.state(tree.identify(job.pid)) == "T", "it is not stopped")
    job.send(signal.SIGTERM)
    job.err.wait_for("its supervisor has not handled SIGTERM for 10 s")
    job.err.wait_for("its ranks are signalled now, and have 300 s")
    sleep_until((job.attempt / "verdict.json").exists, "there is no verdict")
    assert [job.verdict[name] for name in ("outcome", "exit_code")] == ["stopped", 143]
    assert "has not handled SIGTERM for 10 s" in job.verdict["reason"]
    os.kill(job.pid, signal.SIGCONT)
    check_end(job, "stopped", 143)
    assert job.out.text.count("saved") == 2


def test_a_supervisor_that_takes_a_stop_request_late_ends_the_job_itself(as_process: Starter) -> None:
    job = as_process.spawn(2, child("saves_on_term.py"), grace_s=30)
    job.out.wait_for("ready", 2)
    supervisor = job.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    sleep_until(lambda: tree.state(tree.identify(supervisor)) == "T", "it is not stopped")
    job.send(signal.SIGTERM)
    sleep_until(lambda: is_pending(supervisor, signal.SIGTERM), "SIGTERM is not passed on")
    os.kill(supervisor, signal.SIGCONT)
    assert job.end() == 143
    assert "has not taken" not in job.err.text
    assert job.verdict["reason"] == "stopped by SIGTERM"


def test_keys_and_last_words_of_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """The private folders and the socket go; a verdict that is there stays."""
    ended = tmp_path / "termination-log"
    ended.write_text("")
    keys = tmp_path / "keys"
    keys.mkdir(0o700)
    (keys / "id").write_text("secret")
    private = tmp_path / "ranklaunch-x"
    private.mkdir()
    for asked_in, folder in (("", tmp_path), (str(private), private)):
        (folder / "node_0.sock").touch()
        will = {"private": str(keys), "socket": str(folder / "node_0.sock"), "asked_in": asked_in}
        guardian._clean_up(will, "killed", 137)
        assert not (folder / "node_0.sock").exists()
    assert not keys.exists()
    assert not private.exists()
    will = {"folder": str(tmp_path), "started": now(), "termination_log": str(ended), "failure_file": ""}
    guardian._clean_up({**will, "judged": "failed"}, "killed", 137)
    assert not (tmp_path / "verdict.json").exists()
    guardian._clean_up(will, "killed", 137)
    assert (tmp_path / "verdict.json").exists()
    assert ended.read_text() == "killed\n"


def test_last_words_come_before_what_may_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is in the log folder, which may be on a mount that does not."""
    ended, socket, unlink, seen = tmp_path / "termination-log", str(tmp_path / "node_0.sock"), os.unlink, []

    def slow(path: str, *args: object, **more: object) -> None:
        if path == socket:
            seen.append(ended.read_text())
        unlink(path, *args, **more)  # type: ignore[call-overload]

    ended.touch()
    monkeypatch.setattr(os, "unlink", slow)
    will = {"folder": str(tmp_path), "started": now(), "termination_log": str(ended), "failure_file": "", "socket": socket}
    guardian._clean_up(will, "killed", 137)
    assert seen == ["killed\n"]


def test_keys_of_a_job_whose_supervisor_is_killed(as_process: Starter, tmp_path: Path) -> None:
    """The outer process knows the folder that they are in, whatever phase the job is in."""
    (tmp_path / "bin").mkdir()
    keygen = tmp_path / "bin" / "ssh-keygen"
    keygen.write_text("#!/bin/sh\nfor last; do :; done\necho PRIVATE KEY > $last; echo ssh-ed25519 AAAA > $last.pub\n")
    keygen.chmod(0o755)
    (tmp_path / "bin" / "install").symlink_to("/bin/true")  # of /run/sshd, where this runs as root
    env = {
        "RANKLAUNCH_HOSTS": "127.0.0.1,127.0.0.2",
        "RANKLAUNCH_NODE": "0",
        "RANKLAUNCH_MUSTER_PORT": str(free_port()),
        "RANKLAUNCH_RUN_DIR": str(tmp_path / "run"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    job = as_process.run("true", options=("--method", "mpirun", "--slots", 1), env=env)
    (key,) = sleep_until(lambda: [*tmp_path.glob("run/*/key")], "there is no key")
    assert "PRIVATE KEY" in sleep_until(key.read_text, "it is empty")
    os.kill(job.supervisor, signal.SIGKILL)
    assert job.end() == 137
    assert [*(tmp_path / "run").iterdir()] == []


@pytest.mark.parametrize("phase", ["waiting", "preparing"])
def test_when_it_is_killed_before_the_launch(ranklaunch: Starter, tmp_path: Path, phase: str) -> None:
    (tmp_path / "train.py").write_text("")
    if phase == "waiting":
        env = {"RANKLAUNCH_HOSTS": "does-not-exist.invalid,127.0.0.2", "RANKLAUNCH_NODE": "1"}
    else:
        env = {}
        (tmp_path / "ma-pre-start.sh").write_text("setsid sleep 600 & echo ready\nsleep 600\n")
    job = ranklaunch.spawn(2, "train.py", env=env)
    job.wait_for_event("wait" if phase == "waiting" else "first output")
    job.send(signal.SIGKILL)
    job.end_killed()


def test_when_it_is_killed_while_it_stops(as_pid_1: Starter) -> None:
    job = as_pid_1.spawn(2, child("ignores_term.py"), grace_s=600)
    job.out.wait_for("ready", 2)
    job.send(signal.SIGTERM)
    job.wait_for_event("ending")
    job.send(signal.SIGKILL)
    job.end_killed()


def test_a_rank_is_its_own_supervisor(ranklaunch: Starter) -> None:
    """Orphans of a rank that adopts them itself are found below it."""
    job = ranklaunch.spawn(1, child("family.py"), "--subreaper", "--stubborn", grace_s=1)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, timeout=30)


def test_a_process_that_forks_while_it_is_killed(ranklaunch: Starter) -> None:
    """Each dies 10 ms after it has started the next, so that one look at the tree may show none of them."""
    job = ranklaunch.spawn(1, child("family.py"), "--hops", grace_s=1)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143, timeout=30)


def test_a_flood_from_a_grandchild(as_pid_1: Starter) -> None:
    """One that writes faster than anybody reads, into the output of a rank that has ended, is ended like any other."""
    with open(os.devnull, "wb") as nowhere:  # a console that takes everything: it is the grandchild that is fast
        job = as_pid_1.spawn(1, "sh", "-c", "setsid yes & sleep 0.2", grace_s=2, stdout=nowhere.fileno())
    check_end(job, "succeeded", 0, timeout=30)


def test_zombies_are_reaped(ranklaunch: Starter) -> None:
    """Orphans that end while the job runs do not stay as zombies: a pod's process table is small."""
    job = ranklaunch.spawn(1, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 & ); done; echo ready; exec sleep 600")
    job.out.wait_for("ready")
    sleep_until(lambda: len(job.children) == 1, "zombies stay")
    assert state_of(job.children[0]) != "Z"
    job.send(signal.SIGTERM)
    check_end(job, "stopped", 143)


def test_the_other_processes_of_the_machine_live_on(as_process: Starter) -> None:
    """A job ends its own processes, not those of another job of the same program."""
    other = as_process.spawn(1, child("sleeper.py"), log_dir=as_process.folder / "other")
    other.out.wait_for("ready")
    job = as_process.spawn(1, child("ignores_term.py"), grace_s=0.5)
    job.out.wait_for("ready")
    job.send(signal.SIGTERM)
    assert job.popen.wait(60) == 143
    assert other.popen.poll() is None
    rank = other.children[0]
    assert state_of(rank) == "S"
    assert "sleeper.py" in command_of(rank)
    assert parent_of(rank) == other.supervisor
    other.send(signal.SIGTERM)
    check_end(other, "stopped", 143)


class Reaped:
    """Children of an attempt once all of them have ended. killed: names of signals, by the pids of orphans."""

    def __init__(self, killed: dict[int, str]) -> None:
        self.running: dict[int, Child] = {}
        self.killed = killed


def test_what_ranklaunch_runs_for_itself_was_not_left_by_the_program() -> None:
    """As what takes evidence, when the ranks end meanwhile."""
    helper, readable = bounded.forked(lambda writable: os.execvp("sleep", ["sleep", "60"]))
    left = subprocess.Popen(["sleep", "61"])
    try:
        killed: dict[int, str] = {}
        leftovers = Leftovers(Reaped(killed), Loop(), lambda text: None, 1.0)  # type: ignore[arg-type]
        killed.update({helper: "SIGTERM", left.pid: "SIGTERM"})
        assert list(leftovers.notes) == [f"ended processes that the program left behind: {left.pid} (sleep 61) by SIGTERM"]
    finally:
        os.close(readable)
        left.kill()
        left.wait()
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
