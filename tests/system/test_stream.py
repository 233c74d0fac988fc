"""A connected socket on the loop."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Optional

import pytest

from ranklaunch.system.loop import Loop
from ranklaunch.system.stream import Stream
from testbench.waiting import sleep_until


@pytest.mark.parametrize("sends", [False, True])
def test_why_it_is_over_is_told_whoever_hears_of_it_first(sends: bool) -> None:
    """The kernel tells the error once, to whoever reads or writes first; to the other it looks as if the other side had closed."""
    loop, why = Loop(), list[Optional[OSError]]()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        other, _ = server.accept()
        stream = Stream(own, loop, lambda data: None, why.append)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()  # resets it
        sleep_until(lambda: own.fileno() >= 0 and not _is_connected(own), "the reset has not come")
        if sends:
            stream.send(b"x")
        while not why:
            loop.step(1.0)
    assert [error and error.errno in (errno.ECONNRESET, errno.EPIPE) for error in why] == [True]


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
