"""What is made of processes that have ended, without any."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import helpers
import pytest
from helpers import for_each

from ranklaunch.adapters.launchers import deepspeed, msrun, torchrun
from ranklaunch.adapters.launchers.shared import open_mpi
from ranklaunch.catalogue import CONSEQUENCE
from ranklaunch.plan.model import Plan
from ranklaunch.supervise import closing, judge, words
from ranklaunch.supervise.judge import Circumstances, Ending
from ranklaunch.supervise.output.pipe import LAST_LINES, last_lines
from ranklaunch.supervise.ranks import unwell
from ranklaunch.supervise.ranks.below import Below, Watched
from ranklaunch.supervise.ranks.child import LAUNCHER, RANK, SERVICE, Child, End
from ranklaunch.system import bounded, tree
from ranklaunch.system.memory import UNKNOWN, Memory
from ranklaunch.values import replace
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import Judgement, Suspect
from ranklaunch.verdict.model import Culprit, Failure

FAILED = Ending("failed", 1, "")
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
    assert any("those of ranklaunch stand before it" in note for note in notes) == noted


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

ENDED = """
============================================================
t.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 7)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 8)
============================================================
"""
TRACEBACK = b'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\n    f()\n'


def of_torchrun(plan: Plan, status: int, *told: int, tail: bytes = b"") -> Child:
    child = Child(plan.processes[0], tree.identify(os.getpid()), LAUNCHER, helpers.launcher(plan))
    child.end = End(status, 1.0, told=told)
    child.reader = SimpleNamespace(output=SimpleNamespace(tail=tail, settled=lambda ended: tail))  # type: ignore[assignment]
    return child


def circumstances(memory: Memory = UNKNOWN, tail: bytes = b"") -> Circumstances:
    return Circumstances(
        memory=memory, explain=lambda child, tail: torchrun.report(tail), told=lambda process: None,
        end_of_rank=lambda child, rank: None, tail_of_rank=lambda rank: tail if rank == 1 else b"", wall=lambda at: at,
    )  # fmt: skip


SEEN_BY_MPIRUN = """Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun noticed that process rank 0 with PID 77 on node h0 exited on signal 11 (Segmentation fault).
"""


@pytest.mark.parametrize(("raised_at", "first"), [(7.2, 0), (4.0, 1)])
def test_mpirun_begins_to_tell_of_a_failure_long_before_it_has_ended_the_others(raised_at: float, first: int) -> None:
    """One of which may raise an exception meanwhile, or had, before the other crashed."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0), method="mpirun")
    child = of_torchrun(plan, 139 << 8, tail=SEEN_BY_MPIRUN.encode())
    child.end = End(139 << 8, 8.0)
    for now, said in ((1.0, b"step 1\n"), (5.0, SEEN_BY_MPIRUN[:60].encode()), (8.0, SEEN_BY_MPIRUN.encode())):
        child.look_for_report(said, now)
    raised = "".join(f"[rank1]: {line}\n" for line in f"{TRACEBACK.decode()}IndexError: tile 8".splitlines()).encode()
    around = replace(circumstances(tail=raised), explain=lambda child, tail: open_mpi.report(tail), wrote=lambda: [(1, raised, raised_at)])
    found = blame.ordered(judge.suspects(plan, Ending("failed", 139, "", child, at=8.0), [child], around))[0].culprit
    assert found
    assert found.rank == first


@pytest.mark.parametrize(("told_at", "outcome"), [(6.0, "failed"), (4.5, "stopped")])
def test_a_stop_once_mpirun_has_begun_to_tell_of_a_failure_came_after_that(told_at: float, outcome: str) -> None:
    """Who it was is said seconds later, when mpirun itself has ended."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0), method="mpirun")
    child = of_torchrun(plan, 139 << 8, signal.SIGTERM, tail=SEEN_BY_MPIRUN.encode())
    child.told_at, child.said = told_at, SEEN_BY_MPIRUN[:60].encode()
    child.end = End(139 << 8, 8.0, told=(signal.SIGTERM,))
    child.look_for_report(SEEN_BY_MPIRUN.encode(), 5.0)
    around = replace(circumstances(), explain=lambda child, tail: open_mpi.report(tail), stop=(signal.SIGTERM, told_at))
    stopped = Ending("stopped", 143, "stopped by SIGTERM", at=told_at)
    found = blame.judge(judge.suspects(plan, stopped, [child], around))
    assert (found.outcome, found.exit_code) == ((outcome, 139) if outcome == "failed" else (outcome, 143))


@pytest.mark.parametrize(("told_at", "ranks"), [(5.0, []), (1.5, [1])])
def test_a_rank_that_its_launcher_had_seen_end_well_has_not_failed(told_at: float, ranks: list[int]) -> None:
    """How it ended nobody else knows; an exception that it had caught stands at the end of its output."""
    plan = helpers.plan(helpers.local(2, "2"), method="torchrun")
    child = of_torchrun(plan, 15, signal.SIGTERM)
    child.told_at = told_at
    rank = Watched(1, tree.Identity(8, 1))
    rank.ended_at = 1.0
    child.below = SimpleNamespace(ended=[rank], failed=[], unknown=[rank])  # type: ignore[assignment]
    stopped = Ending("stopped", 143, "stopped by SIGTERM", from_elsewhere=True)
    around = replace(circumstances(tail=TRACEBACK + b"ValueError: no tensorboard\n"), stop=(signal.SIGTERM, told_at))
    found = judge.suspects(plan, stopped, [child], around)
    assert [each.culprit.rank for each in found if each.culprit and each.culprit.rank is not None] == ranks


def test_what_a_launcher_had_said_of_a_rank_before_a_stop_was_a_failure() -> None:
    """torchrun may be halted then, and be killed before it ends."""
    plan = helpers.plan(helpers.local(2, "2"), method="torchrun")
    said = b"E1127 08:50:56.2 7 torch/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 8) of binary\n"
    child = of_torchrun(plan, 9, signal.SIGTERM, signal.SIGKILL, tail=said)
    child.said, child.told_at, child.ends_ranks = said, 9.0, True
    rank = Watched(1, tree.Identity(8, 1))
    rank.ended_at = 1.0
    child.below = SimpleNamespace(ended=[rank], failed=[], unknown=[rank])  # type: ignore[assignment]
    around = replace(circumstances(tail=b"step 3\nvocab mismatch: 32000 != 32001\n"), stop=(signal.SIGTERM, 9.0))
    found = blame.judge(judge.suspects(plan, Ending("stopped", 143, "stopped by SIGTERM", at=9.0), [child], around))
    assert (found.outcome, found.exit_code) == ("failed", 1)
    assert found.reason == "rank 1 on node 0 (n0) exited with code 1: vocab mismatch: 32000 != 32001"


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_rank_that_was_aborted_for_its_stacks_is_a_victim_and_told_by_what_it_had_said(by_itself: bool) -> None:
    plan = helpers.plan(helpers.local(2, "2"), method="torchrun")
    child = of_torchrun(plan, 15, signal.SIGTERM)
    rank = Watched(1, tree.Identity(8, 1))
    rank.status, rank.ended_at, rank.by_itself = int(signal.SIGABRT), 1.0, by_itself
    child.below = SimpleNamespace(ended=[rank], failed=[rank] * by_itself, unknown=[])  # type: ignore[assignment]
    tail = TRACEBACK + b"ValueError: shard 7 is damaged\nFatal Python error: Aborted\n\nThread 0x00007f1 (most recent call first):\n"
    around = replace(circumstances(tail=tail), end_of_rank=lambda child, number: Failure(1, 134, 6) if number == 1 else None)
    elsewhere = Ending("failed", 1, "", from_elsewhere=True, at=0.5)
    found = judge.suspects(plan, elsewhere, [child], around)
    assert [each.exit_code for each in found] == [134] * by_itself
    notes = unwell.notes(plan, [child], found, around.tail_of_rank, lambda process: False, from_elsewhere=True)
    told = "rank 1 on node 0 (n0) had not ended when it was told to, but it had said: ValueError: shard 7 is damaged"
    assert notes == ([] if by_itself else [told])


@pytest.mark.parametrize("stop", [None, (signal.SIGTERM, 9.0)])
@pytest.mark.parametrize(
    "said", ["ERROR: vocabulary 32000 does not match 50257", "ValueError: x", "ConnectionResetError: [Errno 104] Reset by peer"]
)
def test_what_a_launcher_had_said_of_its_only_rank_before_it_was_told_counts(stop: tuple[int, float] | None, said: str) -> None:
    """It says of no others that it ends them; another node may have noticed it first, or somebody stops the job."""
    plan = helpers.plan(helpers.local(2, "1"), method="torchrun")
    report = b"E1127 08:50:56.2 7 torch/elastic/multiprocessing/api.py:1002] failed (exitcode: 3) local_rank: 0 (pid: 8) of binary\n"
    child = of_torchrun(plan, 15, signal.SIGTERM, tail=report)
    child.said, child.told_at = report, 9.0
    rank = Watched(1, tree.Identity(8, 1))
    rank.ended_at = 1.0
    child.below = SimpleNamespace(ended=[rank], failed=[], unknown=[rank])  # type: ignore[assignment]
    frames = "" if said.startswith("ERROR") else 'Traceback (most recent call last):\n  File "x.py", line 1, in load\n    f()\n'
    tail = f"{frames}{said}\n".encode()
    around = replace(circumstances(tail=tail), stop=stop, wrote=lambda: [(1, tail, 0.5)])  # which is an exception that was ending it
    ending = Ending("stopped", 143, "stopped by SIGTERM", at=9.0) if stop else Ending("failed", 1, "", at=9.0, from_elsewhere=True)
    (found,) = [each for each in judge.suspects(plan, ending, [child], around) if each.culprit]
    assert found.culprit
    assert found.culprit.error
    assert (found.culprit.rank, found.exit_code, found.culprit.error.line) == (1, 3, said)


def test_a_rank_whose_end_its_launcher_has_fetched_has_still_said_why() -> None:
    """It was told to end for another's sake, after it had written the cause."""
    plan = helpers.plan(helpers.local(), method="deepspeed")
    child = of_torchrun(plan, 15, signal.SIGTERM)
    first, second = (Watched(rank, tree.Identity(7 + rank, 1)) for rank in (0, 1))
    first.status, second.by_itself = 1 << 8, False
    child.below = SimpleNamespace(ended=[first, second], failed=[first], unknown=[], pids=[])  # type: ignore[assignment]
    found = judge.suspects(plan, replace(FAILED, child=child), [child], circumstances(tail=b"torch.OutOfMemoryError: CUDA out of memory\n"))
    assert [(each.culprit.rank, each.exit_code) for each in found if each.culprit] == [(0, 1), (1, 1)]
    assert [each.culprit.error and each.culprit.error.name for each in found if each.culprit] == [None, "cuda-out-of-memory"]


def test_a_rank_that_leaves_mpi_without_a_word_is_told_though_another_lost_it_before() -> None:
    """As mpirun writes it of two hosts."""
    lost = DISCONNECTED.decode()
    left = "mpirun has exited due to process rank 1 with PID 114 on\nnode 10.77.75.11 exiting improperly. There are three reasons this\n"
    plan = helpers.plan(helpers.local(), method="mpirun")
    for text in (f"{lost}{left}", left):
        error = words.of_wrong_call(text.encode(), plan)
        assert error
        assert (error.name, error.kind) == ("mpi-ended-without-finalize", "cause")
    assert not words.of_wrong_call(lost.encode(), plan)


def test_what_a_launcher_says_of_itself_is_not_of_its_only_rank() -> None:
    plan = helpers.plan(helpers.local(slots="1"), method="torchrun")
    child = of_torchrun(plan, 1 << 8)
    for pid, rank in ((child.identity.pid, None), (child.identity.pid + 1, 0)):
        found = words.placed_by(plan, child, Failure(None, 143, signal.SIGTERM, pid))
        assert found
        assert (found.rank, found.pid) == (rank, pid)


def test_a_victim_whose_end_its_launcher_was_faster_to_fetch_was_told_to_end() -> None:
    plan = helpers.plan(helpers.local(4), method="deepspeed")
    child = of_torchrun(plan, 1 << 8)
    failed, unseen, seen, caught = (Watched(rank, tree.Identity(7 + rank, 1)) for rank in range(4))
    failed.status, seen.status, caught.status = 1 << 8, 9, 143 << 8
    unseen.by_itself = seen.by_itself = caught.by_itself = False
    child.below = SimpleNamespace(ended=[failed, unseen, seen, caught], failed=[failed], unknown=[])  # type: ignore[assignment]
    ending, common = replace(FAILED, child=child), Judgement("failed", 1, "")
    found = judge.verdict(plan, common, ending, [child], circumstances(), "").victims
    assert [(victim.rank, victim.signal) for victim in found] == [(1, "SIGTERM"), (2, "SIGKILL")]


@pytest.mark.parametrize(
    ("surely", "says", "number", "counts"),
    [
        (True, False, 21 << 8, True),
        (True, False, 9, True),
        (True, False, 15, False),
        (False, True, 21 << 8, True),
        (False, True, 15, False),
        (False, True, 9, False),
        (False, False, 21 << 8, False),
    ],
    ids=[
        "the launcher was held",
        "and it was killed",
        "of its SIGTERM before",
        "before it said that it ends them",
        "of its SIGTERM",
        "of its SIGKILL",
        "nobody knows",
    ],
)
def test_a_rank_that_had_failed_before_its_launcher_could_end_it(surely: bool, says: bool, number: int, counts: bool) -> None:
    plan = helpers.plan(helpers.local(), method="torchrun")
    child = of_torchrun(plan, 1 << 8, tail=TABLE.encode())
    rank = Watched(0, tree.Identity(7, 1))
    rank.status, rank.ended_at, rank.surely, child.ends_ranks = number, 0.5, surely, says
    child.below = SimpleNamespace(ended=[rank], failed=[rank])  # type: ignore[assignment]
    told = replace(circumstances(), end_of_rank=lambda child, number: Failure(0, rank.code, rank.signal) if number == 0 else None)
    found = judge.suspects(plan, replace(FAILED, child=child), [child], told)
    assert [(each.culprit.rank, each.at) for each in found if each.culprit] == [*([(0, 0.5)] if counts else []), (1, 1.0)]


def judged(memory: Memory, tail: bytes) -> Suspect:
    """Of a rank of torchrun that was killed."""
    plan = helpers.plan(helpers.local(), method="torchrun")
    child = of_torchrun(plan, 1 << 8, tail=TABLE.encode())
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], circumstances(memory, tail))
    return found


def seen(*ranks: tuple[int, int, bool]) -> Below:
    """Ranks that were seen to end: number, signal, whether by themselves."""
    return SimpleNamespace(ended=[SimpleNamespace(rank=rank, signal=number, by_itself=own) for rank, number, own in ranks])  # type: ignore[return-value]


def test_victims_of_a_launcher_are_its_ranks() -> None:
    """Also where it was ranklaunch that told it to end, for another node's failure, and one of them had time to save."""
    plan = helpers.plan(helpers.local(2, index=1), method="torchrun")
    child = of_torchrun(plan, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
    child.below = seen((2, signal.SIGTERM, False), (3, 0, False))
    common = Judgement("failed", 3, "", Culprit(0, 1, 7, 3, None, False, ()))
    found = judge.verdict(plan, common, Ending("failed", 3, "", from_elsewhere=True), [child], circumstances(), "").victims
    assert [(victim.name, victim.rank, victim.signal) for victim in found] == [
        ("rank 2", 2, "SIGTERM"), ("rank 3", 3, "SIGTERM"), ("torchrun", None, "SIGKILL"),
    ]  # fmt: skip


def test_a_culprit_is_no_victim() -> None:
    plan = helpers.plan(helpers.local(), method="torchrun")
    child = of_torchrun(plan, 1 << 8, tail=TABLE.encode())
    child.below = seen((1, signal.SIGKILL, True), (0, signal.SIGTERM, False))
    common = Judgement("failed", 137, "", Culprit(0, 1, 7, 137, "SIGKILL", False, ()))
    found = judge.verdict(plan, common, Ending("failed", 1, "", child), [child], circumstances(), "").victims
    assert [(victim.rank, victim.signal) for victim in found] == [(0, "SIGTERM")]


@pytest.mark.parametrize("told", [True, False])
def test_whom_a_launcher_has_ended_is_not_before_the_rank_that_failed(told: bool) -> None:
    """Rank 0 tells of an exception that it had caught; two questions for the time are answered a millisecond apart, as on a machine that
    is busy. told: whether torchrun says that it has ended rank 0, which then did not fail."""
    plan = helpers.plan(helpers.local(RANKLAUNCH_SLOTS="2"), method="torchrun")
    words = {0: b"FileNotFoundError: shard 17\nstep 3\n", 1: b"ValueError: loss is nan\n"}
    child = of_torchrun(plan, 1 << 8, tail=(ENDED if told else TABLE.replace("-9 (pid: 7)  (SIGKILL)", "1 (pid: 7)")).encode())
    late = itertools.count(0, -0.001)
    around = replace(circumstances(), tail_of_rank=lambda rank: TRACEBACK + words[rank or 0], wall=lambda at: 1.7e9 + at + next(late))
    found = blame.ordered(judge.suspects(plan, Ending("failed", 1, "", child), [child], around))
    assert [each.culprit.rank for each in found if each.culprit] == ([1] if told else [1, 0])


@pytest.mark.parametrize(
    ("status", "number", "late", "stops"),
    [(15, 15, 0.5, True), (15, 2, 0.5, False), (15, 15, 60.0, False), (1 << 8, 15, 0.5, False), (None, 15, 0.5, False)],
)
def test_a_signal_that_a_rank_has_died_of_too_stops_the_job(status: int | None, number: int, late: float, stops: bool) -> None:
    """status: None for a launcher that lives yet, although a rank of it has failed."""
    plan = helpers.plan(helpers.local(), method="deepspeed")
    child = of_torchrun(plan, status or 0)
    child.end = child.end if status is not None else None
    now = (child.end.at if child.end else 0.0) + late
    assert closing.is_stop_too(plan, Ending("failed", 1, "", child), number, now) == stops


@pytest.mark.parametrize(
    ("role", "status", "waits"),
    [(SERVICE, 0, True), (SERVICE, 15, True), (SERVICE, 2, True), (SERVICE, 9, False), (SERVICE, 1 << 8, False), (RANK, 15, False)],
)
def test_a_service_that_ends_as_by_a_stop_request_waits_for_it(role: str, status: int, waits: bool) -> None:
    child = Child(helpers.plan(helpers.local(), method="spawn").processes[0], tree.identify(os.getpid()), role)
    child.end = End(status, 1.0)
    assert closing.failure(child)
    assert closing.may_be_stopped(child) == waits


@pytest.mark.parametrize(("code", "failed"), [(143, False), (1, True)])
def test_a_shell_that_ends_as_its_program_did_of_sigterm_did_not_fail(code: int, failed: bool) -> None:
    """What the program had caught, and told of, is no reason then."""
    plan = helpers.plan(helpers.local(), method="spawn")
    child = of_torchrun(plan, code << 8, signal.SIGTERM, tail=TRACEBACK + b"ValueError: x\n")
    found = judge.suspects(plan, Ending("stopped", 143, "", from_elsewhere=True), [child], circumstances())
    assert [each.exit_code for each in found] == ([1] if failed else [])


def test_a_launchers_words_are_not_those_of_a_rank_that_wrote_nothing() -> None:
    culprit = judged(Memory(), b"").culprit
    assert culprit
    assert (culprit.rank, culprit.exit_code, culprit.last_lines) == (1, 137, ())
    said = judged(Memory(), b"step 3\n").culprit
    assert said
    assert said.last_lines == ("step 3",)


def test_what_ranks_wrote_into_their_launchers_output() -> None:
    """torchrun with c10d on several nodes, or --tee: the rank that failed is known, and no output is its own."""
    plan = helpers.plan(helpers.local(2, RANKLAUNCH_EXTRA_TORCHRUN_PARAMS="--rdzv_backend=c10d"), method="torchrun")
    lost = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:7"
    said = f"step 1\n{lost}\nE1122 api.py:984] failed (exitcode: 1) local_rank: 1 (pid: 7) of x\n"
    table = TABLE.replace("-9 (pid: 7)  (SIGKILL)", "1 (pid: 7)")
    child = of_torchrun(plan, 1 << 8, tail=f"{said}{table}".encode())
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], circumstances())
    assert found.culprit
    assert found.culprit.error
    assert (found.culprit.error.kind, found.culprit.last_lines[0]) == (CONSEQUENCE, "step 1")
    stopped = of_torchrun(plan, 1 << 8, signal.SIGTERM, tail=f"ValueError: x\n{said}{table}".encode())
    assert judge.suspects(plan, Ending("stopped", 143, ""), [stopped], circumstances())[0].outcome == "stopped"


RAISED = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: x\n'


@for_each(
    {
        "nothing": (Memory(), b"", "; the kernel killed nothing here for memory"),
        "its last words": (Memory(), b"step 3\n", "; its last line: step 3; the kernel killed nothing here for memory"),
        "not known": (UNKNOWN, b"", ""),
        "long before": (Memory(1, seen=((-60.0, 1),)), b"", "; the kernel killed nothing here for memory then"),
        "long before, and now": (Memory(2, seen=((-60.0, 1), (2.0, 2))), b"", ": out of memory, by the kernel's own count (2 killed)"),
        "for memory": (Memory(1, 1 << 30, 1 << 30), b"", ": out of memory, by the kernel's own count (1 killed; at most 1.00 GiB in use"),
        "an exception": (Memory(), RAISED, "; its last line: ValueError: x; the kernel killed nothing here for memory"),
    }
)
def test_what_is_known_of_memory_after_137(memory: Memory, tail: bytes, said: str) -> None:
    found = judged(memory, tail)
    reason = found.reason or blame.sentence(found.culprit)  # type: ignore[arg-type]
    assert reason.startswith(f"rank 1 on node 0 was killed by SIGKILL{said}")
    assert bool("nothing here" in reason) == ("nothing here" in said)


@for_each(
    {
        "not counted": (UNKNOWN, ""),
        "nothing": (Memory(), "; the kernel killed nothing here for memory"),
        "for memory": (Memory(1), ": out of memory, by the kernel's own count (1 killed)"),
    }
)
def test_a_shell_whose_program_was_killed(memory: Memory, said: str) -> None:
    """It is no consequence of another rank's failure."""
    plan = helpers.plan({}, method="plain")
    word = "train.sh: line 2: 4711 Killed                  python train.py"
    child = of_torchrun(plan, 137 << 8, tail=f"step 3\n{word}\n".encode())
    (found,) = judge.suspects(plan, Ending("failed", 137, "", child), [child], circumstances(memory))
    assert found.culprit
    reason = found.reason or blame.sentence(found.culprit)
    assert reason == f"{blame.name(found.culprit)} on node 0 exited with code 137{said if ': out' in said else f': {word}{said}'}"
    several = of_torchrun(plan, 137 << 8, tail=f"{word.replace('train.py', '-c')} 'import time\ntime.sleep(9)'\n".encode())
    (other,) = judge.suspects(plan, Ending("failed", 137, "", several), [several], circumstances(memory))
    assert other.culprit
    assert other.culprit.out_of_memory == (memory.kills > 0)
    assert not found.is_consequence
    assert words.of_others(child.reader.output.tail, plan) == ""  # type: ignore[union-attr]


def test_what_a_killed_launcher_leaves_says_nothing_of_its_end() -> None:
    """DeepSpeed's launch.py writes on after its runner, and of being ended for that."""
    plan = helpers.plan(helpers.local(), method="deepspeed")
    child = of_torchrun(plan, int(signal.SIGKILL), tail=b"step 1\nMain process received SIGTERM, exiting\n")
    child.said = b"step 1\n"
    (found,) = judge.suspects(plan, Ending("failed", 137, "", child), [child], circumstances())
    assert found.culprit
    assert (found.culprit.last_lines, found.culprit.error) == (("step 1",), None)


@for_each(
    {
        "of PyTorch": "[rank0]: OSError: [Errno 5] Input/output error",
        "of a filter": "[0] OSError: [Errno 5] Input/output error",
        "of a group": "    | OSError: [Errno 5] Input/output error\n    +------------------------------------",
        "of both": "[rank0]:     | OSError: [Errno 5] Input/output error\n[rank0]:     +------",
    }
)
def test_frames_of_a_traceback_are_not_part_of_the_reason(line: str) -> None:
    known = words.known(f"Traceback (most recent call last):\n{line}\n".encode(), helpers.plan(helpers.local()))
    assert known
    assert known.line == "OSError: [Errno 5] Input/output error"


@for_each(
    {
        "it says nothing": (9 << 8, b"", 9, [1, None]),
        "what nobody knows": (255 << 8, b"Authorized users only.\n", 255, [1, None]),
        "its report is lost": (9 << 8, LOST_REPORT, 9, [1, None]),
        "and one lost its peer": (9 << 8, LOST_REPORT + DISCONNECTED, 9, [1, None]),
        "it was killed": (9, b"", 137, [None, 1]),
        "it says why": (1 << 8, b"ssh: connect to host n2 port 22: Connection refused\n", 1, [None, 1]),
    }
)
def test_a_launcher_that_says_neither_who_nor_why_is_behind_its_rank_that_says_why(
    status: int, says: bytes, code: int, ranks: list[int | None]
) -> None:
    plan = helpers.plan(helpers.local(), method="mpirun")
    child = of_torchrun(plan, status, tail=says)
    around = circumstances(tail=TRACEBACK + b"ValueError: boom\n")
    found = blame.ordered(judge.suspects(plan, Ending("failed", 1, "", child), [child], around))
    assert [each.culprit.rank for each in found if each.culprit] == ranks
    assert found[0].exit_code == code


def test_that_mpirun_has_lost_the_words_explains_more_than_that_a_rank_lost_its_peer() -> None:
    """As of a rank on one of two hosts that calls MPI_Abort without a word."""
    known = words.known(LOST_REPORT + DISCONNECTED, helpers.plan(helpers.local()))
    assert known
    assert known.name == "mpi-words-lost"


TEED = """[default1]:hi 1
tile server said no
[default1]:warming the cache of rank 1
W1128 11:44:18.131000 16406 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 16413 closing signal SIGTERM
E1128 11:44:18.230000 16406 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 7) local_rank: 0 (pid: 16412)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


WRITTEN = TEED[: TEED.index("W1128")]


@pytest.mark.parametrize(("rank", "said"), [(2, "tile server said no\n"), (3, WRITTEN), (None, WRITTEN)])
def test_lines_that_torchrun_marks_as_anothers_are_not_the_failed_ranks(rank: int | None, said: str) -> None:
    """As with --redirects 1 --tee 1:3, on the second node."""
    env = {**helpers.modelarts(2, 2, 1), "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--redirects 1 --tee 1:3"}
    assert words.of_ranks(TEED.encode(), helpers.plan(env, method="torchrun"), Failure(rank, 7)).decode() == said
    env["RANKLAUNCH_EXTRA_TORCHRUN_PARAMS"] += " --role trainer"
    by_role, said = TEED.replace("default", "trainer"), said.replace("default", "trainer")
    assert words.of_ranks(by_role.encode(), helpers.plan(env, method="torchrun"), Failure(rank, 7)).decode() == said


def test_words_that_no_entry_knows_count_where_mpirun_names_no_rank() -> None:
    """As where one has ended while mpirun was still starting the others."""
    plan = helpers.plan(helpers.local(), method="mpirun")
    child = of_torchrun(plan, 1 << 8, tail=b"Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n")
    around = circumstances(tail=b"./b.sh: line 3: cd: /nope: No such file or directory\n")
    found = blame.ordered(judge.suspects(plan, Ending("failed", 1, "", child), [child], around))[0].culprit
    assert found
    assert found.error
    assert (found.rank, found.error.line) == (1, "./b.sh: line 3: cd: /nope: No such file or directory")


def test_a_rank_of_mpiruns_on_another_node_has_failed_once() -> None:
    plan = helpers.plan(helpers.modelarts(2, 1, 0), method="mpirun")
    said = TRACEBACK + b"IndexError: tile 8\n"
    aborted = b"MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    child = of_torchrun(plan, 1 << 8, tail=aborted)
    around = replace(circumstances(tail=said), explain=lambda child, tail: open_mpi.report(tail), wrote=lambda: [(1, said, 0.5)])
    found = judge.suspects(plan, Ending("failed", 1, "", child, at=1.0), [child], around)
    assert [(each.node, each.culprit and each.culprit.rank) for each in found] == [(1, 1)]


CHECKPOINT = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "train.py", line 9, in <module>
[rank{rank}]:     dcp.save(state, checkpoint_id=folder)
[rank{rank}]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([{named}])
[rank{rank}]: Traceback (most recent call last): (RANK 3)
[rank{rank}]:   File "utils.py", line 241, in all_reduce
[rank{rank}]:     local_data = map_fun()
[rank{rank}]: PermissionError: [Errno 13] Permission denied: '/mnt/ck/__3_0.distcp'
"""


@pytest.mark.parametrize(("named", "said"), [("3", "rank 3"), ("2, 3", "ranks 2, 3")])
def test_a_checkpoint_that_fails_on_some_ranks_is_theirs_although_all_raise_it(named: str, said: str) -> None:
    plan = helpers.plan(helpers.modelarts(2, 2, 0), method="spawn")
    children = []
    for rank in range(2):
        children.append(of_torchrun(plan, 1 << 8, tail=CHECKPOINT.format(rank=rank, named=named).encode()))
        children[-1].process, children[-1].role = plan.processes[rank], RANK
    found = judge.suspects(plan, Ending("failed", 1, "", children[0], at=1.0), children, circumstances())
    judged = blame.judge(found)
    assert judged.culprit
    assert (judged.culprit.rank, judged.culprit.node, judged.notes) == (int(named[0]), 1, ())
    place = f"node 1 ({plan.job.nodes[1].host})"
    why = "PermissionError: [Errno 13] Permission denied: '/mnt/ck/__3_0.distcp'"
    assert judged.reason == f"rank {named[0]} on {place} exited with code 1: CheckpointException of {said}: {why}"


def test_open_mpis_word_of_a_wrong_call_is_the_reason() -> None:
    """It stands in mpirun's output, and the rank's own ends in its work."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0), method="mpirun")
    told = "[h1:9] *** reported by process [31,1]\n[h1:9] *** on communicator MPI_COMM_WORLD\n[h1:9] *** MPI_ERR_ROOT: invalid root\n"
    child = of_torchrun(plan, 8 << 8, tail=told.encode())
    around = replace(circumstances(tail=b"step 9\n"), explain=lambda child, tail: open_mpi.report(tail))
    (found,) = judge.suspects(plan, Ending("failed", 8, "", child, at=1.0), [child], around)
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.rank, found.culprit.error.line) == (1, 1, "[h1:9] *** MPI_ERR_ROOT: invalid root")


def test_a_note_of_a_rank_names_the_node_of_that_rank() -> None:
    """mpirun on node 0 has started it on another."""
    plan = helpers.plan(helpers.modelarts(2, 2, 0), method="mpirun")
    child = of_torchrun(plan, 15, signal.SIGTERM)
    rank = Watched(3, tree.Identity(8, 1))
    rank.by_itself = False
    child.below = SimpleNamespace(ended=[rank])  # type: ignore[assignment]
    said = TRACEBACK + b"KeyError: 'optimizer_state'\n"
    (note,) = unwell.notes(plan, [child], [], lambda rank: said if rank == 3 else b"", lambda process: True, asked=True)
    place = f"node 1 ({plan.job.nodes[1].host})"
    assert note == f"rank 3 on {place} had not ended when it was told to, but it had said: KeyError: 'optimizer_state'"


def of_deepspeed(plan: Plan, tail: str) -> tuple[Suspect, ...]:
    """Of its runner, with this output of all hosts."""
    child = of_torchrun(plan, 1 << 8, tail=tail.encode())
    around = replace(circumstances(), explain=lambda child, tail: deepspeed.report(tail))
    return tuple(judge.suspects(plan, Ending("failed", 1, "", child), [child], around))


@pytest.mark.parametrize("late", [False, True])
def test_a_rank_that_srun_told_of_says_why_itself(late: bool) -> None:
    """Also where its words come behind srun's."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="slurm"), method="deepspeed")
    own, told = f"{TRACEBACK.decode()}IndexError: tile 8\n", "srun: error: h1: task 1: Exited with exit code 1\n"
    (found,) = of_deepspeed(plan, "".join(["hi\n", *([told, own] if late else [own, told]), "srun: Terminating\n"]))
    assert found.culprit
    assert found.culprit.error
    assert (found.culprit.rank, found.culprit.error.line) == (1, "IndexError: tile 8")


OF_MPIRUN = """--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
step 3
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[48717,1],1]
  Exit code:    1
--------------------------------------------------------------------------
"""


def test_the_rank_of_which_deepspeeds_mpirun_tells_is_on_its_own_node() -> None:
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-0.bin'"
    (found,) = of_deepspeed(plan, f"step 1\n{TRACEBACK.decode()}{missing}\nstep 2\n{OF_MPIRUN}")
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.rank, found.exit_code, found.culprit.error.line) == (1, 1, 1, missing)


@pytest.mark.parametrize("begins", ["before", "after"])
def test_who_was_ending_by_an_exception_before_another_was_killed_is_named_in_an_output_of_all_ranks(begins: str) -> None:
    """PyTorch takes some tenths of a second from its traceback to its end."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
    raised = MARKED.format(rank=1, raised="FileNotFoundError: No such file: '/nope'")
    report = SEEN_BY_MPIRUN.replace("signal 11 (Segmentation fault)", "signal 9 (Killed)")
    first, _, rest = report.partition("mpirun noticed")
    (found,) = of_deepspeed(plan, f"{raised}{report}" if begins == "before" else f"{first}{raised}mpirun noticed{rest}")
    assert found.culprit
    assert (found.culprit.rank, found.exit_code) == ((1, 1) if begins == "before" else (0, 137))


@pytest.mark.parametrize(("code", "is_own"), [(7, False), (1, True)])
def test_a_loss_that_some_rank_tells_of_is_not_the_first_ranks_where_that_ended_by_a_code_of_its_own(code: int, is_own: bool) -> None:
    """All ranks write into one output; who has lost a peer ends with 1, mostly."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
    lost = "[pair.cc:537] Read error [10.0.0.1]:52426: Connection reset by peer"
    (found,) = of_deepspeed(plan, f"step 20\nERROR trainer: epoch failed: {lost}\n{OF_MPIRUN.replace('code:    1', f'code:    {code}')}")
    assert found.culprit
    assert (found.culprit.rank, found.exit_code, bool(found.culprit.error), found.is_consequence) == (1, code, is_own, is_own)
    assert lost in found.reason or (found.culprit.error and lost in found.culprit.error.line)
    assert ("among the last lines of all ranks: " in found.reason) != is_own


@pytest.mark.parametrize("last", ["step 20", "ERROR trainer: [pair.cc:537] Read error [10.0.0.1]:52426: Connection reset by peer"])
def test_nothing_that_stands_last_in_an_output_of_all_ranks_is_the_killed_ranks_own(last: str) -> None:
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
    report = SEEN_BY_MPIRUN.replace("signal 11 (Segmentation fault)", "signal 9 (Killed)")
    (found,) = of_deepspeed(plan, f"step 19\n{last}\n{report}")
    assert (found.exit_code, found.is_consequence) == (137, False)
    assert found.reason.endswith(f" was killed by SIGKILL; among the last lines of all ranks: {last}")


def test_nor_is_it_in_an_output_of_torchrun_that_all_ranks_share() -> None:
    """With an option for logs of the user's, such as --tee of one rank."""
    env = {"RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--tee 1:3"}
    plan = helpers.plan({**helpers.modelarts(1, 2), **env}, method="torchrun")
    lost = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:25745"
    failed = "E1122 08:18:54.2 5314 torch/elastic/multiprocessing/api.py:984] failed (exitcode: -9) local_rank: 1 (pid: 7) of x\n"
    child = of_torchrun(plan, 1 << 8, tail=f"[default1]:step 1\n{lost}\n{failed}{TABLE}".encode())
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], circumstances())
    assert (found.exit_code, found.is_consequence, found.culprit and found.culprit.rank) == (137, False, 1)
    assert found.reason.endswith(f" was killed by SIGKILL; among the last lines of all ranks: {lost}")


def test_the_summary_of_torchrun_is_no_rank_s_last_line() -> None:
    """Of a rank whose words went into a file of the user's, and that ended before it was seen."""
    plan = helpers.plan({**helpers.modelarts(1, 2), "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--redirects 3"}, method="torchrun")
    warned = "W1128 08:40:39.856000 5470 torch/distributed/run.py:874] *****************************************"
    named = "[W1128 10:00:52.512345678 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3"
    told = (
        "E1128 08:40:39.972000 5470 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 9) local_rank: 0 (pid: 5476)"
    )
    root = "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 9 (pid: 5476)"
    more = "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    child = of_torchrun(plan, 1 << 8, tail="\n".join([warned, named, f"{told} of binary: python", root, more, ""]).encode())
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], circumstances())
    assert found.exit_code == 9
    assert found.reason.endswith(" exited with code 9; it wrote nothing into the output of torchrun, which may keep it in files")


@pytest.mark.parametrize("last", ["ERROR: rank 0 retries", "[2026-11-28 11:42:22,603] [WARNING] [train.py:9:<module>] no checkpoint"])
def test_a_code_alone_makes_no_line_of_several_ranks_the_one_that_exits(last: str) -> None:
    """Programs log by DeepSpeed's logger too, whose lines its launcher also writes."""
    plan = helpers.plan({**helpers.modelarts(1, 2), "RANKLAUNCH_EXTRA_TORCHRUN_PARAMS": "--redirects 1"}, method="torchrun")
    told = "E1128 11:42:23.9 5 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 5) local_rank: 1 (pid: 7) of x\n"
    child = of_torchrun(plan, 1 << 8, tail=f"{last}\n{told}{TABLE}".replace("exitcode  : -9", "exitcode  : 5").encode())
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], circumstances())
    assert found.reason.endswith(f" exited with code 5; among the last lines of all ranks: {last}")


def test_what_another_launcher_reports_in_an_output_of_all_ranks_is_not_the_killed_ranks_own() -> None:
    """That of an evaluation, which another rank has got over."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
    others = "E1128 12:44:34.9 4788 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 3) local_rank: 0 (pid: 4791)"
    report = SEEN_BY_MPIRUN.replace("signal 11 (Segmentation fault)", "signal 9 (Killed)")
    (found,) = of_deepspeed(plan, f"step 19\n{others} of binary: x\nevaluated: 1\n{report}")
    assert found.reason.endswith(" was killed by SIGKILL; among the last lines of all ranks: evaluated: 1")


def test_a_rank_of_which_only_the_pid_is_known_is_not_its_launcher() -> None:
    plan = helpers.plan({**helpers.modelarts(1, 2), "RANKLAUNCH_EXTRA_MSRUN_PARAMS": "--log_dir=lg"}, method="msrun")
    report = "[mindspore/parallel/cluster/process_entity/_api.py:365] Worker process 12 exit with exception. Error code: -9."
    child = of_torchrun(plan, 1 << 8, tail=f"step 1\n[ERROR] ME(10088:140375963057024,MainProcess):{report}\n".encode())
    around = replace(circumstances(), explain=lambda child, tail: msrun.report(tail))
    (found,) = judge.suspects(plan, Ending("failed", 1, "", child), [child], around)
    assert found.exit_code == 137
    assert found.reason.startswith("a rank of msrun on node 0 ")
    assert found.reason.endswith(" was killed by SIGKILL; among the last lines of all ranks: step 1")


def by_pdsh(
    *said: tuple[int, str, int], begin: str = "nnodes=2, num_local_procs=1, node_rank={}\n", apart: bool = False
) -> tuple[Suspect, ...]:
    """Of two nodes through DeepSpeed's runner, which has all hosts in one output. said: node, what its rank said, and its exit code, which
    is told once all have said theirs, or (apart) before the next says anything."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh"), method="deepspeed")
    hosts = [node.host.partition(".")[0] for node in plan.job.nodes]  # as pdsh calls them, where they have one domain
    told = "[2026-11-25 23:42:46,282] [{}] [launch.py:25{}:sigkill_handler] {}\n"
    lines = [(node, begin.format(node) + text) for node, text, _ in said]
    for number, (node, _, code) in enumerate(said):
        ends = told.format("INFO", 3, "Killing subprocess 1") + told.format("ERROR", 9, f"['python'] exits with return code = {code}")
        lines.insert(2 * number + 1 if apart else len(lines), (node, ends))
    tail = "".join(f"{hosts[node]}: {line}" for node, text in lines for line in text.splitlines(keepends=True))
    return of_deepspeed(plan, f"{tail}pdsh@{hosts[0]}: {hosts[0]}: ssh exited with exit code 241\n")


MARKED = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "train.py", line 9, in <module>
[rank{rank}]: {raised}
"""


@pytest.mark.parametrize("code", [1, -15, -6])
def test_by_pdsh_who_has_raised_why_is_to_blame_also_where_it_was_told_to_end_on_its_way_out(code: int) -> None:
    """Its peer, which lost the connection, had ended before; -6 is of ranklaunch, for its stacks."""
    lost, missing = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:25745", "FileNotFoundError: No such file: '/nope'"
    aborted = "Fatal Python error: Aborted\n" if code == -6 else ""
    of_one = MARKED.format(rank=1, raised=missing) + aborted
    found, *_ = by_pdsh((0, MARKED.format(rank=0, raised=lost), 1), (1, of_one, code))
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.rank, found.exit_code, found.culprit.signal) == (1, 1, 1, None)
    assert found.culprit.error.line == missing


@pytest.mark.parametrize("apart", [False, True])
def test_by_pdsh_a_crash_that_was_told_before_another_rank_said_why_it_failed_was_first(apart: bool) -> None:
    raised = "Traceback (most recent call last):\n  File \"p.py\", line 5, in <module>\nFileNotFoundError: No such file: '/nope'\n"
    found, *_ = by_pdsh((1, "step 5\n", -9), (0, raised, 1), apart=apart)
    assert found.culprit
    assert (found.node, found.exit_code) == ((1, 137) if apart else (0, 1))


@pytest.mark.parametrize("by", ["pdsh", "openmpi"])
def test_by_one_launcher_the_exception_of_a_rank_that_was_long_on_its_way_out_is_told(by: str) -> None:
    """The others' steps go on meanwhile, in the same output."""
    raised = 'Traceback (most recent call last):\n  File "p.py", line 5, in <module>\nValueError: sample 2 is bad\n'
    steps = ["".join(f"step {5 * number}\n" for number in numbers) for numbers in (range(1, 5), range(5, 11))]
    text = f"{steps[0]}{raised}{steps[1]}"
    if by == "pdsh":
        (found,) = by_pdsh((1, text, 1))
    else:
        plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="openmpi"), method="deepspeed")
        (found,) = of_deepspeed(plan, text + OF_MPIRUN)
    assert (found.node, found.exit_code) == (1, 1)
    assert found.reason.endswith("its last exception, with other lines behind it: ValueError: sample 2 is bad")


@pytest.mark.parametrize(("code", "last"), [(7, "CRITICAL:root:lost the data server; stopping"), (1, "tokenizer has 3 tokens, want 4")])
@pytest.mark.parametrize("where", ["<module>", "load"])
def test_what_a_rank_said_behind_an_exception_that_it_had_caught_counts_by_pdsh_too(code: int, last: str, where: str) -> None:
    raised = f"Traceback (most recent call last):\n  File \"p.py\", line 5, in {where}\nFileNotFoundError: No such file: '/nope'\n"
    said = f"ERROR:root:no cache\n{raised}cache rebuilt, going on\n{last}\n"
    (found,) = by_pdsh((1, said, code))
    assert found.culprit
    assert found.culprit.error
    assert found.exit_code == code
    assert last in found.culprit.error.line


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("ssh: connect to host {} port 36666: No route to host", "ssh-unreachable"),
        ("Host key verification failed.", "ssh-denied"),
        ("Timeout, server {} not responding.", "words-of-a-peer"),
    ],
)
def test_a_node_that_ssh_did_not_reach_or_was_cut_off_from_was_not_killed(begun: bool, said: str, why: str) -> None:
    """The others are told to end then, and say so."""
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh"), method="deepspeed")
    here, host = (node.host for node in plan.job.nodes)
    first = f"{host}: [2026-11-27 07:29:21,072] [INFO] [launch.py:158:main] nnodes=2, num_local_procs=1, node_rank=1\n" if begun else ""
    told = said.format(*[host] * said.count("{}"))
    ends = f"{here}: [2026-11-27 07:29:22,076] [ERROR] [launch.py:259:sigkill_handler] ['python'] exits with return code = -15\n"
    tail = f"{first}{host}: {told}\npdsh@{here}: {host}: ssh exited with exit code 255\n{ends}"
    (found,) = of_deepspeed(plan, tail)
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.name, found.exit_code, found.culprit.signal) == (1, "ssh to launch.py", 255, None)
    assert (found.culprit.error.name, found.culprit.error.line) == (why, told.rpartition(f"{host}: ")[2])


def test_of_a_host_that_has_said_nothing_pdshs_own_words_are_the_last() -> None:
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="pdsh"), method="deepspeed")
    here, host = (node.host.partition(".")[0] for node in plan.job.nodes)
    told = f"pdsh@{here}: {host}: ssh exited with exit code 255"
    ends = f"{here}: [2026-11-27 22:09:05,916] [ERROR] [launch.py:259:sigkill_handler] ['python'] exits with return code = -15\n"
    (found,) = of_deepspeed(plan, f"{told}\n{here}: step 1\n{ends}")
    assert found.culprit
    assert (found.node, found.culprit.name, found.culprit.last_lines) == (1, "ssh to launch.py", (told,))
    assert found.culprit.error is None


def test_a_node_that_srun_has_lost_is_the_one_to_leave_out() -> None:
    plan = helpers.plan(helpers.modelarts(2, 1, 0, RANKLAUNCH_DEEPSPEED_LAUNCHER="slurm"), method="deepspeed")
    here, host = (node.host for node in plan.job.nodes)
    tail = f"step 1\nsrun: error: Node failure on {host}\nsrun: Job step aborted: Waiting\nsrun: error: {here}: task 0: Killed\n"
    (found,) = of_deepspeed(plan, tail)
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.host, found.culprit.error.name) == (1, host, "slurm-node-failed")


def hooked(rank: int, line: str) -> str:
    said = f'{TRACEBACK.decode()}  File "train.py", line 3, in <module>\n    step()\n{line}\n'
    return "".join(f"[rank{rank}]: {each}" for each in said.splitlines(keepends=True))


LOST_PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:47832. This is typically caused by a remote worker crashing."


def test_a_rank_that_pdsh_told_of_says_why_itself() -> None:
    """pdsh writes last, of a host whose ranks were told to end."""
    (found,) = by_pdsh((1, f"{TRACEBACK.decode()}IndexError: tile 8\n", 1), (0, "step 9\n", -15))
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.error.line, found.culprit.last_lines[-1]) == (1, "IndexError: tile 8", "IndexError: tile 8")


def test_the_host_that_pdsh_tells_of_first_may_have_been_told_to_end() -> None:
    """Another one has waited in vain, and its launch.py waits for a rank that saves before it tells of that."""
    timed_out = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 7000ms for recv operation to complete"
    (found, *_) = by_pdsh((0, "step 9\n", -15), (1, f"{TRACEBACK.decode()}{timed_out}\n", 1))
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.exit_code, found.culprit.error.name) == (1, 1, "gloo-timeout")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("begin", ["nnodes=2, num_local_procs=1, node_rank={}\n", ""])  # which may be far above
def test_the_host_that_pdsh_tells_of_first_may_only_have_seen_it(first: int, begin: str) -> None:
    """PyTorch's marks tell which rank it was."""
    of = [(0, hooked(0, LOST_PEER), 1), (1, hooked(1, "IndexError: tile 8"), 1)]
    (found,) = by_pdsh(of[first], of[1 - first], begin=begin)
    assert found.culprit
    assert found.culprit.error
    assert (found.node, found.culprit.rank, found.culprit.error.line) == (1, 1, "IndexError: tile 8")
    (found,) = by_pdsh((0, hooked(0, LOST_PEER), 1), (1, hooked(1, LOST_PEER), 1))
    assert (found.node, found.culprit and found.culprit.rank) == (0, None)
    bad = "ERROR shard 17 is bad"
    for code, said, line in ((6, f"{bad}\n", bad), (-9, "", None), (1, f"{bad}\n", bad)):  # the last of its neighbour
        (found,) = by_pdsh((1, said + hooked(1, LOST_PEER), code))
        assert found.culprit
        assert (found.node, found.culprit.error and found.culprit.error.line) == (1, line)
    (found, *_) = by_pdsh((0, hooked(0, LOST_PEER), 1), (1, "step 9\n", 42))  # who ended by itself is meant, who tells first or not
    assert (found.node, found.exit_code) == (1, 42)
    (found, *_) = by_pdsh((0, hooked(0, LOST_PEER), 1), (1, "step 9\n", -15))
    assert (found.node, found.exit_code) == (0, 1)
    marked = hooked(1, "IndexError: tile 8").replace("<module>", "step")  # as one prints what he has caught
    (found,) = by_pdsh((0, marked, 1))
    assert (found.node, found.culprit and found.culprit.rank) == (0, None)


# A long traceback

LIBRARY = '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1739, in _wrapped_call_impl\n    return call(x)\n'
OWN = '  File "/job/train.py", line {}, in {}\n    step(batch, number)\n    ^^^^^^^^^^^\n'


def test_a_traceback_that_is_too_long_is_shown_by_its_own_frames() -> None:
    text = "epoch 1\n" + HEAD + OWN.format(9, "main") + LIBRARY * 30 + OWN.format(3, "forward") + "ValueError: loss is nan\n"
    assert last_lines(text.encode()) == (
        "epoch 1", HEAD.strip(), '  File "/job/train.py", line 9, in main', "    step(batch, number)", "  ... 30 frames in libraries",
        '  File "/job/train.py", line 3, in forward', "    step(batch, number)", "ValueError: loss is nan",
    )  # fmt: skip


def test_a_traceback_of_very_many_own_frames_keeps_its_beginning() -> None:
    found = last_lines((HEAD + OWN.format(9, "main") * 30 + "ValueError: loss is nan\n").encode())
    assert found[:2] == (HEAD.strip(), "  ...")
    assert (found[-1], len(found)) == ("ValueError: loss is nan", LAST_LINES)


def test_what_is_short_or_is_no_traceback_stays() -> None:
    text = HEAD + LIBRARY + "ValueError: x\n"
    assert last_lines(text.encode()) == tuple(text.splitlines())
    lines = [f"step {i}" for i in range(99)]
    assert last_lines((HEAD + LIBRARY + "ValueError: x\n" + "\n".join(lines)).encode()) == tuple(lines[-LAST_LINES:])


# What to do


def test_a_remedy_tells_the_settings_that_it_is_about() -> None:
    plan = helpers.plan({"RANKLAUNCH_NODES": "2", "RANKLAUNCH_NODE": "0", "RANKLAUNCH_HOSTS": "a,b", "RANKLAUNCH_MASTER_PORT": "29501"})
    error = words.known(b"RuntimeError: The server socket has failed to bind to [::]:29501 (errno: 98).\n", plan)
    assert error
    assert error.remedy.endswith("(--master-port). Now: master_port 29501 (RANKLAUNCH_MASTER_PORT).")
    assert "again: to start the job anew may be enough" in blame.advice(replace(Culprit(0, 1, 7, 1, None, False, ()), error=error))


def test_another_host_is_named_where_this_one_is_at_fault() -> None:
    error = words.known(b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", helpers.plan({}))
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
        error = words.known(b"a" * 60 + b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", plan)
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
