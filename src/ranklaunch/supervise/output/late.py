"""The last words of a rank in the order in which they were said.

What a filter has passed on comes too late: `python train.py > >(tee out.txt)` writes its exception past tee, which has yet to pass on the
line before it. That line is no sign of a program that has gone on. And what a launcher's ranks wrote that a rank had started is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.catalogue.scripts import reported
from ranklaunch.catalogue.survival import LOGGED, counted_on, said_more, went_on
from ranklaunch.catalogue.tracebacks import BEGINS, CHAINED, NAMES, without_prefixes

_NUMBER = re.compile(r"[0-9]+")


def settled(tail: bytes, together: int, stroke: int = 0) -> bytes:
    """tail, whose last bytes came at once; if the last traceback is among these, and lines behind it look as if the program went on,
    with the traceback behind them. stroke: how many bytes came last without a pause, where the program has ended: a filter may only then
    have passed on many lines. One of both streams does so with lines of before the traceback, too."""
    at_once = tail[-together:].decode(errors="surrogateescape") if together else ""
    if BEGINS not in at_once:
        return tail
    moved = _with_traceback_last(at_once.split("\n"), stroke)
    return tail[:-together] + "\n".join(moved).encode(errors="surrogateescape") if moved else tail


def with_others(tail: bytes, others: bytes) -> bytes:
    """tail, with what others have written before the last report of a launcher in it, which may be of these."""
    text = tail.decode("latin-1")  # a character a byte
    reports = reported(text)
    at = text.rfind("\n", 0, reports[-1].begin) + 1 if reports else 0
    return tail[:at] + others.rstrip(b"\n") + b"\n" + tail[at:] if reports else tail


def continued(tail: bytes, now: bytes) -> bytes:
    """tail, with the rest of the traceback within which it ends, or of those that are chained to it, as far as that has come since. now:
    what its rank has written by now, of which nothing else counts: others may have said it."""
    first = BEGINS.encode()
    begin = tail.rfind(first)
    above = tail.rfind(b"\n", 0, max(0, tail.rfind(b"\n", 0, max(0, begin)))) + 1  # a line more, by which it differs from others
    told = tail[above:]
    at = now.find(first)
    while at >= 0 and not (at >= begin - above and now.startswith(told, at - (begin - above))):
        at = now.find(first, at + 1)
    if begin < 0 or at < 0 or b"\n" not in tail[begin:]:
        return tail
    begun, _, _ = tail.rpartition(b"\n")
    text = tail + now[at + len(tail) - begin :]
    lines = text.decode(errors="surrogateescape").split("\n")
    more = _rest_of_traceback(lines, begun.count(b"\n") + 1)
    return b"\n".join([begun, *(line.encode(errors="surrogateescape") for line in more), b""]) if more else tail


def _rest_of_traceback(lines: Sequence[str], known: int) -> Sequence[str]:
    """Of the lines from number `known` on, those of the last traceback above them, where it ends with an exception's name."""
    _, bare = without_prefixes("\n".join(lines))
    first = next((number for number in range(known - 1, -1, -1) if bare[number].endswith(BEGINS)), len(lines))
    rest: list[str] = []
    end, named, chained = 0, False, False
    for number in range(first + 1, len(lines)):
        line = bare[number]
        if line.startswith(BEGINS):
            if not chained:
                break
            named = chained = False
        elif named and line.startswith(CHAINED):
            chained = True
        elif line.strip() and line[0] not in " \t":
            if named:
                break
            named = re.match(NAMES, line) is not None
            if not named:  # another's, while Python wrote the traceback
                continue
        if number >= known:
            rest.append(lines[number])
        if named and not chained and line.strip():
            end = len(rest)
    return rest[:end]


def _with_traceback_last(lines: Sequence[str], stroke: int) -> list[str]:
    """Nothing where it is so already."""
    told, bare = without_prefixes("\n".join(lines))
    begins = [number for number, line in enumerate(bare) if line.endswith(BEGINS)]
    if not begins:
        return []
    first = _chain(bare, begins)
    filled = [number for number in range(first, len(lines)) if bare[number].strip()]
    marks = {number: _NUMBER.sub("0", lines[number].removesuffix(bare[number])) for number in filled}
    strange = {number for number in filled if marks[number] != marks[begins[-1]]}
    below = [number for number in filled if number > begins[-1] and bare[number][0] not in " \t"]
    end = next((number for number in below if number not in strange and re.match(NAMES, bare[number])), len(lines))
    within = {number for number in {*below, *strange} if number < end}  # while Python wrote the traceback
    behind = lines[end + 1 :]
    if end == len(lines) or not (within or went_on(bare, told, end, raised=True) >= 0 or said_more(bare, end)):
        return []
    passed_on = len("\n".join(behind).encode(errors="surrogateescape")) <= stroke
    held = passed_on and _shapes(bare[:first]).isdisjoint(_shapes(bare[end + 1 :]))
    if (first and re.search(LOGGED, told[first - 1])) or (not held and counted_on(bare, end, len(lines))):
        return []  # it was caught
    traceback = [line for number, line in enumerate(lines[first : end + 1], first) if number not in within]
    said = [*(lines[number] for number in sorted(within)), *behind]
    return [*lines[:first], *filter(None, said), *traceback, ""]


def _chain(bare: Sequence[str], begins: Sequence[int]) -> int:
    """Where the last traceback begins, or the first of those that it was raised from, or the group that it is of."""
    first = begins[-1]
    for begin in reversed(begins[:-1]):
        of_group = bare[first].lstrip(" ").startswith("|")
        if not of_group and not any(line.startswith(CHAINED) for line in bare[begin + 1 : first + 1]):
            break
        first = begin
    return first


def _shapes(lines: Sequence[str]) -> set[str]:
    """What lines are like that differ in numbers alone."""
    return {_NUMBER.sub("0", line) for line in lines if line.strip()}
