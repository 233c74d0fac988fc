"""Restarts in place as they are asked for."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Rounds, as_json

ASKED = {"PATH": "/usr/bin", "RANKLAUNCH_MAX_RESTARTS": "3"}


def test_a_plan_says_what_was_asked_for() -> None:
    more = {"RANKLAUNCH_NO_RESTART_CODES": "33, 100", "RANKLAUNCH_PROGRESS_FILE": "/ckpt/latest:ckpt/step_*"}
    plan = helpers.plan({**ASKED, **more}, method="spawn")
    assert (plan.rounds, plan.marks) == (Rounds(3, (33, 100)), ("/ckpt/latest", f"{helpers.CWD}/ckpt/step_*"))
    assert as_json(plan)["restarts"] == {"most": 3, "never": [33, 100], "restarted_outside": False, "marks": [*plan.marks]}


@pytest.mark.parametrize(
    ("name", "value", "outside"),
    [
        ("MA_PROC_START_CNT", "1", True),
        ("SLURM_RESTART_COUNT", "1", True),
        ("RANKLAUNCH_RESTARTS", "0", True),
        ("PET_MAX_RESTARTS", "0", False),
    ],
)
def test_a_platform_that_counts_its_starts(name: str, value: str, outside: bool) -> None:
    rounds = helpers.plan({**ASKED, name: value}, method="spawn").rounds
    assert rounds
    assert rounds.restarted_outside is outside


@pytest.mark.parametrize("most", ["", "0"])
def test_none_are_none(most: str) -> None:
    plan = helpers.plan({"PATH": "/usr/bin", "RANKLAUNCH_MAX_RESTARTS": most}, method="spawn")
    assert plan.rounds is None
    assert "restarts" not in as_json(plan)


@pytest.mark.parametrize("extra", ["--max-restarts=3", "--max_restarts 1"])
def test_a_launchers_own_beside_them_are_refused(extra: str) -> None:
    with pytest.raises(ConfigError, match="each would start the ranks again"):
        helpers.plan({**ASKED, "MA_EXTRA_TORCHRUN_PARAMS": extra}, method="torchrun")


def test_a_launchers_own_alone_are_not() -> None:
    helpers.plan({"PATH": "/usr/bin", "MA_EXTRA_TORCHRUN_PARAMS": "--max-restarts=3"}, method="torchrun")
    helpers.plan({**ASKED, "MA_EXTRA_TORCHRUN_PARAMS": "--max-restarts=0"}, method="torchrun")


@pytest.mark.parametrize(
    ("name", "said"),
    [("SLURM_RESTART_COUNT", "1"), ("MA_PROC_START_CNT", "1"), ("PET_MAX_RESTARTS", "x"), ("MA_SCHEDULE_CNT", "9" * 5000)],
)
def test_a_platform_that_starts_the_job_anew_too_is_warned_of(name: str, said: str) -> None:
    plan = helpers.plan({**ASKED, name: said}, method="spawn")
    found = [text for text in plan.warnings if "in each of its starts" in text]
    assert bool(found) == (name == "SLURM_RESTART_COUNT")
    assert all("RANKLAUNCH_MAX_RESTARTS='3' and SLURM_RESTART_COUNT=1" in text and "tried 4 times" in text for text in found)


@pytest.mark.parametrize("codes", ["0", "256", "x", "1,-2", "00011111", "\u00b2", "0001" + "9" * 5000])
def test_what_is_no_code(codes: str) -> None:
    with pytest.raises(ConfigError, match="RANKLAUNCH_NO_RESTART_CODES"):
        helpers.plan({**ASKED, "RANKLAUNCH_NO_RESTART_CODES": codes}, method="spawn")
