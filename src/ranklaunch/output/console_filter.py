"""Console filters for many ranks: lines of some ranks, equal lines once, and a limit of bytes. The
logs keep all lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Union

from ranklaunch import spans
from ranklaunch.errors import counted
from ranklaunch.output.dedupe import Alike, Group
from ranklaunch.plan.model import Console, Plan
from ranklaunch.system.loop import Loop

TICK_S = 0.25
# Lines of any rank that are shown even when the budget is spent. Lines of a traceback are shown too.
_ALARMING = re.compile(
    rb"warn|error|exception|traceback|critical|fatal|fail|panic|abort|segmentation|killed|out of memory|\bOOM\b|\bnan\b|refused|"
    rb"timed? ?out",
    re.IGNORECASE,
)
_TRACEBACK = re.compile(rb"Traceback \(most recent call last\)")
_WITHIN = re.compile(rb"(?:\[rank ?[0-9]+\]:?)?[ \t]|\s*$")

Lines = Union[bytes, memoryview]
Show = Callable[..., None]


class Crowd:
    """Lines of all ranks on their way to the console.

    show: takes lines for the console. say: prints a line of ranklaunch's own. painted: returns a
    tag with the colour of its rank.
    """

    def __init__(self, plan: Plan, show: Show, loop: Loop, say: Callable[[str], None], painted: Callable[[str, int | None], str]) -> None:
        asked = plan.console or Console()
        self._wanted = spans.parse(asked.ranks) if asked.ranks else None
        self._most = asked.most
        self._show = show
        self._say = say
        self._loop = loop
        self._painted = painted
        self._alike = Alike(len(self._shown(plan))) if asked.merge else None
        self._tags: dict[int, bytes] = {}  # by rank; by a negative number for other processes
        self._tick_is_set = False
        self._bytes = 0
        self._is_spent = False
        self._in_traceback: set[bytes] = set()  # tags whose last line was within a traceback

    def of(self, rank: int | None, tag: str) -> tuple[Show, Show]:
        """Return two sinks for untagged lines: one for lines that are also in a file, one for lines that are in no file."""
        painted = self._painted(tag, rank).encode(errors="surrogateescape")
        aloud = partial(self._show_tagged, painted)
        if rank is not None and not self.shows(rank):
            return _nothing, aloud
        if not self._alike:
            return partial(self._give, painted, rank == 0), aloud
        if rank is None:
            source = -1 - len(self._tags)
            self._tags[source] = painted
            return partial(self._alone, source), aloud
        self._tags[rank] = painted
        return partial(self._take, rank), aloud

    def shows(self, rank: int) -> bool:
        """True if lines of this rank are wanted."""
        return not self._wanted or rank in self._wanted

    def finish(self) -> None:
        """Show the lines that still wait for equal ones."""
        if self._alike:
            self._give_groups(self._alike.all())

    def _shown(self, plan: Plan) -> set[int]:
        ranks = {process.rank for process in plan.processes if process.rank is not None} | set(plan.outputs.keys if plan.outputs else ())
        return {rank for rank in ranks if not self._wanted or rank in self._wanted}

    # Equal lines

    def _take(self, rank: int, *lines: Lines) -> None:
        assert self._alike is not None
        self._alike.add(rank, b"".join(lines)[:-1].split(b"\n"), self._loop.clock())
        self._look()

    def _alone(self, source: int, *lines: Lines) -> None:
        assert self._alike is not None
        self._alike.alone(source, b"".join(lines)[:-1], self._loop.clock())
        self._look()

    def _look(self) -> None:
        assert self._alike is not None
        self._give_groups(self._alike.due(self._loop.clock()))
        if self._alike.waits and not self._tick_is_set:
            self._tick_is_set = True
            self._loop.after(TICK_S, self._tick)

    def _tick(self) -> None:
        self._tick_is_set = False
        self._look()

    def _give_groups(self, groups: Iterable[Group]) -> None:
        """Show groups of equal lines. Neighbouring groups of the same ranks are shown together."""
        last: list[int] | None = None
        lines: list[bytes] = []
        for group in groups:
            ranks = sorted(group.ranks)
            if ranks != last:
                self._give_lines(last, lines)
                last, lines = ranks, []
            lines.append(group.line)
        self._give_lines(last, lines)

    def _give_lines(self, ranks: list[int] | None, lines: list[bytes]) -> None:
        if lines and ranks:
            tag = self._tags[ranks[0]] if len(ranks) == 1 else self._painted(f"[ranks {spans.text(ranks)}] ", ranks[0]).encode()
            self._give(tag, ranks[0] == 0, b"\n".join(lines) + b"\n")

    # The budget

    def _show_tagged(self, tag: bytes, *lines: Lines) -> None:
        self._show(_tagged(tag, b"".join(lines)))

    def _give(self, tag: bytes, of_rank_0: bool, *pieces: Lines) -> None:
        """Show complete lines within the budget; beyond it, lines of rank 0, warnings and errors."""
        lines = b"".join(pieces)
        shown = _tagged(tag, lines)
        self._bytes += len(shown)
        if self._most and not self._is_spent and self._bytes > self._most:
            self._is_spent = True
            most = counted(self._most, "byte")
            self._say(f"the console has shown {most} of the ranks' lines (RANKLAUNCH_CONSOLE_MAX): from here on, it shows only lines "
                      "of rank 0, warnings and errors; the logs have all lines")  # fmt: skip
        if not self._is_spent or of_rank_0:
            self._show(shown)
        elif tag in self._in_traceback or _ALARMING.search(lines):
            alarming = [line + b"\n" for line in lines[:-1].split(b"\n") if self._is_alarming(tag, line)]
            if alarming:
                self._show(_tagged(tag, b"".join(alarming)))

    def _is_alarming(self, tag: bytes, line: bytes) -> bool:
        if _TRACEBACK.search(line):
            self._in_traceback.add(tag)
        elif tag in self._in_traceback and not _WITHIN.match(line):  # the last line of a traceback: the error
            self._in_traceback.discard(tag)
            return True
        return tag in self._in_traceback or bool(_ALARMING.search(line))


def _tagged(tag: bytes, lines: bytes) -> bytes:
    return tag + lines[:-1].replace(b"\n", b"\n" + tag) + b"\n" if tag and lines else lines


def _nothing(*lines: bytes | memoryview) -> None:
    """Show nothing: the log has the lines."""
