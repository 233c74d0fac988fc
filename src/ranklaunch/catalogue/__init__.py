"""Known errors, as data: reasons of a failed rank in its last lines.

The entries are in catalogue/ at the top of the repository, one file a family; here is the search for them.
"""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, REPORT, SAYS_LESS, STOPPED, UNCAUGHT, KnownError
from ranklaunch.catalogue.known import folder_of, shipped, with_own
from ranklaunch.catalogue.matcher import Finding, find, findings, last_exception, peers

__all__ = [
    "CAUSE", "CONSEQUENCE", "REPORT", "SAYS_LESS", "STOPPED", "UNCAUGHT",
    "Finding", "KnownError", "find", "findings", "folder_of", "last_exception", "peers",
    "shipped", "with_own",
]  # fmt: skip
