"""What is said of values, and where they may come from."""

from __future__ import annotations

import pytest

from ranklaunch import showing
from ranklaunch.env import parse, reader


@pytest.mark.parametrize(
    ("value", "expected"),
    [((), ""), ((2, 1), "2,1"), (True, "true"), (False, "false"), (600.0, "600"), (2.5, "2.5"), (8, "8"), ("text", "text")],
)
def test_values_are_shown_as_they_would_be_written(value: object, expected: str) -> None:
    assert reader.show(value) == expected


def test_long_texts_are_clipped() -> None:
    assert showing.clipped("x" * 120) == "x" * 120
    assert showing.clipped("x" * 121) == "x" * 120 + "... (121 characters)"


def test_a_platforms_names_come_after_the_users() -> None:
    base = reader.Variable("nodes", ("RANKLAUNCH_NODES",), parse.positive, 1, "nodes")
    more = base.also("MA_NUM_HOSTS", agree=True)
    assert more.names == ("RANKLAUNCH_NODES", "MA_NUM_HOSTS")
    assert more.agree
    assert more.setter("RANKLAUNCH_NODES") == "user"
    assert more.setter("MA_NUM_HOSTS") == "platform"
    assert base.names == ("RANKLAUNCH_NODES",)
