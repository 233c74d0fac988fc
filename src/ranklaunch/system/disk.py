"""The real files behind the read-only view through which platforms and launchers read."""

from __future__ import annotations

import os
import stat


class DiskFiles:
    """Files as this container sees them; with a root, absolute paths are looked up below it."""

    def __init__(self, root: str = "") -> None:
        self.root = "" if root == "/" else root.rstrip("/")

    def real(self, path: str) -> str:
        return self.root + path if path.startswith("/") else path

    def text(self, path: str, limit: int) -> str | None:
        try:
            # Not blocking: a FIFO or device under a file's name must not hang the start.
            fd = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                msg = "not a regular file"
                raise ValueError(msg)
            if status.st_size > limit:
                msg = f"{status.st_size} bytes, more than the {limit} that are read"
                raise ValueError(msg)
            with open(fd, "rb", closefd=False) as file:
                return file.read(limit).decode()
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
