"""HTTP endpoint of a node for Prometheus and for the probes of Kubernetes: /metrics, /healthz and /readyz. It only reads.

The event loop of the supervisor answers, so an answer of /healthz shows that the supervisor lives. A connection takes one request.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from ranklaunch.system.loop import Loop

MOST_GUESTS = 8  # connections at one time; more wait in the kernel's queue
PATIENCE_S = 2.0  # for a request to come and its answer to be taken
MOST_ASKED = 8 * 1024  # bytes of a request
BACKLOG = 64
AGAIN_S = 1.0  # until the next try after an accept that failed
FRESH_S = 1.0  # a page is made at most once in this time, however often it is asked for

OPENMETRICS = "application/openmetrics-text"
_METRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
_OLDER_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"


class Pages(Protocol):
    """Contents of the endpoint."""

    def metrics_text(self, openmetrics: bool) -> str:
        """Return the metrics of the node, in the form of OpenMetrics or in Prometheus' own."""

    def phase(self) -> str:
        """Return the phase of this node; its ranks run in "running"."""


class Endpoint:
    """Listen on a port of all addresses. Raise OSError where the port cannot be had."""

    def __init__(self, port: int, loop: Loop, pages: Pages) -> None:
        self._loop = loop
        self._pages = pages
        self._guests: dict[int, Guest] = {}
        self._made: dict[bool, tuple[float, str]] = {}
        self._socket = _listening(port)
        loop.on_readable(self._socket.fileno(), self._welcome)
        self._accepts = True

    def close(self) -> None:
        """Close the port and all connections."""
        if self._accepts:
            self._loop.forget(self._socket.fileno())
        self._accepts = False
        self._socket.close()
        for guest in list(self._guests.values()):
            guest.leave()

    def _welcome(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # no descriptor left, or the client has gone
            self._pause()
            self._loop.after(AGAIN_S, self._go_on)
            return
        connection.setblocking(False)
        self._guests[connection.fileno()] = Guest(connection, self._loop, self._answer, self._left)
        if len(self._guests) >= MOST_GUESTS:
            self._pause()

    def _left(self, fd: int) -> None:
        del self._guests[fd]
        self._go_on()

    def _pause(self) -> None:
        if self._accepts:
            self._loop.forget(self._socket.fileno())
            self._accepts = False

    def _go_on(self) -> None:
        if not self._accepts and self._socket.fileno() >= 0 and len(self._guests) < MOST_GUESTS:
            self._loop.on_readable(self._socket.fileno(), self._welcome)
            self._accepts = True

    def _answer(self, request: bytes) -> bytes:
        lines = request.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, _PLAIN, "expected a request of HTTP/1.1\n")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(405, _PLAIN, "expected GET or HEAD\n", {"Allow": "GET, HEAD"})
        answer = self._page(path, any(_takes_openmetrics(line) for line in lines[1:]))
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer

    def _page(self, path: str, openmetrics: bool) -> bytes:
        if path == "/metrics":
            return _response(200, _METRICS_TYPE if openmetrics else _OLDER_TYPE, self._metrics(openmetrics))
        if path == "/healthz":
            return _response(200, _PLAIN, "the supervisor lives\n")
        if path == "/readyz":
            phase = self._pages.phase()
            return _response(200 if phase == "running" else 503, _PLAIN, f"{phase}\n")
        return _response(404, _PLAIN, "expected /metrics, /healthz or /readyz\n")

    def _metrics(self, openmetrics: bool) -> str:
        now = self._loop.clock()
        made = self._made.get(openmetrics)
        if not made or now - made[0] > FRESH_S:
            made = self._made[openmetrics] = now, self._pages.metrics_text(openmetrics)
        return made[1]


class Guest:
    """A connection with one request.

    answer: returns the response for a request. left: is called with the number of the descriptor before it is closed.
    """

    def __init__(self, connection: socket.socket, loop: Loop, answer: Callable[[bytes], bytes], left: Callable[[int], object]) -> None:
        self._connection = connection
        self._loop = loop
        self._answer = answer
        self._left = left
        self._request = b""
        self._response = b""
        self._open = True
        self._timer = loop.after(PATIENCE_S, self.leave)
        loop.on_readable(connection.fileno(), self._read)

    def leave(self) -> None:
        """Close the connection."""
        if not self._open:
            return
        self._open = False
        self._timer.cancel()
        self._loop.forget(self._connection.fileno())
        self._left(self._connection.fileno())
        self._connection.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(MOST_ASKED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.leave()
            return
        self._request += data
        if b"\r\n\r\n" in self._request:
            self._respond(self._answer(self._request))
        elif len(self._request) > MOST_ASKED:
            self._respond(_response(431, _PLAIN, f"expected at most {MOST_ASKED} bytes\n"))

    def _respond(self, response: bytes) -> None:
        self._response = response
        self._loop.change(self._connection.fileno(), None, self._write)
        self._write()

    def _write(self) -> None:
        try:
            self._response = self._response[self._connection.send(self._response) :]
        except BlockingIOError:
            return
        except OSError:
            self._response = b""
        if not self._response:
            with contextlib.suppress(OSError):  # the client has gone
                self._connection.shutdown(socket.SHUT_WR)
            self.leave()


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Header Fields Too Large"}
_REASONS[503] = "Service Unavailable"


def _response(status: int, kind: str, body: str, more: Mapping[str, str] | None = None) -> bytes:
    content = body.encode()
    headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close", **(more or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\n{head}\r\n".encode() + content


def _takes_openmetrics(header: str) -> bool:
    name, _, value = header.partition(":")
    return name.strip().lower() == "accept" and OPENMETRICS in value.lower()


def _listening(port: int) -> socket.socket:
    """Return a socket that listens at all addresses of the node, also those of IPv6 where the kernel has it."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(_NoIpv6Error):
            return _bound(socket.AF_INET6, port)
    return _bound(socket.AF_INET, port)


class _NoIpv6Error(OSError):
    """IPv6 is switched off on this host."""


def _bound(family: int, port: int) -> socket.socket:
    both = family == socket.AF_INET6
    try:
        listener = socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        if both and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _NoIpv6Error from error
        raise
    listener.setblocking(False)
    return listener
