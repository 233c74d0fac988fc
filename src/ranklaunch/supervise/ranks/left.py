"""What ranks leave behind: processes that have come to ranklaunch, which adopts orphans, when whoever had started them ended."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ranklaunch import redact
from ranklaunch.supervise.ranks.child import LAUNCHER, Child
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop

LOOK_S = 5.0  # between looks at whether a launcher still has ranks
SURE_S = 1.0  # between the first look that shows none and the second
TEMPORARY = ("TMPDIR", "TEMP", "TMP")
SHOWN = 8  # processes
LONGEST = 100  # characters of a command


def apart(children: Mapping[int, Child]) -> tree.Apart:
    """What lives below ranklaunch beside its own children, which are given by pid."""
    return tree.apart(os.getpid(), children, {name for child in children.values() for name in child.process.conduct.carriers})


def listed(pids: Collection[int]) -> str:
    """Some of them, with their commands."""
    return _joined([f"{pid} ({_command(pid)})" for pid in sorted(pids)])


class Leftovers:
    """What is there when a node's ranks have succeeded."""

    def __init__(self, children: Mapping[int, Child]) -> None:
        self._commands = {each.pid: _command(each.pid) for each in apart(children).left}

    def living(self) -> str:
        return _joined([f"{pid} ({command})" for pid, command in self._commands.items() if tree.entry(pid)])

    def killed(self, by: Mapping[int, str]) -> str:
        """Those that did not end by themselves. by: the names of signals, by pid."""
        return _joined([f"{pid} ({command}) by {by[pid]}" for pid, command in self._commands.items() if pid in by])


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
        self._told: set[tree.Identity] = set()

    def watch(self) -> None:
        self._loop.after(SURE_S if self._since else LOOK_S, self._look)

    def _look(self) -> None:
        if not self._child.alive:
            return
        found, now = apart(self._children), self._loop.clock()
        left = [each for each in found.left if each not in self._before]
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
                self._told.add(each)
                tree.send(each, number)


def remove_sessions(children: Iterable[Child], killed: Collection[int], env: Mapping[str, str]) -> None:
    """Folders that launchers and their daemons have for themselves, and remove unless they are killed. killed: pids of daemons that were.
    Only those of our own: each has the pid of whoever made it at the end of a name."""
    names = {child.process.conduct.sessions for child in children if child.process.conduct.sessions}
    pids = {*killed, *(child.identity.pid for child in children if child.ended.signal)}
    for folder in _session_folders(names, env) if names and pids else ():
        for session in _own(folder, pids):
            shutil.rmtree(session, ignore_errors=True)
        try:
            os.rmdir(folder)
        except OSError:  # another job has sessions there
            pass


def _session_folders(names: Iterable[str], env: Mapping[str, str]) -> Iterator[str]:
    host = os.uname().nodename
    places = {env.get(name) for name in (*TEMPORARY, *(name for name in env if name.endswith("_tmpdir_base")))}
    for place in {"/tmp", *filter(None, places)}:
        for name in names:
            for called in {host, host.partition(".")[0]}:
                folder = os.path.join(place, name.format(host=called, uid=os.getuid()))
                if os.path.isdir(folder) and not os.path.islink(folder) and os.stat(folder).st_uid == os.getuid():
                    yield folder


def _own(folder: str, pids: Collection[int]) -> list[str]:
    sessions = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return [path for path in sessions if any(name.endswith(tuple(f"_{pid}" for pid in pids)) for name in os.listdir(path))]


def _joined(texts: Iterable[str]) -> str:
    shown = list(texts)
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def _command(pid: int) -> str:
    """For people."""
    return " ".join(" ".join(redact.argv(tree.command(pid))).split())[:LONGEST]
