"""Grace period by the clocks of earlier attempts: how long this platform waited before it killed the container."""

from __future__ import annotations

from ranklaunch.env import parse, settings
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Candidate, Reader
from ranklaunch.files import join, text_of
from ranklaunch.verdict import folders

SPARE_S = 5.0  # fewer than were seen
MOST_CLOCKS = 5  # attempts, the last, that are looked at
MOST_CLOCK = 64 * 1024  # bytes, one a second


def settle_grace(reader: Reader, job: Job) -> None:
    """By what this platform was seen to give: the clocks of stops that earlier attempts have left, whose container was killed. Where it is
    to be that, it is; a longer one is warned of."""
    seen = [(seconds, number) for number in range(job.attempt)[-MOST_CLOCKS:] if (seconds := _killed_after(reader, job, number))]
    first = reader.candidates(settings.GRACE_S)[:1]
    is_auto = bool(first) and parse.is_auto(first[0].value)
    if not seen and not is_auto:
        return
    told = f"attempt {min(seen)[1]} was killed {min(seen)[0]} s after its stop request" if seen else "nothing seen yet"
    if is_auto:
        grace_s = max(1.0, min(seen)[0] - SPARE_S) if seen else parse.GRACE_S
        reader.settle(settings.GRACE_S.value, Candidate(f"{first[0].source}={parse.AUTO}: {told}", f"{grace_s:g}"))
    elif reader.get(settings.GRACE_S) >= min(seen)[0]:
        reader.warn(f"{told}, before {reader.told(settings.GRACE_S)} was over: {settings.GRACE_S.names[0]}={parse.AUTO} stays below that")


def _killed_after(reader: Reader, job: Job, attempt: int) -> int:
    """Seconds, 0 where it ended by itself, was not stopped, or left no clock."""
    path = join(folders.attempt(job.log_dir, attempt), folders.stop_clock(job.node_index))
    return folders.killed_after(text_of(reader.files, path, MOST_CLOCK))
