"""What Open MPI should know of the machine: how many processors its ranks share, and what its installation leaves out."""

from __future__ import annotations

import math
import re

from ranklaunch.files import Files, folder_of, join, text_of

CONFIG = "openmpi-mca-params.conf"
FOLDERS = ("/etc/openmpi", "/etc")
MOST_BYTES = 65536


def cpus(files: Files) -> int | None:
    """That processes of this container may use at a time; None where that cannot be seen."""
    allowed = re.search(r"^Cpus_allowed_list:\s*([0-9,-]+)$", text_of(files, "/proc/self/status", MOST_BYTES), re.MULTILINE)
    counts = [sum(map(_size, allowed[1].split(",")))] if allowed else []
    quota = _quota(files)
    return min([*counts, math.ceil(quota)]) if quota else min(counts, default=None)


def excluded(files: Files, mpirun: str) -> list[str]:
    """Ways between ranks (btl) that the installation's own configuration excludes: who names some takes the place of that list."""
    prefix = folder_of(folder_of(mpirun))
    folders = (join(prefix, "etc"), join(prefix, "etc/openmpi")) if prefix else ()
    for folder in (*FOLDERS, *folders):
        found = re.findall(r"^\s*btl\s*=\s*\^([\w,]+)", text_of(files, join(folder, CONFIG), MOST_BYTES), re.MULTILINE)
        if found:
            return sorted(filter(None, found[-1].split(",")))
    return []


def _quota(files: Files) -> float:
    """Processors that the control group (version 2 or 1) gives in time; 0: there is no limit."""
    words = text_of(files, "/sys/fs/cgroup/cpu.max", MOST_BYTES).split()
    words = words or [text_of(files, f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us", MOST_BYTES).strip() for name in ("quota", "period")]
    return int(words[0]) / int(words[1]) if len(words) == 2 and all(word.isdecimal() and int(word) for word in words) else 0.0


def _size(part: str) -> int:
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1 if first else 0
