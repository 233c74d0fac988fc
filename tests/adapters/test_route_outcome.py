"""What a step has left of its route planning, which another user may have written."""

from __future__ import annotations

import json
from typing import Any

import helpers
import pytest

from ranklaunch.adapters.launchers.shared import route
from ranklaunch.files import NoFiles


class Left(NoFiles):
    """text: what is there, or why it is not read."""

    def __init__(self, text: str | ValueError) -> None:
        self._text = text

    def text(self, path: str, limit: int) -> str | None:
        if isinstance(self._text, ValueError):
            raise self._text
        return self._text


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[1]", "{}", json.dumps({"status": "planned"}), "{", ValueError("a FIFO, not a regular file")],
    ids=["nested", "list", "empty", "half", "torn", "fifo"],
)
def test_what_is_no_outcome_has_failed(text: str | ValueError) -> None:
    reader: Any = type("Reader", (), {"files": Left(text)})
    found = route._outcome(helpers.plan({"PATH": ""}, method="spawn").job, reader)
    assert found is not None
    assert (found[0], found[1].endswith("route_plan.json cannot be read")) == ("failed", True)
