"""Known errors, as data: what the last lines of a failed rank say of why it failed.

The entries are in catalogue/ at the top of the repository, one file a family; here is what looks for them.
"""

from __future__ import annotations

from ranklaunch.catalogue.entry import CAUSE, CONSEQUENCE, REPORT, SAYS_LESS, STOPPED, UNCAUGHT, KnownError
from ranklaunch.catalogue.known import folder_of, shipped, with_own
from ranklaunch.catalogue.reports import before_report, beside_report
from ranklaunch.catalogue.scripts import LOGGED_BY_TORCHRUN, Report, reported, since_launcher_went_on, tells_only_that
from ranklaunch.catalogue.search import Finding, find, findings
from ranklaunch.catalogue.survival import is_own, shows_steps, went_well
from ranklaunch.catalogue.tracebacks import last_exception

__all__ = [
    "CAUSE", "CONSEQUENCE", "LOGGED_BY_TORCHRUN", "REPORT", "SAYS_LESS", "STOPPED", "UNCAUGHT",
    "Finding", "KnownError", "Report", "before_report", "beside_report", "find", "findings", "folder_of", "is_own", "last_exception",
    "reported", "shipped", "shows_steps", "since_launcher_went_on", "tells_only_that", "went_well", "with_own",
]  # fmt: skip
