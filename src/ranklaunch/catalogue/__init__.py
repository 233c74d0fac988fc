"""Catalogue of known errors, and the search for them in the last lines of a failed rank.

The entries are data: one file per family in catalogue/ at the top of the repository.
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
