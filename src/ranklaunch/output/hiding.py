"""Sinks that hide some lines from the console. The logs keep every line."""

from __future__ import annotations

import re
from collections.abc import Callable


class Hiding:
    """Sink that passes on all lines but the hidden ones. tag: text before each line; lines may come without it."""

    def __init__(self, show: Callable[..., None], tag: bytes) -> None:
        self._show = show
        self._tag = tag

    def __call__(self, *parts: bytes | memoryview) -> None:
        """Take complete lines, in one piece or several."""
        kept = b"".join(line for line in b"".join(parts).splitlines(keepends=True) if not self._hides(self._text(line)))
        if kept:
            self._show(kept)

    def _hides(self, text: bytes) -> bool:
        """Return True for a line to hide. text: the line without its tag and its end."""
        raise NotImplementedError

    def _text(self, line: bytes) -> bytes:
        return line[len(self._tag) if line.startswith(self._tag) else 0 :].rstrip(b"\r\n")


class Without(Hiding):
    """Sink that hides lines of a pattern. Every node's launcher writes these lines, and only node 0's console shows them."""

    def __init__(self, show: Callable[..., None], pattern: str, tag: str) -> None:
        super().__init__(show, tag.encode(errors="surrogateescape"))
        self._pattern = re.compile(pattern.encode())

    def _hides(self, text: bytes) -> bool:
        return bool(self._pattern.fullmatch(text))
