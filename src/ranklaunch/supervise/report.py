"""What is said at the end beside the verdict's one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ranklaunch.verdict import Verdict

MOST_SHOWN = 64 * 1024  # bytes


def advice(verdict: Verdict) -> Iterable[str]:
    error = verdict.culprit.error if verdict.culprit else None
    if error and error.meaning:
        yield f"meaning: {error.meaning}"
        yield f"remedy: {error.remedy} ({error.source})"


def shown(path: str, began: float) -> bytes:
    """A file that the job has made, for the console; nothing of one that an earlier job has left. began: seconds since 1970."""
    try:
        if os.stat(path).st_mtime < began:
            return b""
        with open(path, "rb") as file:
            lines = file.read(MOST_SHOWN).splitlines()
    except OSError:
        return b""
    return b"".join([f"ranklaunch: {path}:\n".encode(errors="backslashreplace"), *(b"  %s\n" % line for line in lines)])
