"""Client of a running job: asks the socket that its supervisor on this node has in the folder of its attempt."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
    """Return the answer of the newest job on this machine. logs: a log folder, or a folder inside; "" for the one of this
    container's environment. Raises WaitError if no job runs, and ConfigError if the answer refuses or is not understood."""
    top = disk.absolute(logs or own_logs(env))
    deadline = time.monotonic() + STARTS_S
    while True:
        silent = ""
        for path in _sockets(top):
            try:
                return _checked(_asked(path, question), path)
            except _SilentError as error:
                silent = silent or str(error)
        if silent or time.monotonic() > deadline or not _starts(top):
            msg = silent or f"no job that runs on this machine is found: {_looked(top)}; LOG_DIR names another folder of logs"
            raise WaitError(msg)
        time.sleep(AGAIN_S)


def _starts(top: str) -> bool:
    """Return True if an attempt is so new that it may answer in a moment."""
    return any(
        abs(time.time() - _written(folder, folders.PLAN)) < STARTS_S and folders.VERDICT not in _names(folder) for folder in _folders(top)
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
    """Return an answer as text that cannot move a terminal. show: returns its lines. Raises ConfigError for an answer of another form:
    anybody who can write in the folder of the logs may answer there."""
    return understood(partial(_printable, show), answer)


def _printable(show: Callable[[Mapping[str, Any]], Iterable[str]], answer: Mapping[str, Any]) -> str:
    return "".join([f"{showing.printable(line)}\n" for line in show(answer)])


def understood(use: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    """Return what `use` makes of an answer. Raises ConfigError where the answer is not as this version knows it."""
    try:
        return use(answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        msg = "what answers there is not understood: expected a ranklaunch of this version"
        raise ConfigError(msg) from None


def own_logs(env: Mapping[str, str]) -> str:
    """Return the log folder of a job of this container."""
    reader = Reader(env, DiskFiles(), {}, disk.working_folder())
    disk.absolute(reader.get(LOG_DIR))
    return os.path.dirname(platforms.attempt_dir(reader))


def _sockets(top: str) -> Iterator[str]:
    """Yield the sockets below a folder, of the newest attempts first."""
    for _, folder in sorted(((_written(folder, folders.EVENTS), folder) for folder in _folders(top)), reverse=True):
        sockets = [os.path.join(folder, name) for name in sorted(_names(folder)) if _SOCKET.fullmatch(name)]
        yield from sockets or _elsewhere(folder)


def _folders(top: str) -> Iterator[str]:
    """Yield a folder, and those of jobs, nodes, attempts and restarts in it."""
    for folder, names, _ in os.walk(top):
        yield folder
        is_deep = folder[len(top) :].count("/") >= DEEPEST
        names[:] = [] if is_deep else filter(_FOLDER.fullmatch, names)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _written(folder: str, name: str) -> float:
    """Return when a file was written, in seconds since 1970; 0 for no file."""
    try:
        return os.stat(os.path.join(folder, name)).st_mtime
    except OSError:
        return 0.0


def _elsewhere(folder: str) -> Iterator[str]:
    """Yield the socket that plan.json names, if the file system of the logs has no sockets."""
    try:
        plan = json.loads(disk.read(disk.own(os.path.join(folder, folders.PLAN)), MOST_PLAN))
    except (OSError, ConfigError, ValueError, RecursionError):
        return
    path = plan.get("socket") if isinstance(plan, dict) else None
    if isinstance(path, str) and path:
        yield path


class _SilentError(Exception):
    """No answer from a socket. Its text: the job that runs there, "" for none that runs on this host."""


def _asked(path: str, question: Mapping[str, Any]) -> bytes:
    """Return the answer. Raises _SilentError without one: also for a socket that a killed ranklaunch has left, or one of another host."""
    owner = -1
    try:
        with _connection(path) as connection:
            _, owner, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = _everything(connection)
            if answer:
                return answer
    except socket.timeout:
        msg = f"the job that runs here has not answered for {ANSWER_S:g} s: its ranklaunch is stopped, or waits for a file system ({path})"
        raise _SilentError(msg) from None
    except BlockingIOError:  # too many clients wait
        owner = os.geteuid()
    except PermissionError:  # a running job cannot be told from an ended one
        whose = _owner(path)
        raise _SilentError("" if whose is None else f"a job here, which may run, {_OTHERS.format(whose)}") from None
    except (OSError, ValueError):  # ValueError: for a name that no file can have
        pass
    if owner == -1:
        raise _SilentError
    msg = f"the job that runs here is busy with others who ask it, or ends: ask again ({path})"
    if os.geteuid() not in (0, owner):
        msg = f"the job that runs here {_OTHERS.format(owner)}"
    raise _SilentError(msg)


def _connection(path: str) -> socket.socket:
    """Return a connection to a socket, by way of its folder: a path of a socket has 107 bytes at most."""
    try:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise _SilentError from None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection


def _owner(path: str) -> int | None:
    """Return the owner of a socket, or of the private folder that it is in."""
    for each in (path, os.path.dirname(path)):
        try:
            return os.lstat(each).st_uid
        except (OSError, ValueError):
            pass
    return None


def _everything(connection: socket.socket) -> bytes:
    """Return the whole answer, within ANSWER_S."""
    answer, deadline = bytearray(), time.monotonic() + ANSWER_S
    while len(answer) < MOST_ANSWER and (data := connection.recv(1024 * 1024)):
        answer += data
        connection.settimeout(max(0.001, deadline - time.monotonic()))
    return bytes(answer)


def _checked(data: bytes, path: str) -> dict[str, Any]:
    """Raises ConfigError with the supervisor's refusal, WaitError if the refusal passes, and ConfigError for another version."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        msg = f"{path}: what answers there is not understood"
        raise ConfigError(msg)
    if "error" in answer:
        raise (WaitError if answer.get("passes") is True else ConfigError)(str(answer["error"]))
    return answer
