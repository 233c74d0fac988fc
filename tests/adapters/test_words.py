"""Which options a list of words gives, by the rules of each parser that reads such a list."""

from __future__ import annotations

import helpers
import pytest

from ranklaunch.adapters.launchers.shared import user_options
from ranklaunch.adapters.launchers.shared.base import failed_with
from ranklaunch.verdict.model import Failure


def test_options_are_what_begins_with_a_dash() -> None:
    assert user_options.AS_WRITTEN.options(("--one", "1", "--two=2", "-r3", "three", "--a-b=c")) == {"--one", "--two", "-r3", "--a-b"}
    assert PARSER.options(("--a-b=c", "--node-r")) == {"--a_b", "--node_rank"}


def test_values_in_both_ways_of_writing() -> None:
    given = ("--n", "1", "--n=2", "--m-n=x=y", "--n")
    assert user_options.AS_WRITTEN.values(given, "--n") == ["1", "2", ""]
    assert user_options.AS_WRITTEN.last(given, "--n") == ""
    assert user_options.Parser(hyphens=True).last(given, "--m_n") == "x=y"
    assert user_options.AS_WRITTEN.last(given, "--m_n") == ""


PARSER = user_options.Parser(("--tee", "--role", "--node_rank"), ("--module",), {"-m": "--module", "-t": "--tee"}, hyphens=True)


@helpers.for_each(
    [
        (["--tee", "3", "other.py"], "other.py"),
        (["-t3", "other.py"], "other.py"),
        (["--node-r", "-1", "--role=a b", "-m"], None),
        (["--new=a", "other.py"], "other.py"),
        (["--new", "a", "-m", "other.py"], "other.py"),
        (["--", "-m"], "-m"),
        # What cannot be told is let through.
        (["--new", "a", "b"], None),
        (["--new", "a", "--tee", "3"], None),
        (["-x", "a"], None),
        (["--new=a b", "--tee"], None),
    ]
)
def test_a_word_that_would_be_the_program(given: list[str], expected: str | None) -> None:
    assert PARSER.read(given)[1] == expected


@pytest.mark.parametrize(("returncode", "code", "signal"), [(3, 3, 0), (0, 0, 0), (-9, 137, 9), (137, 137, 0)])
def test_a_return_code_is_a_failure_as_shells_count(returncode: int, code: int, signal: int) -> None:
    assert failed_with(returncode, rank=2, pid=7) == Failure(2, code, signal, 7)
