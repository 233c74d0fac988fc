"""Output of a process."""

from __future__ import annotations

import os
import threading

from testbench.waiting import DEADLINE_S


class Stream:
    """Output of a pipe or pseudo-terminal, read by a thread until its end. The thread then closes `fd`."""

    def __init__(self, fd: int) -> None:
        self.data = bytearray()
        self.ended = False
        self._fd = fd
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 20)
            except OSError:  # a pseudo-terminal whose other end is closed
                data = b""
            with self._grown:
                self.data += data
                self.ended = not data
                self._grown.notify_all()
            if not data:
                os.close(self._fd)
                return

    @property
    def text(self) -> str:
        with self._grown:
            return self.data.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def wait_for(self, text: str, count: int = 1, timeout: float = DEADLINE_S) -> None:
        wanted = text.encode()
        with self._grown:
            self._grown.wait_for(lambda: self.ended or self.data.count(wanted) >= count, timeout)
            times = self.data.count(wanted)
            assert times >= count, f"{text!r}: {times} times, expected {count}, in:\n{self.data[-4000:].decode(errors='replace')}"

    def wait_for_end(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "no end of the stream: a process still holds the writing end"


def tagged(stream: Stream, tag: str) -> bytes:
    """Return the lines of a stream that begin with a tag, without the tag."""
    start = tag.encode()
    lines = bytes(stream.data).splitlines(keepends=True)
    return b"".join(line[len(start) :] for line in lines if line.startswith(start))
