"""The names of what a job leaves behind: what is written is found again, and nobody else makes such names."""

from __future__ import annotations

import re

import helpers
import pytest

from ranklaunch.verdict import folders

SOURCES = sorted(
    path
    for folder in (helpers.ROOT / "src" / "ranklaunch", helpers.ROOT / "adapters", helpers.ROOT / "entrypoints")
    for path in folder.rglob("*.py")
    if path.name != "folders.py"
)


def test_names() -> None:
    attempt = folders.attempt(folders.node(folders.job("/logs", "7.0"), 3), 2)
    assert attempt == "/logs/job_7.0/node_3/attempt_2"
    assert folders.rank_log(attempt, 11) == f"{attempt}/rank_11.log"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), []),
        (("attempt_9", "attempt_10", "attempt_1", "rank_3.log"), [1, 9, 10]),
        (("attempt_x", "attempt_", "attempt_01a", "attempt_-1", "xattempt_1", "attempt_1234567"), []),
    ],
)
def test_attempts_are_found_by_their_names(names: tuple[str, ...], found: list[int]) -> None:
    assert folders.attempts(names) == found
    assert folders.newest(names) == max(found, default=0)


@pytest.mark.parametrize("number", [1, 9, 10, 999_999])
def test_what_is_written_is_found(number: int) -> None:
    assert folders.attempts([folders.attempt("", number)]) == [number]


def test_nobody_else_makes_these_names() -> None:
    made = re.compile(r"""(attempt|restart|node|job)_\{|rank_\{[^}]*\}\.log|["'](plan\.json|events\.jsonl|verdict\.json)["']""")
    found = [f"{path}: {line.strip()}" for path in SOURCES for line in path.read_text(encoding="utf-8").splitlines() if made.search(line)]
    assert found == []
