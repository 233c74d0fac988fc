"""What ranks leave behind: processes that have come to ranklaunch, which adopts orphans, when whoever had started them ended."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ranklaunch.secrets import redact
from ranklaunch.supervise.ranks.child import LAUNCHER, LOOK_FOR_RANKS_S, Child
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import name_of
from ranklaunch.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ranklaunch.supervise.ranks.children import Children

FOLLOW_S = 0.2  # for a program's helpers to end after it
SAY_S = 1.0  # for what it has left to end when it is told to, before it is said that it does not
SURE_S = 1.0  # between the first look that shows none and the second
SHOWN = 8  # processes
LONGEST = 100  # characters of a command


class Apart(NamedTuple):
    """What lives below ranklaunch. carriers: between it and ranks. ranks: what these, or children of its own, have started. left: what it
    has adopted, with all that is below that."""

    carriers: list[tree.Identity]
    ranks: list[tree.Identity]
    left: list[tree.Identity]


def apart(children: Mapping[int, Child]) -> Apart:
    """What lives below ranklaunch beside its own children, which are given by pid."""
    return apart_from(os.getpid(), children, {name for child in children.values() for name in child.launcher.CARRIERS})


def apart_from(root: int, own: Collection[int], carriers: Collection[str]) -> Apart:
    """own: pids of those that root has started itself."""
    below = tree.by_parent()
    names = {carrier[: tree.NAME_BYTES] for carrier in carriers}
    result = Apart([], [], [])
    parents = [(root, "")]
    while parents:
        parent, name = parents.pop()
        for pid, found in below.get(parent, ()):
            is_own = parent == root and pid in own
            is_carrier = found.name in names and (found.name not in tree.SHELLS or name.startswith("sshd"))
            if is_own or is_carrier:
                parents.append((pid, found.name))
                result.carriers.extend([tree.Identity(pid, found.start)] if is_carrier and not is_own and found.state not in "ZX" else [])
            else:
                group = result.left if parent == root else result.ranks
                group.extend(_living(pid, found, below))
    return result


def _living(pid: int, found: tree.Entry, below: dict[int, list[tuple[int, tree.Entry]]]) -> Iterator[tree.Identity]:
    """A process and all that are below it, however deep."""
    left = [(pid, found)]
    while left:
        pid, found = left.pop()
        if found.state not in "ZX":
            yield tree.Identity(pid, found.start)
        left += below.get(pid, ())


def _of_helpers() -> set[tree.Identity]:
    """What ranklaunch runs for itself, such as what takes evidence, and what that has started."""
    living = {each for each in tree.helpers if tree.identify(each.pid) == each}
    return {below for each in living for below in (each, *tree.descendants(each.pid))}


def listed(pids: Collection[int]) -> str:
    """Some of them, with their commands."""
    return _joined([f"{pid} ({_command(pid)})" for pid in sorted(pids)])


class Leftovers:
    """What is there when a node's ranks have succeeded, and does not end by itself after them, as Python's helpers do."""

    def __init__(self, children: Children, loop: Loop, say: Callable[[str], None], grace_s: float) -> None:
        self._killed = children.killed
        self._say = say
        self._grace_s = grace_s
        own = _of_helpers()
        self._commands = {each.pid: _command(each.pid) for each in apart(children.running).left if each not in own}
        loop.run_until(lambda: not self._living, loop.clock() + FOLLOW_S)
        # One that the program started at its very end had no words while the kernel made it another program.
        self._commands.update({pid: _command(pid) for pid in self._commands if tree.command(pid)})
        self._killed.clear()
        loop.after(SAY_S, self._say_what_lives)

    @property
    def notes(self) -> Iterator[str]:
        """For the verdict."""
        yield from _ended([f"{pid} ({command}) by {self._killed[pid]}" for pid, command in self._commands.items() if pid in self._killed])

    @property
    def _living(self) -> list[str]:
        return [f"{pid} ({command})" for pid, command in self._commands.items() if tree.entry(pid)]

    def _say_what_lives(self) -> None:
        if self._living:
            self._say(f"waiting at most {self._grace_s:g} s for what the program has left to end: {_joined(self._living)}")


class Holders:
    """Ends what holds up a launcher whose ranks on this node are gone: it waits until nobody has their pipes any more, on every node.
    child: the launcher or, on the other nodes, the service that its ranks come through. What was there before it stays."""

    def __init__(self, child: Child, children: Mapping[int, Child], loop: Loop, grace_s: float, say: Callable[[str], None]) -> None:
        self._child = child
        self._children = children
        self._loop = loop
        self._grace_s = grace_s
        self._say = say
        self._before = set(apart(children).left)
        self._since: float | None = None
        self._told: dict[tree.Identity, tuple[str, int]] = {}

    @property
    def notes(self) -> Iterator[str]:
        """For the verdict."""
        yield from _ended([f"{each.pid} ({command}) by {name_of(number)}" for each, (command, number) in self._told.items()])

    def watch(self) -> None:
        self._loop.after(SURE_S if self._since else LOOK_FOR_RANKS_S, self._look)

    def _look(self) -> None:
        if not self._child.alive:
            return
        try:
            found, now = apart(self._children), self._loop.clock()
        except OSError:  # no descriptor left
            self.watch()
            return
        left = [each for each in found.left if each not in self._before.union(_of_helpers())]
        waits = self._child.role == LAUNCHER or found.carriers
        if found.ranks or not left or not waits:
            self._since = None
        elif self._since is None:
            self._since = now
        else:
            self._end(left, number=signal.SIGKILL if now - self._since > self._grace_s else signal.SIGTERM)
        self.watch()

    def _end(self, left: list[tree.Identity], number: int) -> None:
        if not self._told:
            what = listed([each.pid for each in left])
            self._say(f"all ranks here have ended; what they left holds their pipes: {what}; it is ended within {self._grace_s:g} s")
        for each in left:
            if number == signal.SIGKILL or each not in self._told:
                command, _ = self._told.get(each) or (_command(each.pid), 0)
                self._told[each] = (command, number)
                tree.send(each, number)


def remove_sessions(children: Children) -> None:
    """Folders that launchers and their daemons have for themselves, and remove unless they are killed. Only those of our own: each has the
    pid of whoever made it at the end of a name."""
    templates = {template for child in children.ended for template in child.process.sessions}
    pids = {*children.killed, *(child.identity.pid for child in children.ended if child.ended.signal)}
    for folder in _session_folders(templates) if pids else ():
        try:
            for session in _own(folder, pids):
                shutil.rmtree(session, ignore_errors=True)
            os.rmdir(folder)
        except OSError:  # another job has sessions there, or removes it too
            pass


def _session_folders(templates: Iterable[str]) -> Iterator[str]:
    host = os.uname().nodename
    for template in templates:
        for called in {host, host.partition(".")[0]}:
            folder = template.replace("{host}", called).replace("{uid}", str(os.getuid()))  # noqa: RUF027 (the template's own)
            if os.path.isdir(folder) and not os.path.islink(folder) and os.stat(folder).st_uid == os.getuid():
                yield folder


def _own(folder: str, pids: Collection[int]) -> list[str]:
    sessions = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return [path for path in sessions if any(name.endswith(tuple(f"_{pid}" for pid in pids)) for name in os.listdir(path))]


def _ended(processes: list[str]) -> Iterator[str]:
    if processes:
        yield f"ended what the program had left: {_joined(processes)}"


def _joined(shown: list[str]) -> str:
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def _command(pid: int) -> str:
    """For people. The kernel's name of it where it has no words."""
    found = tree.entry(pid)
    return " ".join(" ".join(redact.argv(tree.command(pid)) or [found.name if found else ""]).split())[:LONGEST]
