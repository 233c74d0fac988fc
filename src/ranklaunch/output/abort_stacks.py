"""Filter that hides Python's stacks after ranklaunch's own SIGABRT: they are evidence, not a failure of the rank."""

from __future__ import annotations

import re
from collections.abc import Callable

from ranklaunch.output.hiding import Hiding

_BEGINS = b"Fatal Python error: Aborted"
_GOES_ON = re.compile(
    rb'\s*$|(?:Current thread|Thread) 0x[0-9a-f]+|Stack \(most recent|  File "|  \.\.\.|  <|Extension modules: '
    rb"|Current thread's C stack|  Binary file "
)


class WithoutStacks(Hiding):
    """Sink that hides the lines of such stacks, up to the first line of another form."""

    def __init__(self, show: Callable[..., None], tag: bytes) -> None:
        super().__init__(show, tag)
        self._inside = False

    def _hides(self, text: bytes) -> bool:
        self._inside = text.startswith(_BEGINS) or (self._inside and bool(_GOES_ON.match(text)))
        return self._inside
