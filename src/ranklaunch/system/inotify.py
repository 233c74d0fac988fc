"""Changes in folders, from the kernel's inotify(7)."""

from __future__ import annotations

import os
import struct

from ranklaunch.system import tree

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x8, 0x80, 0x100, 0x200
_MASK = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_EVENT = struct.Struct("iIII")


class Inotify:
    """Watch over folders. fd: readable after a change; -1 if the system has no inotify instance left (then folders must be polled)."""

    def __init__(self) -> None:
        self.fd: int = tree.libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}

    def watch(self, folder: str) -> bool:
        watch: int = tree.libc().inotify_add_watch(self.fd, os.fsencode(folder), _MASK) if self.fd >= 0 else -1
        if watch >= 0:
            self._folders[watch] = folder
        return watch >= 0

    def changed(self) -> list[str]:
        """Return the changed paths in watched folders, each once, in order; "" among them if the kernel lost events."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        paths: dict[str, None] = {}
        at = 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
            at += _EVENT.size + length
            paths[os.path.join(self._folders[watch], name) if watch in self._folders else ""] = None
        return list(paths)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
