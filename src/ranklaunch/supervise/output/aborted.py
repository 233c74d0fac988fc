"""Hides stacks that Python writes because ranklaunch ended a process by SIGABRT: they are evidence, and no failure of the rank."""

from __future__ import annotations

import re
from collections.abc import Callable

_BEGINS = b"Fatal Python error: Aborted"
_GOES_ON = re.compile(
    rb'\s*$|(?:Current thread|Thread) 0x[0-9a-f]+|Stack \(most recent|  File "|  \.\.\.|  <|Extension modules: '
    rb"|Current thread's C stack|  Binary file "
)


class WithoutStacks:
    """A sink of tagged lines that passes on all but the lines of such a stack, up to the first line of another form."""

    def __init__(self, show: Callable[..., None], tag: bytes) -> None:
        self._show = show
        self._tag = tag
        self._inside = False

    def __call__(self, *parts: bytes | memoryview) -> None:
        """Take whole lines, in one piece or several."""
        lines = b"".join(parts).splitlines(keepends=True)
        kept = b"".join(line for line in lines if not self._is_of_stack(line))
        if kept:
            self._show(kept)

    def _is_of_stack(self, line: bytes) -> bool:
        text = line[len(self._tag) :] if line.startswith(self._tag) else line
        self._inside = text.startswith(_BEGINS) or (self._inside and bool(_GOES_ON.match(text)))
        return self._inside
