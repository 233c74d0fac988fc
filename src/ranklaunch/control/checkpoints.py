"""Whether a checkpoint was completed after a stop request, by the trainer's own markers (RANKLAUNCH_PROGRESS_FILE).

What they were at the request is compared with what they are at the end, so clocks of file servers do not matter. They may lie on a mount
that hangs, so a process of its own looks at them each time, for which nobody has to wait.
"""

from __future__ import annotations

import glob
import json
import os
import stat
from collections.abc import Collection, Mapping, Sequence

from ranklaunch.system.bounded import LOOK_S, Apart

MOST_MARKS = 10_000

Marks = Mapping[str, Sequence[int]]  # by path: whether it is a file, when it was written, its number on the disk and its size


class Look:
    """At all markers. Raises OSError where no process or descriptor is left."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._apart = Apart(lambda: json.dumps({path: mark for path in _paths(patterns) if (mark := _mark(path))}).encode())

    def found(self, seconds: float = LOOK_S) -> Marks | None:
        """None where it has not answered within so long."""
        told = self._apart.answer(seconds)
        marks: Marks | None = None if told is None else json.loads(told)
        return marks

    def close(self) -> None:
        self._apart.close()


def saved(
    before: Marks | None, after: Marks | None, heard: Collection[int], killed: Collection[int], *, any_rank: bool, all_well: bool
) -> str:
    """yes, no or unknown. before, after: None where there are no markers, or they could not be looked at. heard, killed: the ranks that
    had a way to hear the request, and those that were killed after it. all_well: none is known to have failed, nor may have been killed.
    A file is written when all is there; a folder is made first, so a new one is a checkpoint only then."""
    looked = before is not None and after is not None
    new = [mark for path, mark in (after or {}).items() if looked and list((before or {}).get(path, ())) != list(mark)]
    if any(is_file or all_well for is_file, *_ in new):
        return "yes"
    return "no" if (any_rank and not heard) or (looked and killed and not new) else "unknown"


def _paths(patterns: Sequence[str]) -> list[str]:
    return [path for pattern in patterns for path in glob.glob(pattern)[:MOST_MARKS]]


def _mark(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return int(not stat.S_ISDIR(found.st_mode)), found.st_mtime_ns, found.st_ino, found.st_size
