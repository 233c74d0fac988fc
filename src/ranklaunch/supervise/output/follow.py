"""Follows the files into which a launcher lets its ranks write, so that their lines reach the console with their own tags.

inotify tells what grew; where the system has no instance left, the folder is looked through twice a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from ranklaunch.supervise.output.pipe import READ, Output
from ranklaunch.system.inotify import Inotify
from ranklaunch.system.loop import Loop, Timer

LOOK_AGAIN_S = 0.5


class Follower:
    """pattern: for paths below folder; its group that matches is the key of one of the outputs. on_file: called when there is a new
    one."""

    def __init__(
        self, folder: str, pattern: str, outputs: Mapping[str, Output], loop: Loop, on_file: Callable[[], None] = lambda: None
    ) -> None:
        os.makedirs(folder, exist_ok=True)
        self._pattern = re.compile(pattern)
        self._outputs = outputs
        self._on_file = on_file
        self._seen: set[str] = set()
        self._loop = loop
        self._offsets: dict[str, int] = _sizes(folder)  # what an earlier start left is not shown again
        self._folder = folder
        self._timer: Timer | None = None
        self._paused = False
        self._last = False
        self._inotify = Inotify()
        if self._inotify.fd >= 0:
            self._watch(folder)
            loop.on_readable(self._inotify.fd, self._on_change)
        else:
            self._look_again()

    def tail_of(self, key: str) -> bytes:
        """The last of what a rank has written."""
        return self._outputs[key].tail if key in self._outputs else b""

    def pause(self, paused: bool) -> None:
        """While paused nothing is read: the files keep it."""
        resumed = self._paused and not paused
        self._paused = paused
        if resumed:
            self._visit(self._folder)

    def finish(self) -> None:
        """Everything that is in the files now, and no more."""
        self._paused, self._last = False, True
        self._visit(self._folder)
        for output in self._outputs.values():
            output.finish()
        if self._timer:
            self._timer.cancel()
        if self._inotify.fd >= 0:
            self._loop.forget(self._inotify.fd)
        self._inotify.close()

    def _on_change(self) -> None:
        for path in self._inotify.changed():
            if not path:
                self._visit(self._folder)
            elif os.path.isdir(path):
                self._watch(path)
            else:
                self._read(path)

    def _watch(self, folder: str) -> None:
        self._inotify.watch(folder)
        for name in _names(folder):  # made before the watch was
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                self._watch(path)
            else:
                self._read(path)

    def _look_again(self) -> None:
        self._visit(self._folder)
        self._timer = self._loop.after(LOOK_AGAIN_S, self._look_again)

    def _visit(self, folder: str) -> None:
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                self._read(os.path.join(parent, name))

    def _read(self, path: str) -> None:
        match = self._pattern.fullmatch(path[len(self._folder) + 1 :])
        output = self._outputs.get(match[match.lastindex or 0]) if match else None
        if not output:
            return
        if path not in self._seen:
            self._seen.add(path)
            self._on_file()
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if os.fstat(fd).st_size < self._offsets.get(path, 0):  # emptied by a launcher that starts anew
                self._offsets[path] = 0
            while not self._paused and (data := os.pread(fd, READ, self._offsets.get(path, 0))):
                whole = len(data) if self._last or len(data) == READ else _whole(data)
                if not whole:
                    break
                self._offsets[path] = self._offsets.get(path, 0) + whole
                output.feed(data[:whole])
        finally:
            os.close(fd)


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last line or redrawn line: a rank's stdout and stderr must not meet within one."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _sizes(folder: str) -> dict[str, int]:
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {path: os.stat(path).st_size for path in paths}


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
