"""Proof of out-of-memory kills: the kernel counts them per cgroup."""

from __future__ import annotations

import re

_PLACES = (
    # cgroup v2, then v1: (line of /proc/self/cgroup, folder of the hierarchy, file with an "oom_kill N" line)
    (r"^0::(.*)$", "/sys/fs/cgroup", "memory.events"),
    (r"^[0-9]+:[^:]*\bmemory\b[^:]*:(.*)$", "/sys/fs/cgroup/memory", "memory.oom_control"),
)


def oom_kills() -> int | None:
    """How many processes of this container the kernel has killed for memory so far; None where it does not say."""
    groups = _read("/proc/self/cgroup")
    for pattern, folder, name in _PLACES:
        own = re.search(pattern, groups, re.MULTILINE)
        # Inside a container the hierarchy's own folder may already be the container's group.
        for group in (own[1].rstrip("/"), "") if own else ("",):
            count = re.search(r"^oom_kill ([0-9]+)$", _read(f"{folder}{group}/{name}"), re.MULTILINE)
            if count:
                return int(count[1])
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
