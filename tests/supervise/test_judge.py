"""What is made of processes that have ended, without any."""

from __future__ import annotations

import helpers
from helpers import for_each

from ranklaunch.supervise import judge
from ranklaunch.supervise.judge import Ending
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Culprit

FAILED = Ending("failed", 1, "")


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
