"""Explanation of one log, as a value: `ranklaunch explain` shows it, `ranklaunch.explain_log` returns it."""

from __future__ import annotations

import functools
import itertools
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ranklaunch import showing
from ranklaunch.catalogue.matcher import Finding, findings
from ranklaunch.errors import quoted

SCHEMA: Final = "ranklaunch.explain/1"
MOST_BYTES = 16 * 1024 * 1024  # at the end of the log
MOST_LINES = 500_000  # last lines of these bytes; usual logs have at least 30 bytes a line
UNKNOWN: Final = "unknown"
KEYS = ("kind", "name", "line", "meaning", "remedy", "retry", "source", "family", "line_number")
_OF_ENTRY = ("kind", "name", "meaning", "remedy", "retry", "source", "family")

Kind = Literal["cause", "consequence", "stopped", "unknown"]
Retry = Literal["no", "yes", "elsewhere", ""]

_OURS = re.compile(r"^ranklaunch: (?:last lines of .*(?:\n  .*)*|.*)$", re.MULTILINE)
_LINES = bytes.maketrans(b"\r", b"\n")


@dataclass(frozen=True)
class Log:
    """End of a log. skipped: bytes before the text."""

    text: str
    skipped: int


@dataclass(frozen=True)
class Answer:
    """Explanation of a log: its best known line, and further known lines.

    kind: "cause"; "consequence" of a failure elsewhere; "stopped" by somebody; "unknown" if no line is known, and all texts are empty.
    name: of the known error, one of docs/known-errors.md. family: group of the error.
    line: the line from the log, without secrets.
    line_number: from 1; None if no line is known, or if the log's beginning was skipped.
    meaning, remedy: sentences for people. source: address of the page, source file or thread with the proof of the entry.
    retry: "yes" if the same job may go well at a new start, "elsewhere" if on other hosts, "no" if not, "" if unknown.
    skipped_bytes: unsearched bytes at the beginning of the log.
    others: answers for the other known lines, the best first; each has an empty list here.
    """

    kind: Kind = UNKNOWN
    name: str = ""
    line: str = ""
    meaning: str = ""
    remedy: str = ""
    retry: Retry = ""
    source: str = ""
    family: str = ""
    line_number: int | None = None
    skipped_bytes: int = 0
    others: tuple[Answer, ...] = ()


def end_of_log(data: bytes, skipped: int = 0) -> Log:
    """Return the last MOST_BYTES and MOST_LINES of a log's bytes as text. skipped: bytes of the log before them."""
    cut = max(0, len(data) - MOST_BYTES)
    data, skipped = data[cut:], skipped + cut
    first, *others = data.translate(_LINES).rsplit(b"\n", MOST_LINES)
    if len(others) == MOST_LINES and first:
        cut = len(first) + 1
        data, skipped = data[cut:], skipped + cut
    is_utf_16 = not skipped and data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))  # written by PowerShell's >
    text = data.decode("utf-16" if is_utf_16 else "utf-8", errors="replace")
    return Log(showing.with_returns_told(text), skipped)


def known_lines(log: Log, find: Callable[[str], list[Finding]] = findings) -> list[Finding]:
    """Return the known errors of a log, the best first. find: searches one text.

    Lines that ranklaunch itself wrote count only if no other line is known.
    """
    texts = dict.fromkeys((_without_ours(log.text), log.text))
    return next(filter(None, map(find, texts)), [])


def answer(log: Log, findings: Sequence[Finding]) -> Answer:
    """Return the answer for the known lines of a log."""
    if not findings:
        return Answer(skipped_bytes=log.skipped)
    best, *others = findings
    return _answer(log, best, tuple(_answer(log, each) for each in others))


def as_json(answer: Answer, log: str = "") -> dict[str, Any]:
    """Return the content of `ranklaunch explain --format json`, schema ranklaunch.explain/1. log: name of the file."""
    others = [_plain(each) for each in answer.others]
    return {"schema": SCHEMA, **_plain(answer), "log": log, "skipped_bytes": answer.skipped_bytes, "others": others}


def shown_line(finding: Finding) -> str:
    """Return the line of a finding without secrets and control characters."""
    return showing.printable(quoted((finding.line,))[0])


def line_number(log: Log, finding: Finding) -> int | None:
    """Return the number of a finding's line as editors count, from 1; None if the log's beginning was skipped."""
    return None if log.skipped else _numbers(log.text)[finding.number]


def _answer(log: Log, finding: Finding, others: tuple[Answer, ...] = ()) -> Answer:
    texts: dict[str, Any] = {name: getattr(finding.error, name) for name in _OF_ENTRY}
    return Answer(**texts, line=shown_line(finding), line_number=line_number(log, finding), skipped_bytes=log.skipped, others=others)


def _plain(answer: Answer) -> dict[str, Any]:
    return {key: getattr(answer, key) for key in KEYS}


def _without_ours(text: str) -> str:
    """Return a console's text without the lines that ranklaunch wrote; each other line keeps its number."""
    return _OURS.sub(lambda match: re.sub(r"[^\r\n]+", "", match[0]), text)


@functools.lru_cache(maxsize=1)
def _numbers(text: str) -> Sequence[int]:
    """Return the number of each line as editors count them: a redrawn progress bar is one line."""
    return [*itertools.accumulate((end != "\r" for end in re.findall(r"\r\n|\r|\n", text)), initial=1)]
