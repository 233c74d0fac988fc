"""Limits on numbers: from the values that ranks write to a breach, and to its end."""

from __future__ import annotations

import statistics
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.hangs.expect import LEAST_VALUES, MOST_VALUES, Breach, Expected, Limit, OnNode, number, parse

Reported = Optional[tuple[int, Breach]]


def limit_of(text: str) -> Limit:
    (rule,) = parse(text)
    assert rule.limit
    return rule.limit


def reported(limit: str, *values: object, every: float = 1.0, rank: int = 0) -> Reported:
    """Report after values of one rank, one each second."""
    node = OnNode(limit_of(rf"x=(\S+) {limit}"))
    for at, value in enumerate(values):
        node.feed(rank, str(value), at * every)
    return node.report()


# Rules


@pytest.mark.parametrize(
    ("text", "pattern", "limit"),
    [
        (r"loss (\S+) < 20", r"loss (\S+)", Limit("<", 20.0, text="< 20")),
        (r"loss (\S+) <= -1.5e3", r"loss (\S+)", Limit("<=", -1500.0, text="<= -1.5e3")),
        (r"tflops (\S+) >= .5", r"tflops (\S+)", Limit(">=", 0.5, text=">= .5")),
        (r"tflops (\S+)  >  200  for  10m", r"tflops (\S+)", Limit(">", 200.0, hold_s=600.0, text=">  200  for  10m")),
        (r"tflops (\S+) > 200 for 90", r"tflops (\S+)", Limit(">", 200.0, hold_s=90.0, text="> 200 for 90")),
        (r"norm (\S+) < 50x median", r"norm (\S+)", Limit("<", 50.0, True, text="< 50x median")),
        (r"norm (\S+) > 0.5 x median for 1.5 h", r"norm (\S+)", Limit(">", 0.5, True, 5400.0, "> 0.5 x median for 1.5 h")),
        # The expression may have signs, and all words of other forms.
        (r"step -> (\d+) < 500", r"step -> (\d+)", Limit("<", 500.0, text="< 500")),
        (r"a < 5 (\d+) > 7", r"a < 5 (\d+)", Limit(">", 7.0, text="> 7")),
        (r"(?<!a)(?P<x>\d+)(?=b) < 5", r"(?<!a)(?P<x>\d+)(?=b)", Limit("<", 5.0, text="< 5")),
        (r"x is number every 5s (\d) < 5", r"x is number every 5s (\d)", Limit("<", 5.0, text="< 5")),
        (r"\d+\.\d+ < 5", r"\d+\.\d+", Limit("<", 5.0, text="< 5")),
        (r"a\;b=(\d+) < 5", r"a;b=(\d+)", Limit("<", 5.0, text="< 5")),
    ],
)
def test_limits(text: str, pattern: str, limit: Limit) -> None:
    (rule,) = parse(text)
    assert (rule.pattern.pattern, rule.limit) == (pattern, limit)
    assert rule.shown == f"{pattern} {limit.text}"


@pytest.mark.parametrize("text", [r"loss (\S+) < 20 every 5m", r"loss (\S+) < 20 is number", r"a -> b by 5s"])
def test_signs_in_rules_of_other_forms(text: str) -> None:
    (rule,) = parse(text)
    assert rule.limit is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"loss (\S+) <20", r"expected REGEX < NUMBER, <=, > or >=, with blanks around the sign, as in: loss (\S+) < 20"),
        (r"loss (\S+)< 20", r"as in: loss (\S+) < 20"),
        (r"loss (\S+)<20", r"as in: loss (\S+) < 20"),
        (r"loss (\S+) < 2O", r"as in: loss (\S+) < 20"),
        (r"loss (\S+) < nan", r"as in: loss (\S+) < 20"),
        (r"loss (\S+) == 20", r"as in: loss (\S+) < 20"),
        (r"loss (\S+) < 20; lr 5 < (\S+)", r"'lr 5 < (\S+)': expected REGEX < NUMBER"),
        (r"norm (\S+) < 50xmedian", r"expected REGEX < Kx median, as in: grad_norm (\S+) < 50x median"),
        (r"norm (\S+) < 50x", r"as in: grad_norm (\S+) < 50x median"),
        (r"norm (\S+) < median", r"as in: grad_norm (\S+) < 50x median"),
        (r"norm (\S+) < 0x median", r"expected more than 0 times the median"),
        (r"norm (\S+) < -2x median", r"expected more than 0 times the median"),
        (r"tflops (\S+) > 200 for 10 minutes", r"expected REGEX > NUMBER for N s, m or h, as in: tflops (\S+) > 200 for 10m"),
        (r"tflops (\S+) > 200 for 0s", r"expected more than 0 seconds"),
        (r"loss (\S+) < 1e999", r"expected a finite number"),
        (r"loss < 20", r"expected a group that matches the number, as in: loss (\S+) < 20"),
        (r"tflops > 0.5x median for 1h", r"as in: tflops (\S+) > 0.5x median for 1h"),
        (r"loss (\S+ < 20", r"'loss (\S+' is no regular expression: missing )"),
        (r"a\;b (\d) <5", r"as in: loss (\S+) < 20"),
        (r"loss (\S+) is numeric", r"expected REGEX is number, as in: loss (\S+) is number"),
        (r"loaded by noon", r"expected REGEX by N s, m or h, as in: data loaded by 20m"),
        (r"step every day", r"expected REGEX every N s, m or h, as in: iteration +\d+ every 300s"),
        (r"loss", r"expected REGEX by N s, REGEX every N s, REGEX is number, or REGEX < NUMBER, as in: "),
    ],
)
def test_a_rule_that_is_none_is_named_with_the_nearest_form(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=r"^'") as raised:
        parse(text)
    assert expected in str(raised.value)
    assert str(raised.value).startswith(f"'{text.split('; ')[-1]}': ")


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2.5", 2.5), (" -3 ", -3.0), ("1e-5,", 1e-5), ("1,234", 1234.0), ("-12,345,678.5;", -12345678.5), ("95.2%", 95.2), ("50 %", 50.0),
        ("'0.5',", 0.5), ("1.2}", 1.2), ("2.3]", 2.3), ("inf", float("inf")), ("-Infinity", -float("inf")),
        ("12,34", None), ("1,2345", None), ("", None), ("n/a", None), ("12ms", None), ("tensor(1.0)", None), ("%", None),
    ],
)  # fmt: skip
def test_numbers_as_programs_write_them(text: str, value: float | None) -> None:
    assert number(text) == value


def test_nan_is_a_number() -> None:
    assert str(number("nan")) == str(number("NaN,")) == "nan"


def test_one_value_breaks_a_limit() -> None:
    assert reported("< 20", 2.5, 19.99, -7) is None
    assert reported("< 20", 2.5, 20, 57.3) == (0, Breach("20", 1.0))
    assert reported("<= 20", 20) is reported("> 20", 21) is reported(">= 20", "20.0") is None
    assert reported("> 200", "1,234", "180 TFLOP/s", "180,") == (0, Breach("180", 2.0))


@pytest.mark.parametrize("limit", ["< 20", "> 20", "< 5x median", "> 0.5x median"])
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "NaN,"])
def test_what_is_not_finite_breaks_every_limit(limit: str, value: str) -> None:
    found = reported(limit, value)
    assert found
    assert (found[0], found[1].value) == (0, value.rstrip(","))


def test_a_spike_above_the_median() -> None:
    usual = [2.0, 4.0] * (LEAST_VALUES // 2)
    assert reported("< 50x median", *usual, 149.9) is None
    assert reported("< 50x median", *usual, 150, 3) == (0, Breach("150", float(LEAST_VALUES), 150.0))
    assert reported("> 0.5x median", *usual, 1.5) == (0, Breach("1.5", float(LEAST_VALUES), 1.5))


def test_the_median_counts_from_some_values_on_and_above_0() -> None:
    assert reported("< 50x median", *[1.0] * (LEAST_VALUES - 1), 1000) is None
    assert reported("< 50x median", *[0.0] * 50, 1000) is None
    assert reported("< 50x median", *[-1.0] * 50, 1000) is None
    assert reported("< 50x median", *[1e308] * 50, 1e308) is None  # the multiple is too large for a number


def test_a_median_follows_slow_changes_and_no_breach() -> None:
    assert reported("< 2x median", *[float(value) for value in range(300, 3000)]) is None
    lasting = reported("< 2x median for 300s", *[1.0] * 50, *[3.0] * 301)
    assert lasting == (0, Breach("3.0", 50.0, 2.0))


@given(st.lists(st.floats(1, 1e9), min_size=LEAST_VALUES, max_size=2 * MOST_VALUES + 9))
def test_the_median_is_that_of_the_last_values(values: list[float]) -> None:
    node = OnNode(limit_of(r"(\S+) > 1e-9x median"))
    for value in [*values, 1e-9]:
        node.feed(0, repr(value), 0.0)
    found = node.report()
    assert found
    assert found[1].bound == pytest.approx(1e-9 * statistics.median(values[-MOST_VALUES:]))


def test_a_limit_that_is_broken_for_some_time() -> None:
    assert reported("> 200 for 10s", *[150] * 10) is None
    assert reported("> 200 for 10s", 250, *[150] * 11) == (0, Breach("150", 1.0))
    assert reported("> 200 for 10s", *[150] * 9, 250, *[150] * 9, "nan") is None
    assert reported("> 200 for 10s", *[150, "n/a"] * 6) == (0, Breach("150", 0.0))
    assert reported("> 200 for 10s", 150, "nan", 150, every=5) == (0, Breach("150", 0.0))
    assert reported("> 200 for 10s", *[150] * 50, every=0) is None  # all of one look


def test_breaches_of_ranks_that_write_different_values() -> None:
    """Each by its own values. One that is over is reported once."""
    node = OnNode(limit_of(r"(\S+) < 20"))
    for rank, text, at in ((1, "57", 3.0), (0, "2", 3.0), (2, "30", 2.0), (1, "58", 4.0), (2, "5", 4.0)):
        node.feed(rank, text, at)
    assert node.report() == (2, Breach("30", 2.0))
    assert node.report() == node.report() == (1, Breach("57", 3.0))
    node.feed(1, "5", 6.0)
    node.feed(1, "60", 7.0)
    assert node.report() == (1, Breach("57", 3.0))
    node.feed(1, "5", 8.0)
    assert [node.report(), node.report()] == [(1, Breach("57", 3.0)), None]
    node.feed(1, "61", 9.0)
    assert node.report() == (1, Breach("61", 9.0))


def test_values_are_those_of_the_first_group() -> None:
    (rule,) = parse(r"(\d+)|loss < 20")
    assert [rule.value(line) for line in ("step", "at 7 of 9", "loss")] == [None, "7", ""]
    assert isinstance(rule, Expected)
