"""Whether a stop request would be heard by nobody who could save: no rank of any node catches SIGTERM."""

from __future__ import annotations

from collections.abc import Iterable

from ranklaunch.hangs.frames import Frame

NOTICE = 'no rank catches SIGTERM: a stop loses the work since the last checkpoint (see "Save at a stop" in docs/status.md)'


class Deaf:
    """Once the first step has been, for programs get their handlers before it. nodes: all of which something must be heard."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._left = set(nodes)
        self._stepped = False
        self._found = False
        self._over = False

    def feed(self, node: int, frame: Frame) -> bool:
        """Return True once: at the frame from which on no rank of any node is known to catch SIGTERM."""
        self._stepped = self._stepped or any(seen.step >= 0 for seen in frame.ranks)
        if not self._stepped or self._over:
            return False
        self._left.discard(node)
        self._found = self._found or frame.hears is False
        self._over = bool(frame.hears) or not self._left
        return self._over and self._found and not frame.hears
