"""Known errors, as data: what the last lines of a failed rank say of why it failed.

One module has one family of errors; find is in ranklaunch.catalogue.search.
"""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, KnownError
from ranklaunch.catalogue.families import ERRORS, FAMILIES, REPORTS
from ranklaunch.catalogue.python import UNCAUGHT
from ranklaunch.catalogue.search import Finding, before_report, find, reported

__all__ = [
    "CAUSE", "CONSEQUENCE", "ERRORS", "FAMILIES", "REPORTS", "UNCAUGHT", "Finding", "KnownError", "before_report", "find", "reported",
]  # fmt: skip
