"""Every job of the oracle is judged as it was when it was recorded.

The cases protect behaviour while the code that judges changes. One that differs is a regression, unless the change is meant: then record it
anew, or change its verdict by hand, and say why in the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helpers
from ends import cases
from ends.replay import differences

from testbench.judges import formats

NEEDS_RECORDS = Path(__file__).resolve().parent / "needs_records.txt"


def same(case: Mapping[str, Any]) -> None:
    found = differences(case)
    assert not found, "\n".join(found)


def test_every_job_is_judged_as_before() -> None:
    helpers.check_each(same, {case["name"]: (case,) for case in cases.load()})


def test_without_records_all_but_a_few_are_judged_the_same() -> None:
    """As with RANKLAUNCH_RANKSIDE=off or `python -I`: only the output and the exit status are left. An exception in it is of no kind then.

    needs_records.txt names the jobs that are judged otherwise then.
    """
    found = {case["name"] for case in cases.load() if differences(cases.without_records(case), kinds=False)}
    assert sorted(found) == NEEDS_RECORDS.read_text(encoding="utf-8").splitlines()


def test_their_ends_fit_the_schema() -> None:
    for case in cases.load():
        for ends in (ends for told in case["rounds"] for ends in told["nodes"]):
            formats.check("ends", cases.whole(ends))


def test_names_are_unique() -> None:
    names = Counter(case["name"] for case in cases.load())
    assert [name for name, count in names.items() if count > 1] == []
