"""What one entry of the catalogue is."""

from __future__ import annotations

from typing import NamedTuple

CAUSE = "cause"
CONSEQUENCE = "consequence"


class KnownError(NamedTuple):
    """pattern: a regular expression that is searched in one line, without what launchers and loggers put in front of it.

    kind: CAUSE, or CONSEQUENCE of a failure elsewhere: of another rank, of a peer, of what this process only reports. An error that can
    be both is a CONSEQUENCE, and its meaning says so. source: the page, source file or thread that proves it.
    """

    name: str
    pattern: str
    kind: str
    meaning: str
    remedy: str
    source: str
