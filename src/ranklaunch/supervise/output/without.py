"""Lines that every node's launcher writes alike, which the console of node 0 alone shows."""

from __future__ import annotations

import re
from collections.abc import Callable


class Without:
    """Sink of tagged lines that passes on those that a pattern does not match. tag: as it stands before each line, or not at all."""

    def __init__(self, show: Callable[..., None], pattern: str, tag: str) -> None:
        self._show = show
        self._pattern = re.compile(pattern.encode())
        self._tag = tag.encode(errors="surrogateescape")

    def __call__(self, *parts: bytes | memoryview) -> None:
        """Take whole lines, in one piece or several."""
        lines = b"".join(parts).splitlines(keepends=True)
        kept = b"".join(line for line in lines if not self._pattern.fullmatch(self._text(line)))
        if kept:
            self._show(kept)

    def _text(self, line: bytes) -> bytes:
        return line[len(self._tag) if line.startswith(self._tag) else 0 :].rstrip(b"\r\n")
