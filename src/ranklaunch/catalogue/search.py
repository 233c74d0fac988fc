"""From the last output of a rank to the entry that explains its end best.

A line belongs to the first entry that matches it. Then causes win over consequences, and anything over an AFTERMATH; of one kind the
entries of ranklaunch.catalogue.families.LAST come last; otherwise the earliest line wins.

Every pattern is searched in the whole text at once, which is far faster than line by line; no pattern matches the end of a line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.catalogue import python, torch
from ranklaunch.catalogue.entry import CAUSE, KnownError
from ranklaunch.catalogue.families import AFTERMATH, ERRORS, LAST, REPORTS, SURVIVABLE, WAITS
from ranklaunch.catalogue.tracebacks import Lines, Traceback, last_tracebacks

_REPORTED = r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)"
_ENDS_RANKS = "closing signal SIGTERM"
_LONGEST_TEXT = 65536  # characters, of the end
_MOST_LINES = 400  # that one entry can have: more than real lines fit into what is searched
_LONGEST_LINE = 500  # characters of a finding, for people


class Finding(NamedTuple):
    """line: as it was written, without colours; the part that matched where the line is very long."""

    error: KnownError
    line: str


def find(text: str) -> Finding | None:
    """The entry that explains best why the process with this output ended, if any does."""
    lines = Lines(text[-_LONGEST_TEXT:])
    claims = _claims(lines)
    _judge_exceptions(lines, claims)
    _drop_waits_that_are_over(lines, claims)
    if not claims:
        return None
    best = min(claims, key=lambda number: (*_rank(claims[number]), number))
    return Finding(claims[best], _shown(lines.told[best], _compiled(claims[best])))


def reported(text: str) -> str:
    """What a launcher that the program itself has started says of its failure, with restarts of the last one: which of its processes it
    was, and how that ended."""
    matches = [*re.finditer(_REPORTED, text)]
    if not matches:
        return ""
    found = matches[-1]
    code = int(found["code"])
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"its torchrun says that local rank {found['rank']} (pid {found['pid']}) {how}"


def before_report(text: str) -> str:
    """What had been written when a launcher whose ranks share its output said which of them failed, with restarts since it said so before;
    "" where it did not."""
    reports = [*re.finditer(_REPORTED, text)]
    if not reports:
        return ""
    said = text[reports[-2].end() if len(reports) > 1 else 0 : reports[-1].start()].partition(_ENDS_RANKS)[0]
    return said[: said.rfind("\n") + 1]


def _rank(error: KnownError) -> tuple[bool, bool, bool]:
    return error in AFTERMATH, error.kind != CAUSE, error in LAST


def _claims(lines: Lines) -> dict[int, KnownError]:
    """From a line's number to its entry."""
    text = "\n".join(lines.said)
    claims: dict[int, KnownError] = {}
    for error in ERRORS:
        if error is not python.UNCAUGHT and any(needed in text for needed in _needed(error.pattern)):
            for number in _numbers(_compiled(error), text):
                claims.setdefault(number, error)
    return claims


def _numbers(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    """Of the lines that the pattern matches."""
    number = position = 0
    for _ in range(_MOST_LINES):
        match = pattern.search(text, position)
        if not match:
            return
        number += text.count("\n", position, match.start())
        yield number
        position = text.find("\n", match.end())
        if position < 0:
            return


def _judge_exceptions(lines: Lines, claims: dict[int, KnownError]) -> None:
    """Drops what the program survived, and adds the exception that ended it where no entry knows better."""
    reports = {number for number, error in claims.items() if error in REPORTS}
    for group, last in last_tracebacks(lines, reports):
        for number in group:
            if number < last.endings[0] and claims.get(number) in SURVIVABLE:
                del claims[number]
        _name_lost_worker(last, lines.bare, claims)
        if not _explained(last, claims) and _compiled(python.UNCAUGHT).search(lines.bare[last.endings[-1]]):
            claims[last.endings[-1]] = python.UNCAUGHT


def _name_lost_worker(last: Traceback, bare: Sequence[str], claims: dict[int, KnownError]) -> None:
    """A rank that could not fetch something from a data loading worker of its own has lost that, and no peer."""
    if not all(any(text in bare[number] for number in last.frames) for text in torch.WORKER_FRAMES):
        return
    named = any(torch.WORKER_NAMED in bare[number] for number in last.endings)
    for number in last.endings:
        if re.match(torch.WORKER_GONE, bare[number]):
            claims.pop(number, None)
            if not named:
                claims[number] = torch.WORKER_DIED


def _drop_waits_that_are_over(lines: Lines, claims: dict[int, KnownError]) -> None:
    waits = {number for number, error in claims.items() if error in WAITS or _tries_again().search(lines.told[number])}
    over = next((number for number in range(len(lines.bare) - 1, -1, -1) if lines.bare[number].strip() and number not in waits), -1)
    for number in waits:
        if number < over:
            del claims[number]


def _explained(last: Traceback, claims: Mapping[int, KnownError]) -> bool:
    """Whether an entry knows one of its exceptions, or something that the message of one says."""
    named = any(number in claims for number in last.endings)
    return named or any(number in claims and claims[number] not in LAST for number in last.message)


@functools.cache
def _compiled(error: KnownError) -> re.Pattern[str]:
    return re.compile(error.pattern, re.MULTILINE)


@functools.cache
def _tries_again() -> re.Pattern[str]:
    """PyTorch's warnings of a name or port, which it then tries anew: they count only at the very end, as WAITS do."""
    return re.compile(r"\[W[^\]]{0,80}\bsocket\.cpp:\d+\]")


@functools.cache
def _needed(pattern: str) -> tuple[str, ...]:
    """Texts of which each match has one at least: for each alternative the longest that is plain to see, or the empty one."""
    needed, runs, run, depth = [], [""], "", 0
    for token in [*_TOKEN.findall(pattern), "|"]:
        depth += {"(": 1, ")": -1}.get(token, 0)
        plain = token[-1] if len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()) else ""
        if not depth and plain and token not in _SPECIAL:
            run += plain
            continue
        runs.append(run[:-1] if token[0] in "?*+{" else run)
        run = ""
        if token == "|" and not depth:
            needed.append(max(runs, key=len))
            runs = [""]
    return tuple(needed)


_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.")
_SPECIAL = frozenset("()^$.?*+|")


def _shown(line: str, pattern: re.Pattern[str]) -> str:
    line = line.strip()
    if len(line) <= _LONGEST_LINE:
        return line
    match = pattern.search(line)
    start = max(0, match.start() - 80) if match else 0
    return line[start : start + _LONGEST_LINE]
