"""HTTP endpoint of a node for Prometheus and for Kubernetes' probes: /metrics, /healthz and /readyz. A request changes nothing.

The event loop of the supervisor answers, so an answer of /healthz shows that the supervisor lives. A connection takes one request.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from ranklaunch.system.loop import Loop
from ranklaunch.system.stream import Stream

MOST_CONNECTIONS = 8  # at one time; more wait in the kernel's queue
PATIENCE_S = 2.0  # for a request, and for the client to read the answer
MOST_ASKED = 8 * 1024  # bytes of a request
MOST_ANSWERED = 64 * 1024 * 1024  # bytes of a page that waits for its reader
BACKLOG = 64
AGAIN_S = 1.0  # until the next try after an accept that failed
FRESH_S = 1.0  # for which a page is kept: more requests do not mean more work

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
    """Listener on a port of all addresses. Raises OSError if the port cannot be used."""

    def __init__(self, port: int, loop: Loop, pages: Pages) -> None:
        self._loop = loop
        self._pages = pages
        self._connections: set[Connection] = set()
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
        for connection in list(self._connections):
            connection.close()

    def _welcome(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:  # no descriptor left, or the client is gone
            self._pause()
            self._loop.after(AGAIN_S, self._go_on)
            return
        self._connections.add(Connection(accepted, self._loop, self._answer, self._on_close))
        if len(self._connections) >= MOST_CONNECTIONS:
            self._pause()

    def _on_close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._go_on()

    def _pause(self) -> None:
        if self._accepts:
            self._loop.forget(self._socket.fileno())
            self._accepts = False

    def _go_on(self) -> None:
        if not self._accepts and self._socket.fileno() >= 0 and len(self._connections) < MOST_CONNECTIONS:
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


class Connection:
    """Connection with one request. answer: returns the response for a request. on_close: called after the end of the connection."""

    def __init__(
        self, accepted: socket.socket, loop: Loop, answer: Callable[[bytes], bytes], on_close: Callable[[Connection], object]
    ) -> None:
        self._answer = answer
        self._on_close = on_close
        self._request = b""
        self._is_answered = False
        self._timer = loop.after(PATIENCE_S, self.close)
        self._stream = Stream(accepted, loop, self._take, self._end, MOST_ANSWERED)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._end()

    def _end(self, error: OSError | None = None) -> None:
        self._timer.cancel()
        self._on_close(self)

    def _take(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._request += data
        if b"\r\n\r\n" in self._request:
            self._respond(self._answer(self._request))
        elif len(self._request) > MOST_ASKED:
            self._respond(_response(431, _PLAIN, f"expected at most {MOST_ASKED} bytes\n"))

    def _respond(self, response: bytes) -> None:
        self._is_answered = True
        self._stream.send(response)
        self._stream.finish()


_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}  # fmt: skip


def _response(status: int, kind: str, body: str, more: Mapping[str, str] | None = None) -> bytes:
    content = body.encode()
    headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close", **(more or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\n{head}\r\n".encode() + content


def _takes_openmetrics(header: str) -> bool:
    name, _, value = header.partition(":")
    return name.strip().lower() == "accept" and OPENMETRICS in value.lower()


def _listening(port: int) -> socket.socket:
    """Return a socket listening at all addresses of the node, also IPv6 addresses if the kernel has IPv6."""
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
