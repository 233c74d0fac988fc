"""Network interfaces of this machine."""

from __future__ import annotations

import fcntl
import socket
import struct

from ranklaunch.system import disk

SIOCGIFADDR = 0x8915  # linux/sockios.h
LONGEST_NAME = 15  # characters, IFNAMSIZ without the NUL
IPV6 = "/proc/net/if_inet6"  # each line ends with an interface name
MOST_BYTES = 1 << 20


def with_address() -> list[str]:
    """Return the names of the interfaces that have an IP address, in the system's order. Raises OSError."""
    text = disk.DiskFiles().text(IPV6, MOST_BYTES) or ""
    by_ipv6 = {line.split()[-1] for line in text.splitlines() if line.strip()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return [name for _, name in socket.if_nameindex() if name in by_ipv6 or _has_ipv4(sock, name)]


def _has_ipv4(sock: socket.socket, name: str) -> bool:
    try:
        fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:LONGEST_NAME]))
    except OSError:
        return False
    return True
