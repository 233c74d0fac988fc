"""Program for writing a free port and a token for a Ray cluster into a file. The user's interpreter runs this program, so
nothing of ranklaunch is imported, and the code stays with Python 3.7.

Arguments: the file, the port (0: a free one), and on node 0 a folder for port and token in separate files, too. The
file has both words on one line. All are for this user alone.
"""

import contextlib
import os
import secrets
import socket
import sys

FIRST, LAST = 20000, 31999  # below the ports that the kernel gives to clients


def main(path, port, folder=""):
    port = str(port or free_port())
    token = secrets.token_hex(32)
    write(path, f"{port} {token}\n")
    if folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "ray_started"))  # of the round before
        write(os.path.join(folder, "ray_port"), port)
        write(os.path.join(folder, "ray_token"), token)


def write(path, text):
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def free_port():
    """Return a port on which nobody listens; if all that were tried are taken, the kernel's choice."""
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
