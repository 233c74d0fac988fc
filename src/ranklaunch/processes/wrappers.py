"""The program behind a wrapper that is no shell, as /usr/bin/time and scripts that call subprocess are. A stop request ends the wrapper
alone, and the program hears it as what the wrapper has left. Where the launcher would then end all, and where the wrapper is to outlast its
program, this is told in the wrapper's place."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time

from ranklaunch.system import tree
from ranklaunch.system.hearing import Hearing, ignores, is_shell
from ranklaunch.system.tree import Identity

OUTPUTS = "1", "2"
OTHER_ENDS = "/dev/ptmx", "/dev/pts/ptmx"  # of terminals
LOOKS, BETWEEN_LOOKS_S = 5, 0.002
# Words of a process, joined by NUL: interpreter and options, -c or -m, and a module of multiprocessing or joblib; or a frozen program.
_WORKER = re.compile(
    r"[^\0]*\0(?:--multiprocessing-fork(?:\0|$)"
    r"|(?:-[XW]\0[^\0]*\0|-(?![cmXW]\0)[^\0]*\0)*-[cm]\0"
    r"(?:from )?(?:multiprocess(?:ing)?|(?:joblib\.externals\.)?loky\.backend)"
    r"\.(?:spawn|forkserver|resource_tracker|semaphore_tracker|popen_loky_posix)\b)"
)


def heard(rank: Identity, hearing: Hearing) -> list[Identity]:
    """Who hears a signal below a rank that does not, through wrappers and shells."""
    found: list[Identity] = []
    left = _inside(rank, hearing)
    while left:
        process = left.pop()
        hear = hearing.of(process)
        found += hear
        left += [] if hear else _inside(process, hearing)
    return found


def is_to_outlast(rank: Identity, behind: list[Identity], number: int) -> bool:
    """Whether only the program behind wrappers is to be told: one of these reads what that writes, as `conda run` does, and it would die of
    its next line; or the first ignores the signal."""
    return ignores(rank.pid, number) or any(_is_read(process, rank) for process in behind)


def _is_read(process: Identity, rank: Identity) -> bool:
    """Return True if a process between this one and the rank reads its output, by a pipe or a terminal. True for any socket: the two ends
    of one have no name in common."""
    out = [path for fd, path, _ in _opened(process.pid) if fd in OUTPUTS]
    if any(path.startswith("socket:") for path in out):
        return True
    written = {path for path in out if path.startswith("pipe:")}
    written.update(OTHER_ENDS if any(path.startswith("/dev/pts/") for path in out) else ())
    found = tree.entry(process.pid)
    while found and found.parent > 1:
        if any(reads and path in written for _, path, reads in _opened(found.parent)):
            return True
        found = tree.entry(found.parent) if found.parent != rank.pid else None
    return False


def _opened(pid: int) -> list[tuple[str, str, bool]]:
    """Return the descriptors of a process, their paths, and if each can be read."""
    folder, found = f"/proc/{pid}/fd", []
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.append((fd, os.readlink(f"{folder}/{fd}"), bool(os.lstat(f"{folder}/{fd}").st_mode & stat.S_IRUSR)))
    return found


def _inside(process: Identity, hearing: Hearing) -> list[Identity]:
    """Return all children of a shell; of another process the only child, if it is another program and its parent only waits: workers,
    which a rank forks off itself, are neither, and what computes has a helper there."""
    children = hearing.children(process.pid)
    if is_shell(process.pid):
        return children
    words = [tree.command(child.pid) for child in children]
    is_other = len(words) == 1 and words[0] != tree.command(process.pid) and not is_worker(words[0])
    return children if is_other and _waits(process) else []


def _waits(process: Identity) -> bool:
    """Look several times: one look may see it at work, passing on what its program writes."""
    for _ in range(LOOKS):
        if tree.state(process) != "R":
            return True
        time.sleep(BETWEEN_LOOKS_S)
    return False


def is_worker(words: list[str]) -> bool:
    """Return True if Python's multiprocessing, or joblib, has started the process for its own work."""
    return bool(_WORKER.match("\0".join(words)))
