"""Owner of a port in use, as far as visible to this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from ranklaunch.redact import redact

LISTENS = "0A"  # state in /proc/net/tcp
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MOST_SHOWN = 60  # characters of a command in messages
PROGRAM_WORDS = 4  # first words of a command that may name the program, also behind an interpreter


@dataclass(frozen=True)
class Holder:
    """Owner of a port. uid: user id of the socket. pid: its process, 0 if not visible. command: command line of the process."""

    uid: int
    pid: int = 0
    command: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        shown = " ".join(redact.argv(self.command))
        shown = f" ({shown if len(shown) <= MOST_SHOWN else f'{shown[:MOST_SHOWN]}...'})" if shown else ""
        return f"process {self.pid}{shown}" if self.pid else f"a process of user id {self.uid}"

    @property
    def may_be_ours(self) -> bool:
        """Return True if the owner may be an earlier start of this ranklaunch."""
        named = any("ranklaunch" in os.path.basename(word) for word in self.command[:PROGRAM_WORDS])
        return self.uid == os.getuid() and (named or not self.command)


def holder(port: int) -> Holder | None:
    """Return the owner of a port, preferring a listening socket; None if nothing is known."""
    sockets = sorted(_sockets(port), key=lambda each: each[0] != LISTENS)
    if not sockets:
        return None
    _, uid, inode = sockets[0]
    pid = _owner(inode)
    return Holder(uid, pid, _command(pid) if pid else ())


def _sockets(port: int) -> Iterator[tuple[str, int, str]]:
    """Yield state, user id and inode of each socket with this port in this network namespace."""
    for path in TABLES:
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if len(words) > 9 and words[1].endswith(f":{port:04X}") and words[9] != "0":
                    yield words[3], int(words[7]), words[9]


def _owner(inode: str) -> int:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):  # no descriptor left
        return next((pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if wanted in _open(pid)), 0)
    return 0


def _open(pid: int) -> Iterator[str]:
    """Yield the targets of a process's descriptors; none if it has ended, or belongs to another user."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{fd}")


def _command(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return tuple(os.fsdecode(word) for word in file.read(4096).rstrip(b"\0").split(b"\0"))
    except OSError:
        return ()
