"""The program behind a wrapper that is no shell, as /usr/bin/time and scripts that call subprocess are. A stop request ends the wrapper
alone, and the program hears it as what the wrapper has left. Where the launcher would then end all, the program is told in the wrapper's
place."""

from __future__ import annotations

import re

from ranklaunch.system import tree
from ranklaunch.system.tree import Hearing, Identity

FROZEN = "--multiprocessing-fork"  # the first word of a worker whose program has its Python in it
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


def _inside(process: Identity, hearing: Hearing) -> list[Identity]:
    """Of a shell, all that it has started; else the only child, if it is another program, and if its parent only waits: workers, which a
    rank forks off itself, are neither, and what computes has a helper there."""
    children = hearing.children(process.pid)
    is_other = len(children) == 1 and _is_another(tree.command(children[0].pid), tree.command(process.pid))
    return children if tree.is_shell(process.pid) or (is_other and tree.state(process) != "R") else []


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
