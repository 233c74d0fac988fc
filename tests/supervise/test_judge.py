"""What is made of processes that have ended, without any."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import helpers
import pytest
from helpers import for_each

from ranklaunch.adapters.launchers import torchrun
from ranklaunch.diagnose.failures import last_lines
from ranklaunch.plan.model import Plan
from ranklaunch.processes.child_ranks import Below, Watched, Watcher
from ranklaunch.processes.children import LAUNCHER, RANK, SERVICE, Child, End
from ranklaunch.supervise import ending as ending_of_node
from ranklaunch.supervise import judge
from ranklaunch.supervise.ending import Circumstances
from ranklaunch.system import bounded, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.memory import UNKNOWN, Memory
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import Culprit, Ending

FAILED = Ending(Judgement("failed", 1, ""))
HEAD = "Traceback (most recent call last):\n"


LOST_REPORT = b"[n1:17] [[3,0],0] ORTE_ERROR_LOG: Out of resource in file ../../../orte/util/show_help.c at line 501\n"
DISCONNECTED = b"An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure in the peer process\n"


def suspect(code: int = 1, *lines: str) -> Suspect:
    return Suspect(0, 1.0, "failed", code, "", Culprit(0, 1, 7, code, None, False, lines))


@for_each(
    {
        "argparse ends with 2": (suspect(2), ("--slots", "2"), True),
        "the program names it": (suspect(1, "ValueError: not used: ['--slots', '2']"), ("--slots", "2"), True),
        "it died of something else": (suspect(1, "ValueError: x"), ("--slots", "2"), False),
        "an option of its own": (suspect(2), ("--lr", "2"), False),
    }
)
def test_options_behind_the_program_are_noted_where_it_refuses_them(found: Suspect, args: tuple[str, ...], noted: bool) -> None:
    notes = judge.notes(helpers.plan({}, *args), FAILED, [found])
    assert any("put options of ranklaunch before it" in note.text for note in notes) == noted


def test_the_first_suspect_of_a_rank_needs_no_end_of_its_launcher() -> None:
    plan = helpers.plan(helpers.local(4), method="deepspeed")
    launcher = Child(plan.processes[0], tree.identify(os.getpid()), LAUNCHER, helpers.launcher(plan))
    rank = Watched(3, tree.Identity(7, 1))
    rank.status, rank.ended_at = 42 << 8, 5.0
    found = ending_of_node.first_suspect(plan, FAILED, lambda at: at + 1, launcher, rank)
    assert found.culprit
    assert (found.culprit.rank, found.culprit.exit_code, found.at) == (3, 42, 6.0)


# What stands for a rank's own words

TABLE = """
============================================================
t.py FAILED
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 7)  (SIGKILL)
============================================================
"""

TRACEBACK = b'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\n    f()\n'


def of_torchrun(plan: Plan, status: int, *told: int, tail: bytes = b"") -> Child:
    child = Child(plan.processes[0], tree.identify(os.getpid()), LAUNCHER, helpers.launcher(plan))
    child.end = End(status, 1.0, told=told)
    child.reader = helpers.pipe_reader(tail)
    return child


def below(*ended: Watched) -> Below:
    """Return the ranks of a launcher, all of which have ended, in this order."""
    ranks = Below(Watcher(Loop(), print), range(4))
    ranks.ended.extend(ended)
    return ranks


def circumstances(memory: Memory = UNKNOWN, tail: bytes = b"") -> Circumstances:
    return Circumstances(
        memory=memory, explain=lambda child, tail: torchrun.report(tail), told=lambda process: None,
        tail_of_rank=lambda rank: tail if rank == 1 else b"", wall=lambda at: at,
    )  # fmt: skip


def test_a_victim_whose_end_its_launcher_was_faster_to_fetch_was_told_to_end() -> None:
    plan = helpers.plan(helpers.local(4), method="deepspeed")
    child = of_torchrun(plan, 1 << 8)
    failed, unseen, seen, caught = (Watched(rank, tree.Identity(7 + rank, 1)) for rank in range(4))
    failed.status, seen.status, caught.status = 1 << 8, 9, 143 << 8
    unseen.by_itself = seen.by_itself = caught.by_itself = False
    child.below = below(failed, unseen, seen, caught)
    ending, common = replace(FAILED, pid=child.identity.pid), Judgement("failed", 1, "")
    found = ending_of_node.verdict_of(plan, common, ending, [child], circumstances(), "").victims
    assert [(victim.rank, victim.signal) for victim in found] == [(1, "SIGTERM"), (2, "SIGKILL")]


def seen(*ranks: tuple[int, int, bool]) -> Below:
    """Ranks that were seen to end: number, signal, whether by themselves."""
    ended = []
    for rank, number, own in ranks:
        ended.append(Watched(rank, tree.Identity(7 + rank, 1)))
        ended[-1].status, ended[-1].by_itself = number, own
    return below(*ended)


def test_victims_of_a_launcher_are_its_ranks() -> None:
    """Also where it was ranklaunch that told it to end, for another node's failure, and one of them had time to save."""
    plan = helpers.plan(helpers.local(2, index=1), method="torchrun")
    child = of_torchrun(plan, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
    child.below = seen((2, signal.SIGTERM, False), (3, 0, False))
    common = Judgement("failed", 3, "", Culprit(0, 1, 7, 3, None, False, ()))
    found = ending_of_node.verdict_of(
        plan, common, Ending(Judgement("failed", 3, ""), from_elsewhere=True), [child], circumstances(), ""
    ).victims
    assert [(victim.name, victim.rank, victim.signal) for victim in found] == [
        ("rank 2", 2, "SIGTERM"), ("rank 3", 3, "SIGTERM"), ("torchrun", None, "SIGKILL"),
    ]  # fmt: skip


def test_a_culprit_is_no_victim() -> None:
    plan = helpers.plan(helpers.local(), method="torchrun")
    child = of_torchrun(plan, 1 << 8, tail=TABLE.encode())
    child.below = seen((1, signal.SIGKILL, True), (0, signal.SIGTERM, False))
    common = Judgement("failed", 137, "", Culprit(0, 1, 7, 137, "SIGKILL", False, ()))
    found = ending_of_node.verdict_of(plan, common, replace(FAILED, pid=child.identity.pid), [child], circumstances(), "").victims
    assert [(victim.rank, victim.signal) for victim in found] == [(0, "SIGTERM")]


@pytest.mark.parametrize(
    ("role", "status", "waits"),
    [(SERVICE, 0, True), (SERVICE, 15, True), (SERVICE, 2, True), (SERVICE, 9, False), (SERVICE, 1 << 8, False), (RANK, 15, False)],
)
def test_a_service_that_ends_as_by_a_stop_request_waits_for_it(role: str, status: int, waits: bool) -> None:
    child = Child(helpers.plan(helpers.local(), method="spawn").processes[0], tree.identify(os.getpid()), role)
    child.end = End(status, 1.0)
    assert ending_of_node.ending_of(child)
    assert ending_of_node.may_be_stopped(child) == waits


@for_each(
    {
        "of PyTorch": "[rank0]: OSError: [Errno 5] Input/output error",
        "of a filter": "[0] OSError: [Errno 5] Input/output error",
        "of a group": "    | OSError: [Errno 5] Input/output error\n    +------------------------------------",
        "of both": "[rank0]:     | OSError: [Errno 5] Input/output error\n[rank0]:     +------",
    }
)
def test_frames_of_a_traceback_are_not_part_of_the_reason(line: str) -> None:
    known = judge.known_error(f"Traceback (most recent call last):\n{line}\n".encode(), helpers.plan(helpers.local()))
    assert known
    assert known.line == "OSError: [Errno 5] Input/output error"


def test_that_mpirun_has_lost_the_words_explains_more_than_that_a_rank_lost_its_peer() -> None:
    """As of a rank on one of two hosts that calls MPI_Abort without a word."""
    known = judge.known_error(LOST_REPORT + DISCONNECTED, helpers.plan(helpers.local()))
    assert known
    assert known.name == "mpi-words-lost"


def hooked(rank: int, line: str) -> str:
    said = f'{TRACEBACK.decode()}  File "train.py", line 3, in <module>\n    step()\n{line}\n'
    return "".join(f"[rank{rank}]: {each}" for each in said.splitlines(keepends=True))


# A long traceback

LIBRARY = '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1739, in _wrapped_call_impl\n    return call(x)\n'
OWN = '  File "/job/train.py", line {}, in {}\n    step(batch, number)\n    ^^^^^^^^^^^\n'


def test_a_traceback_that_is_too_long_is_shown_by_its_own_frames() -> None:
    text = "epoch 1\n" + HEAD + OWN.format(9, "main") + LIBRARY * 30 + OWN.format(3, "forward") + "ValueError: loss is nan\n"
    assert last_lines(text) == (
        "epoch 1", HEAD.strip(), '  File "/job/train.py", line 9, in main', "    step(batch, number)", "  ... 30 frames in libraries",
        '  File "/job/train.py", line 3, in forward', "    step(batch, number)", "ValueError: loss is nan",
    )  # fmt: skip


def test_a_traceback_of_very_many_own_frames_keeps_its_beginning() -> None:
    found = last_lines(HEAD + OWN.format(9, "main") * 30 + "ValueError: loss is nan\n")
    assert found[:2] == (HEAD.strip(), "  ...")
    assert (found[-1], len(found)) == ("ValueError: loss is nan", blame.LINES)


def test_what_is_short_or_is_no_traceback_stays() -> None:
    text = HEAD + LIBRARY + "ValueError: x\n"
    assert last_lines(text) == tuple(text.splitlines())
    lines = [f"step {i}" for i in range(99)]
    assert last_lines(HEAD + LIBRARY + "ValueError: x\n" + "\n".join(lines)) == tuple(lines[-blame.LINES :])


# What to do


def test_a_remedy_tells_the_settings_that_it_is_about() -> None:
    plan = helpers.plan({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_MASTER_PORT": "29501"})
    error = judge.known_error(b"RuntimeError: The server socket has failed to bind to [::]:29501 (errno: 98).\n", plan)
    assert error
    assert error.remedy.endswith("(--master-port). Now: master_port 29501 (RANKLAUNCH_MASTER_PORT).")
    assert "again: to start the job anew may be enough" in blame.advice(replace(Culprit(0, 1, 7, 1, None, False, ()), error=error))


def test_another_host_is_named_where_this_one_is_at_fault() -> None:
    error = judge.known_error(b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", helpers.plan({}))
    assert error
    culprit = Culprit(1, 9, 7, 1, None, False, (), host="n7", error=error)
    assert [*blame.advice(culprit)][-1] == "again: start the job on other hosts, without n7"


@pytest.mark.parametrize(("pattern", "name"), [("^(a+)+b", "cuda-out-of-memory"), ("^a{60}", "ours")])
def test_a_pattern_of_the_users_may_not_hold_a_verdict(tmp_path: Path, pattern: str, name: str) -> None:
    """One that takes exponential time: where it has taken too much, there are the entries that are shipped."""
    entry = {"name": "ours", "kind": "cause", "patterns": [pattern], "meaning": "m", "remedy": "r", "source": "https://example.org/"}
    (tmp_path / "own.json").write_text(json.dumps({"family": "Ours", "entry": [entry]}))
    plan = replace(helpers.plan({}), known_errors=str(tmp_path))
    for _ in range(2):
        error = judge.known_error(b"a" * 60 + b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", plan)
        assert error
        assert error.name == name


def test_a_file_system_that_does_not_answer_holds_up_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of the working folder, while its server is away."""
    monkeypatch.setattr(judge.disk, "full", lambda folders: [("/data", "no inode is left"), ("/logs", "100 % of 2.0 GiB used")])
    said = ["the file system of /data is full: no inode is left", "the file system of /logs is full: 100 % of 2.0 GiB used"]
    assert list(judge.full_disks(helpers.plan({}))) == said
    monkeypatch.setattr(bounded, "LOOK_S", 0.2)
    monkeypatch.setattr(judge.disk, "full", lambda folders: time.sleep(60))
    assert list(judge.full_disks(helpers.plan({}))) == []
