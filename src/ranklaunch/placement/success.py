"""Check of a program that exited with 0: leftover ranks, and failed launchers whose exit code a shell has hidden. Pure functions.

The exit code 0 counts as success unless a record shows the opposite. Missing records prove nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ranklaunch.placement.model import Head, Key, Launcher


@dataclass(frozen=True)
class Node:
    """Recorded facts about the processes of a node.

    heads, launchers: in the order of their starts. codes: exit codes that processes recorded. own: ranklaunch's own children (launchers,
    ranks, or the program). ranks: True if these children, or the children of these launchers, are the plan's ranks.
    """

    heads: tuple[Head, ...] = ()
    launchers: tuple[Launcher, ...] = ()
    codes: Mapping[Key, int] = field(default_factory=dict)
    own: frozenset[Key] = frozenset()
    ranks: bool = False

    @property
    def by_program(self) -> Sequence[Launcher]:
        """Launchers that the program itself started, in the order of their starts, without those of its ranks.

        mpirun and other launchers that are no Python programs write no records: they are known by their ranks.
        """
        tops = {head.process: head.top for head in self.heads}  # a launcher with a rank's variables is a head too
        outer = [each for each in self.launchers if not self._is_rank(each.top or tops.get(each.process))]
        recorded = [replace(each, code=self.codes.get(each.process)) for each in outer]
        known = {each.process for each in self.launchers}
        placed = [each for each in self.heads if each.is_of_launcher and not self._is_rank(each.within)]
        by_parent = {each.parent: each for each in reversed(placed) if each.parent not in known}
        silent = [Launcher(process, head.launcher, (), None, head.at, self._code_of_ranks(process)) for process, head in by_parent.items()]
        return sorted((*recorded, *silent), key=attrgetter("at"))

    def is_placed(self, head: Head) -> bool:
        """Return True for a rank of the job, or its program, that ranklaunch or a launcher started.

        False for an adopted orphan, and for a process that a rank started.
        """
        return not self._is_rank(head.within) and (head.top in self.own or head.is_of_launcher)

    def is_of_program(self, head: Head) -> bool:
        """Return True for a rank of the program, even if its starter is no known launcher or exited before the rank's Python started."""
        return self.is_placed(head) or (not self.ranks and head.rank is not None and not self._is_rank(head.within))

    def _is_rank(self, top: Key | None) -> bool:
        """Return True for the top of a rank, False for the top of a program that is no rank, even if it inherited rank variables."""
        if top is None or top in self.own:
            return top is not None and self.ranks
        return any(head.top == top and head.rank is not None for head in self.heads)

    def of(self, launcher: Launcher) -> Sequence[Head]:
        return [head for head in self.heads if head.parent == launcher.process and head.is_of_launcher]

    def argv_of(self, launcher: Key) -> tuple[str, ...]:
        """Return the command line of a launcher, () if not recorded."""
        return next((each.argv for each in self.launchers if each.process == launcher), ())

    def _code_of_ranks(self, process: Key) -> int | None:
        """Return the first non-zero exit code that a rank of the launcher recorded, None if there is none."""
        return next((self.codes[head.process] for head in self.heads if head.parent == process and self.codes.get(head.process)), None)


@dataclass(frozen=True)
class Hidden:
    """Failure of a program's last launcher although the program exited with 0. ranks: ranks of the launcher with a recorded failure."""

    launcher: Launcher
    ranks: tuple[Head, ...] = ()


def left(node: Node, living: Collection[Key]) -> list[Key]:
    """Return the living processes that a program has left behind: the tops of its ranks, and its launchers.

    A Python process without a rank counts only if the program started nothing else: beside another process, or a launcher, it may be a
    helper such as tensorboard. Children of ranks do not count.
    """
    result = [each.process for each in node.by_program if each.process in living]
    for head in node.heads:
        top = head.top if head.top in living else head.process
        if head.process in living and node.is_of_program(head) and top not in result and not _is_helper(head, node, living):
            result.append(top)
    return result


def _is_helper(head: Head, node: Node, living: Collection[Key]) -> bool:
    """Return True for a process without a rank if its shell also started a launcher, or another program that has ended."""
    if head.rank is not None or head.top not in node.own:
        return False
    return bool(node.by_program) or any(each.top == head.top and each.process not in living for each in node.heads)


def hidden(node: Node) -> Hidden | None:
    """Return the failure of the last launcher that the program started; None if it did not fail, or its exit code is unknown."""
    launchers = node.by_program
    last = launchers[-1] if launchers else None
    if not last or not last.code:
        return None
    return Hidden(last, tuple(head for head in node.of(last) if node.codes.get(head.process)))


def earlier(node: Node) -> Launcher | None:
    """Return the last launcher that failed although a later one, the program's last, exited with 0; None if there is none."""
    launchers = node.by_program
    return next((each for each in reversed(launchers[:-1]) if each.code), None) if launchers and launchers[-1].code == 0 else None
