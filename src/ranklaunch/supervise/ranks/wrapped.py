"""The program behind a wrapper that is no shell, as /usr/bin/time and scripts that call subprocess are: a stop request ends the wrapper
alone, and the program hears it as what the wrapper has left."""

from __future__ import annotations

from ranklaunch.system import tree
from ranklaunch.system.tree import Identity

MOST = 8  # wrappers around each other


def hears(rank: Identity, number: int) -> bool:
    """Whether one does that is the only child of its wrapper and another program: workers, which a rank forks off itself, are neither."""
    hearing, process = tree.Hearing(number), rank
    for _ in range(MOST):
        children = tree.generation(process.pid, 1)
        if len(children) != 1 or not _is_another(tree.command(children[0].pid), tree.command(process.pid)):
            return False
        process = children[0]
        if hearing.of(process):
            return True
    return False


def _is_another(words: list[str], wrapper: list[str]) -> bool:
    return words != wrapper and not any("multiprocessing" in word for word in words)
