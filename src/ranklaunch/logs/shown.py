"""Display of log lines: a tag before each line, redrawn lines in their last state, and no control characters on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ranklaunch import showing

_ORDINARY = bytes([*range(0x20, 0x7F), 0x09, 0x0A])
_RANK = re.compile(r"rank_([0-9]{1,7})\.log")
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # as on the console
PLAIN = "\x1b[0m"


@dataclass(frozen=True)
class Look:
    """Look of shown lines. wanted: filter of lines, None for all. terminal: replace control characters. colours: colour the tags.
    clock: returns the text of a time (microseconds since 1970) to put before each line, None for none."""

    wanted: Callable[[bytes], object] | None = None
    terminal: bool = False
    colours: bool = False
    clock: Callable[[int], str] | None = None

    def block(self, lines: bytes, tag: bytes, at: int) -> bytes:
        """Return complete lines as they are shown. at: their time, in microseconds since 1970."""
        if not (self.wanted or self.terminal or self.clock or b"\r" in lines):
            return tag + lines if lines.find(b"\n") == len(lines) - 1 else tag + lines[:-1].replace(b"\n", b"\n" + tag) + b"\n"
        if b"\r" in lines:
            lines = b"".join([line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n" for line in lines[:-1].split(b"\n")])
        if self.wanted:
            lines = b"".join([line + b"\n" for line in lines[:-1].split(b"\n") if self.wanted(line)])
        if self.terminal and lines.translate(None, _ORDINARY):
            lines = b"".join([_harmless(line) + b"\n" for line in lines[:-1].split(b"\n")])
        if self.clock:
            tag = self.clock(at).encode() + tag
        return tag + lines[:-1].replace(b"\n", b"\n" + tag) + b"\n" if lines else b""


def rank_of(name: str) -> int | None:
    """Return the rank of a log by its file name; None for another log."""
    match = _RANK.fullmatch(name)
    return int(match[1]) if match else None


def tag(name: str, node: int | None, restart: int, colours: bool) -> bytes:
    """Return the tag of a log's lines. node: None in a job of one node."""
    rank = rank_of(name)
    source = f"rank {rank}" if rank is not None else showing.printable(name[: -len(".log")])
    words = [*([f"node {node}"] if node is not None else []), *([f"restart {restart}"] if restart else []), source]
    text = "".join(f"[{word}] " for word in words)
    painted = f"\x1b[{COLOURS[(rank or 0) % len(COLOURS)]}m{text}{PLAIN}" if colours else text
    return painted.encode(errors="backslashreplace")


def _harmless(line: bytes) -> bytes:
    return showing.printable(line.decode(errors="backslashreplace")).encode(errors="backslashreplace")
