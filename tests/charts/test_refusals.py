"""Bad values are refused before anything reaches a cluster, by a message that has the value's name.

The two Helms say it in their own words, so tests look for the name alone: each part of it as a word of the message.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chart_refusals import EVERY, Bad, bad_id
from chart_tools import case, every_helm, rendered_with


@every_helm
@pytest.mark.parametrize("bad", EVERY, ids=bad_id)
def test_refused_by_name(major: str, bad: Bad, tmp_path: Path) -> None:
    done = rendered_with(major, tmp_path, case(bad.case), bad.changes)
    assert done.returncode != 0, done.stdout
    assert done.stdout == ""
    for part in bad.name.split("."):
        assert re.search(rf"\b{part}\b", done.stderr), done.stderr
