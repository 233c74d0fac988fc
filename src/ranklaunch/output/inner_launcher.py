"""Search for the rank that started an inner launcher, by the output folder of the inner ranks."""

from __future__ import annotations

import os

from ranklaunch.system import tree

_MOST_ENVIRONMENT = 1024 * 1024  # bytes
_MOST_GENERATIONS = 64


def rank_behind(folder: str) -> int | None:
    """Return the rank above a process with an open file in the folder, None if unknown.

    The rank is the ancestor that is a child of this node's own launcher; its environment has its
    number. It is unknown, for example, after the process has ended.
    """
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
    holder = next((pid for pid in pids if _holds(pid, f"{folder}/")), 0)
    line = _up_to(os.getpid(), holder) if holder else []
    return _rank(line[-2]) if len(line) > 1 else None


def _holds(pid: int, below: str) -> bool:
    try:
        return any(_target(f"/proc/{pid}/fd/{fd}").startswith(below) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # ended, or another user's process
        return False


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile
        return ""


def _up_to(root: int, pid: int) -> list[int]:
    """Return the process and its ancestors below root, root's child last; [] for a process that does
    not descend from root."""
    line = [pid]
    while len(line) < _MOST_GENERATIONS and (process := tree.entry(line[-1])):
        if process.parent == root:
            return line
        line.append(process.parent)
    return []


def _rank(pid: int) -> int | None:
    settings = tree.read(f"/proc/{pid}/environ", _MOST_ENVIRONMENT).split(b"\0")
    number = next((setting[5:] for setting in settings if setting.startswith(b"RANK=")), b"")
    return int(number) if number.isdigit() and len(number) < 8 else None
