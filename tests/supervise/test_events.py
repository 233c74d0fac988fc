"""The events of a real run are what the table of events says."""

from __future__ import annotations

from typing import Any

import helpers
import pytest

from testbench.judges.events import misfits


@pytest.mark.processes
@pytest.mark.parametrize("code", [0, 3])
def test_events_fit_their_table(as_process: Any, code: int) -> None:
    job = as_process.spawn(2, helpers.TESTS / "children" / "exits.py", code)
    assert job.end() == code
    assert [text for line in job.events for text in misfits(line)] == []
    assert {"read", "spawn", "first output", "exit", "ending", "end"} == {line["event"] for line in job.events}
