"""One test for many cases says of each whether it holds."""

from __future__ import annotations

import helpers
import pytest


def test_all_cases_that_do_not_hold_are_named() -> None:
    def check(number: int) -> None:
        assert number % 2, "even"

    with pytest.raises(pytest.fail.Exception, match=r"^2 of 4:\ntwo: AssertionError: even\n.*\nfour: AssertionError: even"):
        helpers.check_each(check, {"one": 1, "two": 2, "three": 3, "four": 4})
    helpers.check_each(check, [1, 3])


def test_a_failure_that_pytest_raises_counts() -> None:
    def check(kind: type[Exception], said: str) -> None:
        with pytest.raises(kind, match=r"^a$"):
            raise ValueError(said)

    with pytest.raises(pytest.fail.Exception, match=r"^1 of 2:\n1, "):
        helpers.for_each([(ValueError, "a"), (ValueError, "no (match")])(check)()


def test_no_cases_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        helpers.check_each(lambda case: None, [])
