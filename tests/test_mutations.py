"""What `make mutations` breaks is there; whether a test notices is for it to say."""

from __future__ import annotations

import helpers

from testbench import places


def test_every_line_to_break_is_there_once() -> None:
    tool = places.module("tools/mutations.py")
    texts = {each.place: tool.path_of(helpers.ROOT, each.place).read_text(encoding="utf-8") for each in tool.MUTATIONS}
    assert [(each.place, each.old) for each in tool.MUTATIONS if texts[each.place].count(each.old) != 1] == []
