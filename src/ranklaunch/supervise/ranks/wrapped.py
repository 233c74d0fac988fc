"""The program behind a wrapper that is no shell, as /usr/bin/time and scripts that call subprocess are. A stop request ends the wrapper
alone, and the program hears it as what the wrapper has left. Where the launcher would then end all, the program is told in the wrapper's
place."""

from __future__ import annotations

from ranklaunch.system import tree
from ranklaunch.system.tree import Hearing, Identity


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
    return words != wrapper and not any("multiprocessing" in word for word in words)
