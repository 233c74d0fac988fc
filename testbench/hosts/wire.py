"""A cable with delay and loss of packets, for kernels without tc netem.

Run as a separate program in the network of its links: `wire.py carry NEAR FAR PEER`, `wire.py plain LINK`.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

PROGRAM = (sys.executable, "-I", "-S", os.path.abspath(__file__))

SIOCETHTOOL, ETHTOOL_STXCSUM, ETHTOOL_STSO = 0x8946, 0x17, 0x1F
PACKET_OUTGOING, ETH_P_ALL = 4, 3
MOST_ON_THE_WAY = 20_000


def carry(near: str, far: str, far_peer: str) -> None:
    """Carry frames between two links until stdin ends. A line of stdin sets milliseconds of delay and percent of loss, each way."""
    plain_frames(far_peer)
    ends = [_packets_of(near), _packets_of(far)]
    os.write(1, b"0 \nready\n")
    _carry({ends[0]: ends[1], ends[1]: ends[0]})


def plain_frames(link: str) -> None:
    """Switch off offloading of checksums and segments: this cable has no card that would do them later."""
    with socket.socket() as any_socket:
        for what in (ETHTOOL_STSO, ETHTOOL_STXCSUM):
            off = array.array("B", struct.pack("II", what, 0))
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", link.encode(), off.buffer_info()[0]))


def _packets_of(link: str) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.bind((link, 0))
    packets.setblocking(False)
    return packets


def _carry(other: dict[socket.socket, socket.socket]) -> None:
    delay_s, loss = 0.0, 0.0
    on_the_way: list[tuple[float, int, socket.socket, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
        for ready in select.select([sys.stdin, *other], [], [], wait)[0]:
            if not isinstance(ready, socket.socket):
                line = os.read(0, 4096).split()
                if not line:
                    return
                delay_s, loss = float(line[-2]) / 1000, float(line[-1]) / 100
                continue
            frame = _next_frame(ready)
            if frame and random.random() >= loss and len(on_the_way) < MOST_ON_THE_WAY:
                count += 1
                heapq.heappush(on_the_way, (time.monotonic() + delay_s, count, other[ready], frame))
        while on_the_way and on_the_way[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(on_the_way)
            with contextlib.suppress(OSError):  # link down, or queue full
                end.send(frame)


def _next_frame(end: socket.socket) -> bytes:
    try:
        frame, sender = end.recvfrom(1 << 16)
    except OSError:  # link down
        return b""
    return b"" if sender[2] == PACKET_OUTGOING else frame


PROGRAMS: dict[str, Callable[..., None]] = {"carry": carry, "plain": plain_frames}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
