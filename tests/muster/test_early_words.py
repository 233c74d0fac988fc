"""Words of other nodes that come before anybody here hears their topic."""

from __future__ import annotations

from typing import Any

import helpers
from companions import nobody_listens

from ranklaunch.muster.nodes import Nodes
from ranklaunch.system.loop import Loop


def test_words_that_come_before_their_listener_are_kept_for_it() -> None:
    loop, heard = Loop(), list[tuple[int, Any]]()
    nodes = Nodes(helpers.plan({}), {}, loop, print, nobody_listens)
    nodes.tell_node_0("places", [1])
    nodes.tell_node_0("evidence", [2])
    loop.step(0)
    nodes.hear("places", lambda node, body: heard.append((node, body)), at_node_0=True)
    assert heard == [(0, [1])]
    nodes.tell_node_0("places", [3])
    loop.step(0)
    assert heard == [(0, [1]), (0, [3])]
