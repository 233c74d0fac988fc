"""Host names to addresses. The system's resolver blocks for as long as name servers are silent, so it runs in a thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ranklaunch.supervise.loop import Loop


class Address(NamedTuple):
    family: socket.AddressFamily
    sockaddr: Any


def look_up(host: str, port: int, loop: Loop, on_answer: Callable[[list[Address], str], object]) -> None:
    """Calls on_answer once, on the loop: with addresses, or with none and the reason."""
    if numeric(host):
        addresses = _resolve(host, port)
        loop.after(0, lambda: on_answer(*addresses))
        return
    try:
        readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:  # no descriptor left
        why = f"its name cannot be looked up ({error.strerror})"
        loop.after(0, lambda: on_answer([], why))
        return
    answer: list[tuple[list[Address], str]] = []

    def resolve() -> None:
        answer.append(_resolve(host, port))
        os.close(writable)

    def answered() -> None:
        loop.forget(readable)
        os.close(readable)
        on_answer(*answer[0])

    loop.on_readable(readable, answered)
    try:
        threading.Thread(target=resolve, daemon=True).start()
    except RuntimeError as error:  # no process left
        answer.append(([], f"its name cannot be looked up ({error})"))
        os.close(writable)


def ipv4(addresses: Iterable[Address]) -> str:
    """The first that other hosts may know this one by too; "" where there is none. A host's own name may stand for 127.0.1.1."""
    found = [str(address.sockaddr[0]) for address in addresses if address.family == socket.AF_INET]
    return next((address for address in found if not address.startswith("127.")), found[0] if found else "")


def numeric(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _resolve(host: str, port: int) -> tuple[list[Address], str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], f"its name does not resolve ({getattr(error, 'strerror', None) or error})"
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found], ""
