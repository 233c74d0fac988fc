"""Client of a running job: asks a question at the socket of the job's supervisor on this node.

The socket is in the folder of the attempt, below the log folder.
"""

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

STARTS_S = 5.0  # for a new job to open its socket: this takes a second, more on a busy machine
AGAIN_S = 0.1  # between two looks for a socket
ANSWER_S = 60.0  # long enough for stacks of all nodes; other answers take a second
MOST_PLAN = 64 * 1024 * 1024  # bytes
MOST_ANSWER = 256 * 1024 * 1024
_FOLDER = re.compile(r"(?:job|node|attempt|restart)_.{1,200}")
_SOCKET = re.compile(r"node_[0-9]{1,7}\.sock")
_OF_ANOTHER_USER = "belongs to user id {}: only that user and root may ask it"
DEEPEST = 4  # folders below a log folder: job, node, attempt, restart (the socket of a job that first lasted a second after a restart)


def ask(logs: str, env: Mapping[str, str], question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the newest running job on this machine.

    logs: a log folder, or a folder inside; "" for the log folder by this container's environment. Raises WaitError if no job runs here or
    answers, and ConfigError for a refusal or an invalid answer.
    """
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
            msg = silent or f"no running job is found on this machine: {_looked(top)}; give the job's log folder as LOG_DIR"
            raise WaitError(msg)
        time.sleep(AGAIN_S)


def _starts(top: str) -> bool:
    """Return True if an attempt is less than STARTS_S old: it may open its socket in a moment."""
    return any(
        abs(time.time() - _written(folder, folders.PLAN)) < STARTS_S and folders.VERDICT not in _names(folder) for folder in _folders(top)
    )


def _looked(top: str) -> str:
    """Return the reason that a log folder has no running job, for a message."""
    try:
        os.listdir(top)
    except PermissionError:
        return f"{top} may not be read by user id {os.geteuid()}"
    except (OSError, ValueError):
        return f"there is no folder {top}"
    return f"{top} has no attempt whose ranklaunch answers"


def lines(show: Callable[[Mapping[str, Any]], Iterable[str]], answer: Mapping[str, Any]) -> str:
    """Return an answer as text without control characters. show: returns the lines of an answer.

    Raises ConfigError for an answer of another form: anyone who can write into the log folder can put a socket there.
    """
    return understood(partial(_printable, show), answer)


def _printable(show: Callable[[Mapping[str, Any]], Iterable[str]], answer: Mapping[str, Any]) -> str:
    return "".join([f"{showing.printable(line)}\n" for line in show(answer)])


def understood(use: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    """Return use(answer). Raises ConfigError if the answer does not have the form of this version."""
    try:
        return use(answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        msg = "the answer is not understood: the job runs another version of ranklaunch; ask with the job's own version"
        raise ConfigError(msg) from None


def own_logs(env: Mapping[str, str]) -> str:
    """Return the log folder of this container's job, by its environment."""
    reader = Reader(env, DiskFiles(), {}, disk.working_folder())
    disk.absolute(reader.get(LOG_DIR))
    return os.path.dirname(platforms.attempt_dir(reader))


def _sockets(top: str) -> Iterator[str]:
    """Yield the paths of sockets below a folder, the newest attempt first."""
    for _, folder in sorted(((_written(folder, folders.EVENTS), folder) for folder in _folders(top)), reverse=True):
        sockets = [os.path.join(folder, name) for name in sorted(_names(folder)) if _SOCKET.fullmatch(name)]
        yield from sockets or _elsewhere(folder)


def _folders(top: str) -> Iterator[str]:
    """Yield a folder, and the folders of jobs, nodes, attempts and restarts in it."""
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
    """No answer from a socket. Text: the reason, if a job may run on this host; else ""."""


def _asked(path: str, question: Mapping[str, Any]) -> bytes:
    """Return the answer. Raises _SilentError without an answer, also for a socket of a killed ranklaunch or of another host."""
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
    except PermissionError:  # the job may be running, or may have ended
        uid = _owner(path)
        raise _SilentError("" if uid is None else f"a job here, which may run, {_OF_ANOTHER_USER.format(uid)}") from None
    except (OSError, ValueError):  # ValueError: a path with a null byte
        pass
    if owner == -1:
        raise _SilentError
    msg = f"the job that runs here is busy with other clients, or is ending: try again ({path})"
    if os.geteuid() not in (0, owner):
        msg = f"the job that runs here {_OF_ANOTHER_USER.format(owner)}"
    raise _SilentError(msg)


def _connection(path: str) -> socket.socket:
    """Return a connection to a socket. The address goes by a descriptor of the folder, since a socket's path has at most 107 bytes."""
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
    """Return the user id of the owner of a socket, or of its private folder; None if both are unknown."""
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
    """Return an answer. Raises ConfigError for a refusal or an invalid answer, and WaitError for a refusal that will pass."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        msg = f"{path}: the answer is not understood: expected a socket of ranklaunch"
        raise ConfigError(msg)
    if "error" in answer:
        raise (WaitError if answer.get("passes") is True else ConfigError)(str(answer["error"]))
    return answer
