"""Asking a running job, by the socket that its supervisor on this node has in the folder of its attempt."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ranklaunch import showing
from ranklaunch.adapters import platforms
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import LOG_DIR
from ranklaunch.errors import ConfigError, WaitError
from ranklaunch.system import disk
from ranklaunch.system.disk import DiskFiles
from ranklaunch.verdict import folders

T = TypeVar("T")

STARTS_S = 5.0  # a job can be asked once it has lasted a second, on a busy machine a little later
AGAIN_S = 0.1
ANSWER_S = 60.0  # for all nodes to take evidence; else it answers within a second
MOST_PLAN = 64 * 1024 * 1024  # bytes
MOST_ANSWER = 256 * 1024 * 1024
_FOLDER = re.compile(r"(?:job|node|attempt|restart)_.{1,200}")
_SOCKET = re.compile(r"node_[0-9]{1,7}\.sock")
_OTHERS = "belongs to user id {}: only that user and root may ask it"
DEEPEST = 4  # folders below a log folder: of a job, of a node, of an attempt, and of a restart in which a job has lasted at first


def ask(logs: str, env: Mapping[str, str], question: Mapping[str, Any]) -> dict[str, Any]:
    """What the newest job that runs on this machine answers. logs: a log folder, or a folder in it; "" for that of this container's own
    environment. Raises WaitError where none runs."""
    top = disk.absolute(logs or own_logs(env))
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            return _newest(top, question)
        except _SilentError as error:
            silent = str(error)
        if silent or time.monotonic() > deadline or not _starts(top):
            msg = silent or f"no job that runs on this machine is found: {_looked(top)}; LOG_DIR names another folder of logs"
            raise WaitError(msg)
        time.sleep(AGAIN_S)


def _newest(top: str, question: Mapping[str, Any]) -> dict[str, Any]:
    silent = ""
    for path in _sockets(top):
        try:
            return _checked(_asked(path, question), path)
        except _SilentError as error:
            silent = silent or str(error)
    raise _SilentError(silent)


def _starts(top: str) -> bool:
    """Whether an attempt is so new that it may be asked in a moment."""
    return any(
        abs(time.time() - _written(folder, folders.PLAN)) < STARTS_S and folders.VERDICT not in _names(folder)
        for folder in _folders(top, DEEPEST)
    )


def _looked(top: str) -> str:
    try:
        os.listdir(top)
    except PermissionError:
        return f"{top} may not be read by user id {os.geteuid()}"
    except (OSError, ValueError):
        return f"there is no folder {top}"
    return f"{top} has no attempt whose ranklaunch answers"


def lines(show: Callable[[Mapping[str, Any]], Iterable[str]], answer: Mapping[str, Any]) -> str:
    """An answer as text that cannot move a terminal. show: its lines. Raises ConfigError where it is not as this version knows it: whoever
    can write in the folder of the logs may answer there."""
    return understood(lambda answer: "".join([f"{showing.printable(line)}\n" for line in show(answer)]), answer)


def understood(use: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    """Return what `use` makes of an answer. Raises ConfigError where the answer is not as this version knows it."""
    try:
        return use(answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        msg = "what answers there is not understood: expected a ranklaunch of this version"
        raise ConfigError(msg) from None


def own_logs(env: Mapping[str, str]) -> str:
    """The log folder that a job of this container has."""
    reader = Reader(env, DiskFiles(), {}, disk.working_folder())
    disk.absolute(reader.get(LOG_DIR))
    return os.path.dirname(platforms.attempt_dir(reader))


def _sockets(top: str) -> Iterator[str]:
    """Those below a folder, of the newest attempts first."""
    found = sorted(((_written(folder, folders.EVENTS), folder) for folder in _folders(top, DEEPEST)), reverse=True)
    for _, folder in found:
        names = [name for name in _names(folder) if _SOCKET.fullmatch(name)]
        yield from (os.path.join(folder, name) for name in sorted(names))
        if not names:
            yield from _elsewhere(folder)


def _folders(top: str, depth: int) -> Iterator[str]:
    yield top
    for name in _names(top) if depth else ():
        path = os.path.join(top, name)
        if _FOLDER.fullmatch(name) and os.path.isdir(path) and not os.path.islink(path):
            yield from _folders(path, depth - 1)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _written(folder: str, name: str) -> float:
    """In seconds since 1970; 0 where it is not there."""
    try:
        return os.stat(os.path.join(folder, name)).st_mtime
    except OSError:
        return 0.0


def _elsewhere(folder: str) -> Iterator[str]:
    """As the plan tells, where the file system of the logs has no sockets."""
    try:
        plan = json.loads(disk.read(disk.own(os.path.join(folder, folders.PLAN)), MOST_PLAN))
    except (OSError, ConfigError, ValueError, RecursionError):
        return
    path = plan.get("socket") if isinstance(plan, dict) else None
    if isinstance(path, str) and path:
        yield path


class _SilentError(Exception):
    """Nobody answers there. Its text: who would, "" where that is nobody who runs on this host."""


def _asked(path: str, question: Mapping[str, Any]) -> bytes:
    """Raises _SilentError, also of what a killed ranklaunch has left, or one of another host."""
    owner = -1
    try:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        raise _SilentError from None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")  # a path of a socket has 107 bytes at most
            _, owner, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            connection.sendall(json.dumps(question).encode() + b"\n")
            said = _everything(connection)
            if said:
                return said
    except socket.timeout:
        msg = f"the job that runs here has not answered for {ANSWER_S:g} s: its ranklaunch is stopped, or waits for a file system ({path})"
        raise _SilentError(msg) from None
    except BlockingIOError:  # as many as it may have wait for it
        owner = os.geteuid()
    except PermissionError:  # whether one runs is not told
        whose = _owner(path)
        raise _SilentError("" if whose is None else f"a job here, which may run, {_OTHERS.format(whose)}") from None
    except (OSError, ValueError):  # ValueError: of a name that none can have
        pass
    finally:
        os.close(folder)
    if owner == -1:
        raise _SilentError
    msg = f"the job that runs here is busy with others who ask it, or ends: ask again ({path})"
    if os.geteuid() not in (0, owner):
        msg = f"the job that runs here {_OTHERS.format(owner)}"
    raise _SilentError(msg)


def _owner(path: str) -> int | None:
    """Of a socket, or of the private folder that it is in."""
    for each in (path, os.path.dirname(path)):
        try:
            return os.lstat(each).st_uid
        except (OSError, ValueError):
            pass
    return None


def _everything(connection: socket.socket) -> bytes:
    """Within ANSWER_S, however it comes."""
    said, deadline = bytearray(), time.monotonic() + ANSWER_S
    while len(said) < MOST_ANSWER and (data := connection.recv(1024 * 1024)):
        said += data
        connection.settimeout(max(0.001, deadline - time.monotonic()))
    return bytes(said)


def _checked(said: bytes, path: str) -> dict[str, Any]:
    """Raises ConfigError with what the supervisor refuses, WaitError where that passes, and ConfigError where it is of another version."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        msg = f"{path}: what answers there is not understood"
        raise ConfigError(msg)
    if "error" in answer:
        raise (WaitError if answer.get("passes") is True else ConfigError)(str(answer["error"]))
    return answer
