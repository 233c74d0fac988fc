"""Where in an output the patterns of entries match."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from ranklaunch.catalogue.entry import KnownError
from ranklaunch.catalogue.literals import alternatives
from ranklaunch.catalogue.literals import needed as needed_by

_WORD = r"[A-Za-z0-9_]+"
_NOT_APART = r"\\[1-9]|\(\?(?:P=|\(|[a-zA-Z]+[-)])"  # in a pattern: what refers to another part of it, or holds for all of it
_MOST_LINES = 400  # that one entry can have: more than real lines fit into what is searched
_MOST_TRIES = 4  # to match one line with an entry
_FEW = 12  # lines that have a text that an entry needs
_AROUND = 400  # characters on both sides of a text that an entry needs, in which it is to match


@functools.cache
def _words_of(text: str) -> tuple[str, str]:
    """The longest that begins and ends within it, and the longest at all."""
    found = [(match[0], match.start() > 0 and match.end() < len(text)) for match in re.finditer(_WORD, text)]
    return max((word for word, inside in found if inside), key=len, default=""), max((word for word, _ in found), key=len, default="")


class Places:
    """Where the patterns of entries match in an output. A line that it has several times is searched once.

    To look for each of a thousand texts from the beginning to the end would take most of the time. The words of the output, which are
    fewer than its characters, tell of most that they are not there, and of others in which lines they may be."""

    def __init__(self, said: Sequence[str]) -> None:
        self._numbers: dict[str, list[int]] = {}  # of each line
        for number, line in enumerate(said):
            self._numbers.setdefault(line, []).append(number)
        self._lines = tuple(self._numbers)
        self._text = "\n".join(self._lines)
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._words: dict[str, list[str]] = {}  # in which lines
        words = _compiled(_WORD).findall
        for line in self._lines:
            for word in set(words(line)):
                self._words.setdefault(word, []).append(line)
        self._pieces = "\n".join(self._words)
        self._parts: dict[str, list[tuple[str, int, int]]] = {}  # by needed text

    def may_have(self, needed: str) -> bool:
        whole, longest = _words_of(needed)
        return (not whole or whole in self._words) and (longest in self._words or longest in self._pieces)

    def of(self, error: KnownError, there: Iterable[str]) -> set[int]:
        """The numbers of the lines that the pattern matches: it is searched around a text that each match has, which is far faster than
        everywhere."""
        found: set[str] = set()
        for needed in there:
            parts = self._around(needed)
            search = _compiled(_with(error, needed)).search if parts else None
            found.update(line for line, start, stop in parts if search and search(line, start, stop))
        return {number for line in found for number in self._numbers[line]}

    def _around(self, needed: str) -> list[tuple[str, int, int]]:
        """In which lines a match is to be, and from where to where."""
        if needed not in self._parts:
            self._parts[needed] = [part for line, place in self._having(needed) for part in _parts(line, needed, place)]
        return self._parts[needed]

    def _having(self, needed: str) -> Iterable[tuple[str, int]]:
        """Lines, and where in them it is first."""
        if not needed:
            return [(line, 0) for line in self._lines]
        whole, _ = _words_of(needed)
        return _those_with(needed, self._words[whole]) if whole else self._anywhere(needed)

    def _anywhere(self, needed: str) -> list[tuple[str, int]]:
        """One after the other is found fastest where they are few, all at once where they are many."""
        found: list[tuple[str, int]] = []
        position = self._text.find(needed)
        while position >= 0:
            if len(found) == _FEW:
                return _those_with(needed, self._lines)
            number = bisect_right(self._starts, position) - 1
            found.append((self._lines[number], position - self._starts[number]))
            position = self._text.find(needed, self._starts[number + 1])
        return found


def _those_with(needed: str, lines: Iterable[str]) -> list[tuple[str, int]]:
    return [(line, place) for line in lines if (place := line.find(needed)) >= 0][-_MOST_LINES:]


@functools.cache
def _with(error: KnownError, text: str) -> str:
    """Of what the pattern has beside each other, that which needs this text: it is made, and searched, faster than the whole."""
    if _compiled(_NOT_APART).search(error.pattern):
        return error.pattern
    return "|".join(each for each in alternatives(error.pattern) if text in needed_by(each)) or error.pattern


def _parts(line: str, needed: str, place: int) -> Iterator[tuple[str, int, int]]:
    """Around the first places of what is needed; the whole of a line that is not long."""
    if not needed or len(line) <= _AROUND:
        yield line, 0, len(line)
        return
    for _ in range(_MOST_TRIES):
        if place < 0:
            return
        stop = min(len(line), place + _AROUND)
        yield line, max(0, place - _AROUND), stop
        place = line.find(needed, stop)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
