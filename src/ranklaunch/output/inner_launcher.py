"""Which rank has started the launcher that lets its ranks write into a folder."""

from __future__ import annotations

import os

from ranklaunch.system import tree

_MOST_ENVIRONMENT = 1024 * 1024  # bytes
_MOST_GENERATIONS = 64


def rank_behind(folder: str) -> int | None:
    """By the process that has a file in the folder open: its ancestor right below this node's own launcher is a rank, and has its number
    in its environment. None where that cannot be seen, as of what has ended meanwhile."""
    holder = next(filter(lambda pid: _holds(pid, f"{folder}/"), map(int, filter(str.isdecimal, os.listdir("/proc")))), 0)
    line = _up_to(os.getpid(), holder) if holder else []
    return _rank(line[-2]) if len(line) > 1 else None


def _holds(pid: int, below: str) -> bool:
    try:
        return any(_target(f"/proc/{pid}/fd/{fd}").startswith(below) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # gone, or another user's
        return False


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile
        return ""


def _up_to(root: int, pid: int) -> list[int]:
    """The process and its ancestors below root, that which is root's child the last; empty where it does not descend from root."""
    line = [pid]
    while len(line) < _MOST_GENERATIONS and (found := tree.entry(line[-1])):
        if found.parent == root:
            return line
        line.append(found.parent)
    return []


def _rank(pid: int) -> int | None:
    settings = tree.read(f"/proc/{pid}/environ", _MOST_ENVIRONMENT).split(b"\0")
    number = next((setting[5:] for setting in settings if setting.startswith(b"RANK=")), b"")
    return int(number) if number.isdigit() and len(number) < 8 else None
