"""What is known of an output in which no entry of its own matches: by the last words after the process was last seen at work."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence

from ranklaunch.catalogue.entry import CAUSE, FAINT, GENERAL, LAST, UNCAUGHT, WORDS, KnownError
from ranklaunch.catalogue.tracebacks import Lines

_MOST_LINES = 40  # that are not empty: what stands before them is no last word
_FEWEST_LINES = 12  # of those, where the words are faint
_LONGEST = 1000  # characters of one that are looked at


def of_exception(line: str, errors: Sequence[KnownError]) -> KnownError | None:
    """By what it says of others, if it is the line of an exception."""
    uncaught = next(error for error in errors if error.standing == UNCAUGHT)
    if not _compiled(uncaught.pattern).search(line):
        return None
    told = _first([error for error in errors if error.standing == WORDS], line[:_LONGEST])
    return told if told and told.kind != CAUSE else uncaught


def last_words(lines: Lines, errors: Sequence[KnownError]) -> dict[int, KnownError]:
    """From a line's number to its entry: that of the exception which is told within the line, if there is one; else by its words."""
    found = _since_work(lines)
    usual = [error for error in errors if error.standing not in GENERAL]
    named = {number: _named(text, usual) for number, text in found}
    claims = {number: error for number, error in named.items() if error}
    if claims:
        return claims
    told = _told(lines, found, errors)
    last = {number for number, _ in found[:_FEWEST_LINES]}
    return {number: error for number, error in told.items() if error.standing != FAINT or number in last}


def causes_before(lines: Lines, errors: Sequence[KnownError], reports: Collection[int]) -> dict[int, KnownError]:
    """What may be the cause where entries know only of lines that leave it open. reports: those with which a launcher tells of it."""
    found = [each for each in _since_work(lines) if each[0] < min(reports, default=len(lines.told))]
    return {number: error for number, error in _told(lines, found, errors).items() if error.kind == CAUSE and error.standing != FAINT}


def _told(lines: Lines, found: Sequence[tuple[int, str]], errors: Sequence[KnownError]) -> dict[int, KnownError]:
    """By their words alone; a logger's level stands in what was told before the line itself."""
    general = [error for error in errors if error.standing in (WORDS, LAST, FAINT)]
    told = {number: _first(general, text) or _first(general, lines.told[number][:_LONGEST]) for number, text in found}
    return {number: error for number, error in told.items() if error}


def _since_work(lines: Lines) -> list[tuple[int, str]]:
    """The last lines, up to one that shows the program at work, without those that it survives."""
    found = []
    said = lines.said
    filled = [number for number, line in enumerate(said) if line.strip()][-_MOST_LINES:]
    for number in reversed(filled):
        line, told = said[number][:_LONGEST], lines.told[number][:_LONGEST]
        if _compiled(_SURVIVED).search(told) and "NCCL WARN" not in told:
            continue
        if _compiled(_AT_WORK).search(told) or (_compiled(_TELLS).search(told) and not _compiled(_ENDS).search(told)):
            break
        if not lines.framed(number):  # the process survived that traceback
            found.append((number, line))
    return found


def _named(line: str, errors: Sequence[KnownError]) -> KnownError | None:
    exception = _compiled(_EXCEPTION).search(line)
    if not exception or not exception.start():
        return None
    inner = line[exception.start() :]
    return next((error for error in errors if any(text in inner for text in error.needed) and _compiled(error.pattern).search(inner)), None)


def _first(errors: Sequence[KnownError], line: str) -> KnownError | None:
    return next((error for error in errors if _compiled(error.pattern).search(line)), None)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


_EXCEPTION = r"\b(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception): ?\S"
_SURVIVED = "|".join(
    (
        r"(?i:\bwarn(?:ing|ings)?\b|\w*Warning:|\bdeprecat|\bnote:|\bhint:|\boptional\b)",
        r"(?i:\bretry|\bretries\b|\bretrying|\bagain in\b|\battempt \d|\bignor(?:e|ed|ing)\b|\bskip|\bfall(?:ing|s)? ?back|\binstead\b)",
        r"(?i:will (?:be|use|try|proceed|continue|retry|not be)|won.t be|\bgo(?:ing|es)? on\b|continu(?:e|ing) (?:without|any)|\bproceed)",
        r"(?i:\busing (?:\w{1,12} ){0,2}(?:cpu|default|internal|local)|\bdisabl(?:ed|ing)\b|if you would like|\bnewly\b)",
        r"(?i:\b(?:0|no|zero) (?:errors?|fail|exceptions?)|(?:errors?|failed|failures?|exceptions?|killed)(?: \w{1,20})?[^\w\n]{1,3}0\b)",
        r"(?i:err(?:or)?s?(?: rate)?[ :=]{1,3}\d{0,4}(?:\.\d|%|e-))",
        r"already been registered|register cu\w{2,5} factory|call to cuInit|not a git repository|job control|terminal process group",
        r"help message|error messages$|dependency (?:resolver|conflicts)|but you have|dubious ownership|NCCL INFO|^\[\w{1,12} @ 0x",
        r"load (?:image Python extension|dynamic library)|dlerror: |parse the list of possible processors",
        r"(?:^|: |\[)W\d{0,4} |^[ \t]+(?:raise|File|at) |\.{5}|[:=] ?(?:True|False|None|null)\b",
        r"^(?:/\S{1,60}/)?(?:rm|mkdir|ls|cat|grep|find|chmod|chown|mesg|tput|stty|lspci|which|ldconfig\S{0,5}|libgomp|OMP|libpng): ",
    )
)
_AT_WORK = "|".join(
    (
        r"(?i:\b(?:step|epoch|iter|iteration|batch|(?:train|val|eval|avg|mean)?_?(?:loss|acc|accuracy)|lr)s?\b[ :=\[#/(]{1,4}\d)",
        r"(?i:\b(?:saved|saving|finished|completed?|success|succeeded|successful|successfully|done|passed|loaded)\b)",
        r"100%|\d(?:it|s|samples|tokens)/s\b",
    )
)
_TELLS = r"(?:^|[ \t\[(])(?:INFO|DEBUG|NOTICE|TRACE)\b|(?:^|: |\[)[ID]\d{0,4} "
_ENDS = r"(?i:exit|kill|terminat|shut|abort|fail|error|stop|destroy|signal|clos|clean|\.cc:\d{1,6} -> \d)"
