"""What a node knows of a round that has ended: the last steps in its logs, and checkpoints' markers."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path

import helpers
import pytest

from ranklaunch.muster.events import Decide
from ranklaunch.plan.model import Rounds
from ranklaunch.restarts import round_facts
from ranklaunch.restarts.decision import Decider
from ranklaunch.system import bounded
from ranklaunch.verdict.blame import Judgement
from ranklaunch.verdict.model import Culprit, KnownError

pytestmark = pytest.mark.processes

FAILED = Judgement("failed", 7, "rank 1 failed")


def test_the_highest_step_of_some_logs(tmp_path: Path) -> None:
    for rank, steps in enumerate((range(1, 8), range(1, 6))):
        (tmp_path / str(rank)).write_text("".join(f"step: {step} loss: 1.0\n" for step in steps) + "Traceback\nValueError: 99\n")
    assert round_facts.highest([str(tmp_path / "0"), str(tmp_path / "1"), str(tmp_path / "none")]) == (0, 7)
    assert round_facts.highest([str(tmp_path / "none")]) is None
    (tmp_path / "guessed").write_text("".join(f"tick {number}\n" for number in range(100, 110)))
    assert round_facts.highest([str(tmp_path / "guessed")]) == (0, 109)
    (tmp_path / "known").write_text(" iteration        5/     500 |\n")
    assert round_facts.highest([str(tmp_path / "guessed"), str(tmp_path / "known")]) == (0, 5)


def test_markers_that_are_new_count_and_those_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-100").mkdir()
    (tmp_path / "latest").write_text("global_step200")
    (tmp_path / "release").write_text("release")
    os.utime(tmp_path / "checkpoint-100", (1000, 1000))
    os.utime(tmp_path / "latest", (2000, 2000))
    patterns = [str(tmp_path / "checkpoint-*"), str(tmp_path / "latest")]
    assert round_facts.marks(patterns, 1500) == (True, 200, 2000)
    assert round_facts.marks(patterns, 2500) == (True, None, None)
    assert round_facts.marks([str(tmp_path / "release"), str(tmp_path / "none")], 0) == (False, None, None)


def test_markers_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO among them, or a mount that does not answer."""
    os.mkfifo(tmp_path / "latest")
    assert round_facts.marks([str(tmp_path / "lat*")], 0) == (False, None, None)
    monkeypatch.setattr(bounded, "LOOK_S", 0.2)
    monkeypatch.setattr(round_facts.glob, "glob", lambda pattern: time.sleep(60))
    assert round_facts.marks([str(tmp_path / "lat*")], 0) == (False, None, None)


def test_a_clock_that_is_set_makes_no_round_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a crash at once is no progress; and a checkpoint is still one of this round."""
    (tmp_path / "latest").write_text("global_step200")
    plan = helpers.plan({"RANKLAUNCH_PROGRESS_FILE": str(tmp_path / "latest"), "RANKLAUNCH_MAX_RESTARTS": "1"})
    os.utime(tmp_path / "latest", (2000, 2000))
    monkeypatch.setattr(round_facts.time, "time", lambda: 1999.0)
    state = round_facts.state(plan, (), 100.0, 105.0, finished=False)
    assert (state["seconds"], state["mark"], state["since_mark_s"]) == (5.0, 200, 0.0)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"place": 5},
        {"place": [1]},
        {"place": ["a", "b"]},
        {"mark": "x", "marks": 1},
        {"seconds": "long"},
        {"seconds": 10**400},
        {"seconds": math.inf, "since_mark_s": math.nan},
        {"since_mark_s": -(10**400)},
        {"finished": "no", "gone": 3},
        {"stop": [130]},
        {"stop": [0, "stopped"]},
        {"stop": [130, 5]},
        {"stop": "130"},
    ],
    ids=str,
)
def test_what_a_node_says_that_is_none_of_it_says_nothing(state: dict[str, object]) -> None:
    decided = Decider(Rounds(3))(Decide(FAILED, 0, True, "", (state,)))
    assert decided.again
    assert decided.next["restart"]["progress"] is False


@pytest.mark.parametrize(("name", "code"), [("cuda-ecc-error", 75), ("file-system-hangs", None)])
def test_a_device_fault_is_left_to_who_starts_the_job_again(name: str, code: int | None) -> None:
    error = KnownError(name, "cause", "a line", "", "", "", "elsewhere")
    failed = replace(FAILED, culprit=Culprit(0, 1, 100, 7, None, False, (), error=error))
    decided = Decider(Rounds(3, (), restarted_outside=True))(Decide(failed, 0, True, "", ({"launched": True},)))
    assert decided.again is (code is None)
    assert code is None or decided.judgement.exit_code == code


def test_a_node_that_says_that_it_leaves_ends_the_job() -> None:
    decided = Decider(Rounds(3))(Decide(FAILED, 0, True, "", ({"launched": True}, {"launched": True, "gone": "node 1"})))
    assert not decided.again
    assert decided.judgement.exit_code == 7
    assert "node 1 is gone" in decided.judgement.notes[-1]


def test_a_node_that_was_asked_to_stop_ends_the_job_where_it_would_go_on() -> None:
    stop = {"launched": True, "stop": [143, "node 1: stopped by SIGTERM\n\x1b[2J"]}
    decided = Decider(Rounds(3))(Decide(FAILED, 0, True, "", ({"launched": True}, stop)))
    assert not decided.again
    found = decided.judgement
    assert (found.outcome, found.exit_code, found.culprit) == ("stopped", 143, None)
    assert found.reason == r"node 1: stopped by SIGTERM; \x1b[2J"
    assert found.notes[0].endswith(FAILED.reason)
    over = Decider(Rounds(3, (7,)))(Decide(FAILED, 0, True, "", (stop,)))  # a code that no start follows
    assert (over.again, over.judgement.outcome, over.judgement.exit_code) == (False, "failed", 7)
