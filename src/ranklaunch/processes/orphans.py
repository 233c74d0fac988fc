"""Orphans of ranks: processes that ranklaunch has adopted after the end of their parents."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from ranklaunch.processes.children import LAUNCHER, LOOK_FOR_RANKS_S, Child, Children
from ranklaunch.redact import redact
from ranklaunch.system import disk, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import name_of

FOLLOW_S = 0.2  # for a program's helpers to end after the program
SAY_S = 1.0  # for orphans to end after SIGTERM, before the console names the living ones
SURE_S = 1.0  # between two looks in a row without a rank
SHOWN = 8  # processes in a message
LONGEST = 100  # characters of a command in a message


class Groups(NamedTuple):
    """Living processes below ranklaunch, in groups.

    carriers: processes between ranklaunch and ranks, without ranklaunch's own children. ranks: processes started by carriers or by own
    children, with all processes below them. orphans: adopted processes, with all processes below them.
    """

    carriers: list[tree.Identity]
    ranks: list[tree.Identity]
    orphans: list[tree.Identity]


def groups(children: Mapping[int, Child]) -> Groups:
    """Group the living processes below ranklaunch, without its helpers.

    children: ranklaunch's own children, by pid.
    """
    living = [each for each in tree.helpers if tree.identify(each.pid) == each]
    helpers = {process for each in living for process in (each, *tree.descendants(each.pid))}
    result = groups_below(os.getpid(), children, {name for child in children.values() for name in child.launcher.CARRIERS})
    return result._replace(orphans=[each for each in result.orphans if each not in helpers])


def groups_below(root: int, own: Collection[int], carriers: Collection[str]) -> Groups:
    """Group the living processes below a process. own: pids of its own children. carriers: names of carrier programs."""
    children = tree.by_parent()
    names = {carrier[: tree.NAME_BYTES] for carrier in carriers}
    result = Groups([], [], [])
    # group: list for all processes below this parent; None for root, its own children and carriers
    parents: list[tuple[int, str, list[tree.Identity] | None]] = [(root, "", None)]
    while parents:
        parent, name, group = parents.pop()
        for pid, entry in children.get(parent, ()):
            is_own = parent == root and pid in own
            is_carrier = entry.name in names and (entry.name not in tree.SHELLS or name.startswith("sshd"))
            into = group
            if group is None and not is_own and not is_carrier:
                into = result.orphans if parent == root else result.ranks
            parents.append((pid, entry.name, into))
            if entry.state not in "ZX" and not (into is None and is_own):
                (result.carriers if into is None else into).append(tree.Identity(pid, entry.start))
    return result


class _Orphans:
    """Commands of orphans, and names of the signals that ended them, by pid."""

    _commands: dict[int, str]
    _signals: dict[int, str]

    @property
    def notes(self) -> Iterator[str]:
        """Yield notes for the verdict."""
        ended = [f"{pid} ({command}) by {self._signals[pid]}" for pid, command in self._commands.items() if pid in self._signals]
        if ended:
            yield f"ended processes that the program left behind: {_joined(ended)}"

    def _living(self) -> list[str]:
        return [f"{pid} ({command})" for pid, command in self._commands.items() if tree.entry(pid)]


class Leftovers(_Orphans):
    """Orphans of ranks that have succeeded, without helpers that end within FOLLOW_S after the ranks."""

    def __init__(self, children: Children, loop: Loop, say: Callable[[str], None], grace_s: float) -> None:
        pids = [each.pid for each in groups(children.running).orphans]
        loop.run_until(partial(_have_ended, pids), loop.clock() + FOLLOW_S)
        self._commands = {pid: command_of(pid) for pid in pids if tree.entry(pid)}
        self._signals = children.killed
        self._signals.clear()

        def say_living() -> None:
            living = self._living()
            if living:
                say(f"waiting at most {grace_s:g} s for the end of processes that the program left behind: {_joined(living)}")

        loop.after(SAY_S, say_living)


class Holders(_Orphans):
    """Removal of orphans that hold up a launcher after its ranks on this node are gone.

    The launcher waits until no process on any node has the ranks' pipes open. Orphans older than the launcher are not touched.
    child: the launcher or, on other nodes, the service that carries its ranks.
    """

    def __init__(self, child: Child, children: Mapping[int, Child], loop: Loop, grace_s: float, say: Callable[[str], None]) -> None:
        self._child = child
        self._children = children
        self._loop = loop
        self._grace_s = grace_s
        self._say = say
        self._before = set(groups(children).orphans)
        self._since: float | None = None
        self._commands = {}
        self._signals = {}

    def watch(self) -> None:
        self._loop.after(SURE_S if self._since else LOOK_FOR_RANKS_S, self._look)

    def _look(self) -> None:
        if self._child.alive:
            with contextlib.suppress(OSError):  # no descriptor left
                self._end_holders()
            self.watch()

    def _end_holders(self) -> None:
        living, now = groups(self._children), self._loop.clock()
        holders = [each for each in living.orphans if each not in self._before]
        waits = self._child.role == LAUNCHER or living.carriers
        if living.ranks or not holders or not waits:
            self._since = None
        elif self._since is None:
            self._since = now
        else:
            self._end(holders, signal.SIGKILL if now - self._since > self._grace_s else signal.SIGTERM)

    def _end(self, holders: list[tree.Identity], number: int) -> None:
        is_first = not self._commands
        new = [each for each in holders if each.pid not in self._commands]
        self._commands.update({each.pid: command_of(each.pid) for each in new})
        if is_first:
            shown = _joined(self._living())
            self._say(f"all ranks here have ended, but orphans hold their pipes: {shown}; ending these within {self._grace_s:g} s")
        for each in holders if number == signal.SIGKILL else new:
            self._signals[each.pid] = name_of(number)
            tree.send(each, number)


def remove_sessions(children: Children) -> None:
    """Remove the session folders of killed launchers and daemons of this job. The name of each ends with the pid of its maker."""
    pids = {*children.killed, *(child.identity.pid for child in children.ended if child.ended.signal)}
    host = os.uname().nodename
    for template in {template for child in children.ended for template in child.process.sessions}:
        for hostname in {host, host.partition(".")[0]}:
            folder = template.replace("{host}", hostname).replace("{uid}", str(os.getuid()))  # noqa: RUF027 (placeholders of the template)
            for pid in pids:
                _remove_sessions_of(pid, folder)


def _remove_sessions_of(pid: int, folder: str) -> None:
    for made in glob.glob(f"{glob.escape(folder)}/*/*_{pid}"):
        with contextlib.suppress(OSError):  # another job has sessions there, or removes the folder too
            if os.lstat(folder).st_uid == os.getuid():
                disk.remove_tree(os.path.dirname(made))
                os.rmdir(folder)


def _joined(shown: list[str]) -> str:
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def command_of(pid: int) -> str:
    """Return the command line of a process for messages, or the kernel's name of the process if that is empty."""
    process = tree.entry(pid)
    return " ".join(" ".join(redact.argv(tree.command(pid)) or [process.name if process else ""]).split())[:LONGEST]


def _have_ended(pids: Iterable[int]) -> bool:
    return not any(map(tree.entry, pids))
