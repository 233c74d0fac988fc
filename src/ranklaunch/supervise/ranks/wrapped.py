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

FROZEN = "--multiprocessing-fork"  # the first word of a worker whose program has its Python in it
OUTPUTS = "1", "2"
OTHER_ENDS = "/dev/ptmx", "/dev/pts/ptmx"  # of terminals
LOOKS, BETWEEN_LOOKS_S = 5, 0.002
_WORKER = re.compile(
    r"(?:from )?(?:multiprocess(?:ing)?|(?:joblib\.externals\.)?loky\.backend)"
    r"\.(?:spawn|forkserver|resource_tracker|semaphore_tracker|popen_loky_posix)\b"
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
    """By one from which it comes, up to the rank: by a pipe, by a terminal, or by sockets, whose two ends have no name in common."""
    out = [path for path, _ in _opened(process.pid, OUTPUTS)]
    if any(path.startswith("socket:") for path in out):
        return True
    written = {path for path in out if path.startswith("pipe:")}
    written.update(OTHER_ENDS if any(path.startswith("/dev/pts/") for path in out) else ())
    found = tree.entry(process.pid)
    while written and found and found.parent > 1:
        if any(reads and path in written for path, reads in _opened(found.parent)):
            return True
        found = tree.entry(found.parent) if found.parent != rank.pid else None
    return False


def _opened(pid: int, of: tuple[str, ...] = ()) -> list[tuple[str, bool]]:
    """What a process has open, and whether to read; of: by these descriptors, else by all."""
    folder, found = f"/proc/{pid}/fd", []
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for fd in of or os.listdir(folder):
            with contextlib.suppress(OSError):
                found.append((os.readlink(f"{folder}/{fd}"), bool(os.lstat(f"{folder}/{fd}").st_mode & stat.S_IRUSR)))
    return found


def _inside(process: Identity, hearing: Hearing) -> list[Identity]:
    """Of a shell, all that it has started; else the only child, if it is another program, and if its parent only waits: workers, which a
    rank forks off itself, are neither, and what computes has a helper there."""
    children = hearing.children(process.pid)
    is_other = len(children) == 1 and _is_another(tree.command(children[0].pid), tree.command(process.pid))
    return children if is_shell(process.pid) or (is_other and _waits(process)) else []


def _waits(process: Identity) -> bool:
    """Of several looks one may see it at work: it passes on what its program writes."""
    for _ in range(LOOKS):
        if tree.state(process) != "R":
            return True
        time.sleep(BETWEEN_LOOKS_S)
    return False


def _is_another(words: list[str], wrapper: list[str]) -> bool:
    return words != wrapper and not is_worker(words)


def is_worker(words: list[str]) -> bool:
    """Whether Python's multiprocessing, or joblib, has started it for its own work."""
    return words[1:2] == [FROZEN] or bool(_WORKER.match(_code(words)))


def _code(words: list[str]) -> str:
    """What Python is to run by -c or -m: "" where it runs a file, whose words are its own."""
    left = iter(words[1:])
    for word in left:
        if word in ("-c", "-m"):
            return next(left, "")
        if word in ("-X", "-W"):
            next(left, "")
        elif not word.startswith("-"):
            break
    return ""
