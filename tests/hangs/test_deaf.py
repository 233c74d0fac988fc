"""When it is said that a stop loses work: after the first step, once, and only where no rank of any node hears SIGTERM."""

from __future__ import annotations

import helpers

from ranklaunch.hangs.alarms import Deaf
from ranklaunch.hangs.frames import Frame, packed, unpacked
from ranklaunch.hangs.sample import Seen


def frame(hears: bool | None, step: int = 5) -> Frame:
    return unpacked(packed(Frame(60.0, (Seen(0, "S", 0, 0, 0.0, False, False, False, step),), hears=hears)))


Words = tuple[tuple[int, Frame], ...]
CASES: dict[str, tuple[Words, list[int]]] = {
    "none does": (((0, frame(False)), (1, frame(False)), (0, frame(False))), [1]),
    "one does": (((0, frame(False)), (1, frame(True)), (0, frame(False)), (1, frame(False))), []),
    "not before the first step": (((0, frame(False, -1)), (1, frame(False, -1)), (1, frame(False)), (0, frame(True))), []),
    "a node without ranks": (((0, frame(None)), (1, frame(False))), [1]),
    "no ranks are known": (((0, frame(None)), (1, frame(None)), (1, frame(None))), []),
}


@helpers.for_each(CASES)
def test_when_it_is_said(words: Words, said: list[int]) -> None:
    deaf = Deaf([0, 1])
    assert [number for number, (node, each) in enumerate(words) if deaf.feed(node, each)] == said
