"""Files on disk: opening them safely, and a read-only view of real files for platforms and launchers.

Only regular files are opened. In folders writable by other accounts, a FIFO, a device, a link or a folder may take the place of a
file. Opening one of these could hang for ever, or change a foreign file: nothing here waits for one, or writes through one.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import select
import stat
import time
from collections.abc import Iterable

from ranklaunch.errors import ConfigError
from ranklaunch.files import BYTE_ORDER_MARK

GONE = "the working folder was removed, so relative paths cannot be resolved; use an absolute path"
BLOCK = 1024 * 1024
CANNOT_SAVE = 0.001  # share of a file system below which it counts as full
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
FIFO = "a FIFO"
_KINDS = {
    stat.S_IFIFO: FIFO, stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip


class NotRegularError(ConfigError):
    """Something other than a regular file has the file's path. kind: description of it, such as "a FIFO"."""

    kind = ""


def _not_regular(path: str, kind: str, ours: bool = True) -> NotRegularError:
    remedy = "remove it, or use another path" if ours else "use another path"
    result = NotRegularError(f"{path}: {kind} is there, where ranklaunch needs a regular file; {remedy}")
    result.kind = kind
    return result


def append(path: str) -> int:
    """Return a descriptor for appending to a file of ranklaunch, which is made if missing. Raises NotRegularError and OSError."""
    return _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)


def private(path: str) -> int:
    """Return a descriptor for writing a file of ranklaunch from its start, readable by this user alone. Raises NotRegularError and
    OSError."""
    return _opened(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def own(path: str) -> int:
    """Return a descriptor for reading a file of ranklaunch, not through a link. Raises NotRegularError and OSError."""
    return _opened(path, os.O_RDONLY | os.O_NOFOLLOW)


def readable(path: str) -> int:
    """Return a descriptor for reading a file whose path comes from outside. Links are followed: every file of a Kubernetes Secret is
    one. Raises NotRegularError and OSError."""
    return _opened(path, os.O_RDONLY)


def working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed; absolute paths still work
        return "/"


def own_file(path: str, most_bytes: int) -> bytes | None:
    """Return the content of a regular file that belongs to this user; None for anything else, a larger or an unreadable file."""
    try:
        fd = own(path)
        status = os.fstat(fd)
        data = read(fd, most_bytes + 1)
    except (OSError, NotRegularError):
        return None
    return data if status.st_uid == os.geteuid() and len(data) <= most_bytes else None


def names(folder: str, most: int) -> list[str]:
    """Return at most `most` names in a folder, unordered; none if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in itertools.islice(entries, most)]
    except OSError:
        return []


def lock(folder: str) -> int | None:
    """Lock a folder, and return a descriptor that holds the lock until it is closed; None if another process has the lock.

    On mounts without locks every process gets a descriptor. Raises OSError if the folder cannot be opened.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            os.close(fd)
            return None
    return fd


def absolute(path: str, option: str = "") -> str:
    """Return an absolute path. Raises ConfigError for a relative path if the working folder was removed.

    option: prefix of the message, such as the option that sets the path.
    """
    try:
        return os.path.abspath(path)
    except OSError:
        msg = f"{option}{path}: {GONE}"
        raise ConfigError(msg) from None


def read(fd: int, most: int) -> bytes:
    """Return at most `most` bytes, and close the descriptor."""
    with open(fd, "rb") as file:
        return file.read(most) or b""  # None if a non-blocking read gets nothing


def of_pipe(path: str, most: int, seconds: float) -> bytes | None:
    """Return at most `most` bytes of an unnamed pipe, such as /dev/stdin or <(env) of bash, up to its end; None for another kind of file.

    Raises TimeoutError if the pipe has no end within `seconds`, and OSError.
    """
    fd = os.open(path, os.O_RDONLY | _ALWAYS)
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode) or not os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
            return None
        blocks, remaining, until = list[bytes](), most, time.monotonic() + seconds
        while remaining > 0:
            if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                msg = f"no end within {seconds:g} s"
                raise TimeoutError(msg)
            block = os.read(fd, min(BLOCK, remaining))
            if not block:
                break
            blocks.append(block)
            remaining -= len(block)
        return b"".join(blocks)
    finally:
        os.close(fd)


def end_of(path: str, most: int, begin: int = 0) -> bytes:
    """Return at most `most` bytes at the end of a file of ranklaunch, from offset `begin` on; b"" if it cannot be read."""
    try:
        fd = own(path)
        os.lseek(fd, max(begin, os.fstat(fd).st_size - most), os.SEEK_SET)
        return read(fd, most)
    except (OSError, NotRegularError):
        return b""


def _all_of(fd: int, most: int) -> bytes:
    """Return at most `most` bytes. Read in blocks: the kernel refuses large reads of files in /proc/sys, even of short ones."""
    blocks = [os.read(fd, min(BLOCK, most))]
    while blocks[-1] and (remaining := most - sum(map(len, blocks))) > 0:
        blocks.append(os.read(fd, min(BLOCK, remaining)))
    return b"".join(blocks)


def full(folders: Iterable[str]) -> list[tuple[str, str]]:
    """Return the first of these folders on each full file system, with the usage: "100 % of 2.0 GiB used", or "no inode is left".

    File systems that are mounted read-only are left out: nothing is stored there.
    """
    by_device: dict[int, tuple[str, str]] = {}
    for folder in folders:
        try:
            device, state = os.stat(folder).st_dev, os.statvfs(folder)
        except OSError:
            continue
        is_full = bool(state.f_blocks and state.f_bavail < state.f_blocks * CANNOT_SAVE)
        if (is_full or (state.f_files and not state.f_favail)) and not state.f_flag & os.ST_RDONLY:
            usage = f"100 % of {shown(state.f_blocks * state.f_frsize)} used" if is_full else "no inode is left"
            by_device.setdefault(device, (os.path.abspath(folder), usage))
    return [*by_device.values()]


def size_of(folder: str) -> int | None:
    """Return the size in bytes of a folder's file system; None for a missing folder, or a file system without a limit."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    return state.f_blocks * state.f_frsize or None


def shown(count: int) -> str:
    """Return a number of bytes for people: 64.0 MiB."""
    units = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    factor, unit = next((each for each in units if count >= each[0]), units[-1])
    return f"{count / factor:.1f} {unit}"


def make_folder(path: str) -> bool:
    """Make a folder and its parents. Return False if it exists: of several processes, only one gets True. Raises OSError and
    ValueError."""
    try:
        os.makedirs(path)
    except OSError:  # for an existing folder, a read-only file system may report another error than EEXIST
        if not os.path.isdir(path):
            raise
        return False
    except RecursionError:  # makedirs calls itself for each parent
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)) from None
    return True


def require(path: str) -> None:
    """Check that the path is free for a file of ranklaunch. Raises NotRegularError if something other than a file is there."""
    kind = _other(path, links=False)
    if kind:
        raise _not_regular(path, kind)


def write(path: str, data: bytes, mode: int) -> None:
    """Write a file, whole or not at all: a reader never sees half a file. Raises NotRegularError and OSError."""
    make_folder(os.path.dirname(path) or ".")
    require(path)
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"  # a random name, which cannot exist
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _opened(path: str, flags: int, mode: int = 0) -> int:
    links = not flags & os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | _ALWAYS, mode)
    except OSError:  # a link, a folder and a FIFO without a reader fail to open
        kind = _other(path, links)
        if kind:
            raise _not_regular(path, kind, not links) from None
        raise
    kind = _kind(os.fstat(fd))
    if kind:
        os.close(fd)
        raise _not_regular(path, kind, not links)
    return fd


def _other(path: str, links: bool) -> str:
    """Return the kind of a thing other than a regular file at this path; "" for a regular file or nothing."""
    try:
        return _kind(os.stat(path) if links else os.lstat(path))
    except OSError:
        return ""


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "")


class DiskFiles:
    """Files of this container. root: folder below which absolute paths are looked up, "" for /."""

    def __init__(self, root: str = "") -> None:
        self.root = "" if root == "/" else root.rstrip("/")

    def real(self, path: str) -> str:
        return self.root + path if path.startswith("/") else path

    def text(self, path: str, limit: int) -> str | None:
        try:
            fd = readable(self.real(path))
        except NotRegularError as error:
            msg = f"{error.kind}, not a regular file"
            raise ValueError(msg) from None
        except (OSError, ValueError):
            return None
        try:
            size = os.fstat(fd).st_size
            if size > limit:
                msg = f"{size} bytes, more than the limit of {limit}"
                raise ValueError(msg)
            return _all_of(fd, limit).decode().removeprefix(BYTE_ORDER_MARK)
        except OSError:
            return None
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        try:
            return os.path.exists(self.real(path))
        except ValueError:  # a NUL in the name
            return False

    def is_dir(self, path: str) -> bool:
        try:
            return os.path.isdir(self.real(path))
        except ValueError:
            return False

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self.real(path))))
        except (OSError, ValueError):
            return ()


def spare_descriptors(count: int) -> list[int]:
    """Return `count` spare descriptors, to be closed when others are needed. Raises OSError if there are fewer."""
    return [os.open("/", os.O_PATH | os.O_CLOEXEC) for _ in range(count)]


def close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def remove_tree(path: str) -> None:
    """Remove a folder with all its content, as far as possible."""
    import shutil  # large, and not needed at the start

    shutil.rmtree(path, ignore_errors=True)
