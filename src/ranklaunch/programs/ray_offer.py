"""Program that writes a port and a token for a Ray cluster into a file.

The user's interpreter runs this file. So it imports nothing of ranklaunch and works with Python 3.7.

Arguments: the file, the port (0: a free one), and on node 0 also a folder for two files with port and token. The first file has both on
one line. Only this user can read the files.
"""

import contextlib
import os
import secrets
import socket
import sys

FIRST, LAST = 20000, 31999  # below the kernel's range for ports of clients


def main(path, port, folder=""):
    port = str(port or free_port())
    token = secrets.token_hex(32)
    write(path, f"{port} {token}\n")
    if folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "ray_started"))  # of an earlier start
        write(os.path.join(folder, "ray_port"), port)
        write(os.path.join(folder, "ray_token"), token)


def write(path, text):
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def free_port():
    """Return a free port between FIRST and LAST; one that the kernel chooses if 100 attempts find none."""
    for _ in range(100):
        port = FIRST + secrets.randbelow(LAST - FIRST + 1)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
