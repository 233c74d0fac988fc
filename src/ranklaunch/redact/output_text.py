"""What was said, made fit to be shown: what processes wrote last, and reasons. Secrets are hidden, control characters made harmless.

A rank's log and the stream on the console keep what was written. Only failures need this module, and they get at it by
`ranklaunch.errors.reason` and `ranklaunch.errors.quoted`.
"""

from __future__ import annotations

from ranklaunch import showing
from ranklaunch.redact import lines


def text(given: str, own: bool = False) -> str:
    """Each line of it, by itself. own: as with `lines.shown`."""
    return "\n".join(map(showing.printable, lines.shown(given.split("\n"), own)))
