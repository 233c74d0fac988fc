"""The catalogue of known errors, asked for a plan: with the user's own entries, and with the settings that a remedy is about."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from ranklaunch import catalogue
from ranklaunch.catalogue import Finding
from ranklaunch.catalogue import KnownError as Entry
from ranklaunch.errors import RanklaunchError
from ranklaunch.plan.model import Plan
from ranklaunch.system import bounded
from ranklaunch.system.disk import DiskFiles
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import KnownError

_too_slow: set[str] = set()  # folders of the user's known errors
_TIMED_OUT = re.compile("time-?out|timed-out")
# On each line of a traceback: of PyTorch, of filters that tell ranks apart, and of Python for an exception in a group.
_PREFIX = re.compile(r"^(?:\[(?:rank ?)?[0-9]+\]:? *)?(?:\| *)*")


class Catalogue:
    """The catalogue of known errors for a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, output: str, *, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
        """Return the known error that explains the end of the process that wrote this last; None without one.

        by_itself: False if the process was told to end: then last words that no entry knows do not count. shared: several ranks write into
        the output. code: exit code of the process.
        """
        finding = _find(output, self._plan.known_errors if output else "", by_itself, shared, code)
        if not finding:
            return None
        error, line = finding.error, _PREFIX.sub("", finding.line.strip())
        if error.standing in catalogue.SAYS_LESS:
            return KnownError(error.name, blame.UNKNOWN, line, "", "", "")
        remedy = f"{error.remedy}{_present(self._plan, error.settings)}"
        return KnownError(error.name, error.kind, line, error.meaning, remedy, error.source, error.retry)

    def peers(self, output: str, kind: str) -> tuple[int, ...]:
        """Return the ranks that the last message of an entry of this kind names."""
        return catalogue.peers(output, kind)


def known(tail: bytes, plan: Plan, by_itself: bool = True, shared: bool = False, code: int | None = None) -> KnownError | None:
    """Return what Catalogue(plan) finds in an output that was not decoded yet."""
    return Catalogue(plan)(tail.decode(errors="replace"), by_itself=by_itself, shared=shared, code=code)


def of_others(tail: bytes, plan: Plan) -> str:
    """Return the name of the error if another rank may be to blame for it, else "". A launcher's report of its ranks is none."""
    error = known(tail, plan)
    suspected = error and (not blame.tells_why(error) or _TIMED_OUT.search(error.name))
    is_report = error and any(entry.name == error.name and entry.standing == catalogue.REPORT for entry in catalogue.shipped())
    return error.name if error and suspected and not is_report else ""


def _find(text: str, folder: str, by_itself: bool, shared: bool, code: int | None) -> Finding | None:
    """Search for the user's entries in a process whose time is bounded: a pattern of theirs may take for ever. folder: of the user's
    entries, "" for none. Entries that took too long are not tried again; those that are shipped count then."""
    entries = _own(folder) if folder else ()

    def search() -> list[object]:
        finding = catalogue.find(text, entries, by_itself, shared, code)
        return [entries.index(finding.error), finding.line, finding.number] if finding else []

    if entries and folder not in _too_slow:
        try:
            found = bounded.call(search, folder)
            return Finding(entries[found[0]], *found[1:]) if found else None
        except RanklaunchError:
            _too_slow.add(folder)
    return catalogue.find(text, (), by_itself, shared, code)


def _present(plan: Plan, settings: Sequence[str]) -> str:
    """Return the present values of the settings that a remedy is about, as far as the plan has them."""
    found = {reading.name: reading for reading in plan.values}
    now = [found[name] for name in settings if name in found and found[name].value]
    shown = [f"{each.name} {each.value} ({each.source})" if each.value != each.name else f"{each.name} of {each.source}" for each in now]
    return f" Now: {', '.join(shown)}." if shown else ""


@functools.cache
def _own(folder: str) -> tuple[Entry, ...]:
    """Return the user's entries; () if they have become unreadable since the plan looked at them."""
    try:
        return catalogue.with_own(DiskFiles(), folder)
    except ValueError:
        return ()
