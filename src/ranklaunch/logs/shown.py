"""Display of log lines: each with its tag, a redrawn line in its last state; on a terminal without control characters."""

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
    """Look of shown lines. wanted: filter of lines, None for all. terminal: must bear any log content. colours: of tags.
    clock: text of the microseconds since 1970 before each line, None for none."""

    wanted: Callable[[bytes], object] | None = None
    terminal: bool = False
    colours: bool = False
    clock: Callable[[int], str] | None = None

    def block(self, lines: bytes, tag: bytes, at: int) -> bytes:
        """Whole lines as they are shown. at: when they came."""
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
    """By the name of a log; None of what is no rank."""
    match = _RANK.fullmatch(name)
    return int(match[1]) if match else None


def tag(name: str, node: int | None, restart: int, colours: bool) -> bytes:
    """Of the lines of a log. node: None where there is one alone."""
    rank = rank_of(name)
    who = f"rank {rank}" if rank is not None else showing.printable(name[: -len(".log")])
    words = [*([f"node {node}"] if node is not None else []), *([f"restart {restart}"] if restart else []), who]
    text = "".join(f"[{word}] " for word in words)
    painted = f"\x1b[{COLOURS[(rank or 0) % len(COLOURS)]}m{text}{PLAIN}" if colours else text
    return painted.encode(errors="backslashreplace")


def _harmless(line: bytes) -> bytes:
    return showing.printable(line.decode(errors="backslashreplace")).encode(errors="backslashreplace")
