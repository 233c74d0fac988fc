"""What is known of an output in which no entry of its own matches: by the last words after the process was last seen at work."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from ranklaunch.catalogue.entry import CAUSE, FAINT, GENERAL, LAST, REPORT, UNCAUGHT, WORDS, KnownError
from ranklaunch.catalogue.literals import alternatives, needed
from ranklaunch.catalogue.scripts import reported
from ranklaunch.catalogue.survival import BAR, CODE, METRIC, NOTE, PARTING, WHOLE_BAR, counted_on, figures_of_message
from ranklaunch.catalogue.tracebacks import Lines, tracebacks

_MOST_LINES = 40  # that are not empty: what stands before them is no last word
_FEWEST_LINES = 12  # of those, where the words are faint
_INDENTED = 8  # columns, of a line that goes on from another
_FEWEST_OPTIONS = 3  # of a program's help
_LONGEST = 600  # characters of one that are looked at


def of_exception(line: str, errors: Sequence[KnownError]) -> KnownError | None:
    """By what it says of others, if it is the line of an exception."""
    uncaught = next(error for error in errors if error.standing == UNCAUGHT)
    if not _compiled(uncaught.pattern).search(line):
        return None
    line = line[:_LONGEST]
    told = _Asked([line]).first([error for error in errors if error.standing == WORDS], line)
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
    told = {number: error for number, error in told.items() if error.standing != FAINT or number in last}
    usage = {number for number in told if lines.bare[number].startswith(_USAGE)}
    return {number: error for number, error in told.items() if number not in usage} or told  # which stands above the error


def causes_before(lines: Lines, errors: Sequence[KnownError], reports: Collection[int]) -> dict[int, KnownError]:
    """What may be the cause where entries know only of lines that leave it open. reports: those with which a launcher tells of it."""
    found = [each for each in _since_work(lines) if each[0] < min(reports, default=len(lines.told))]
    told = {number: error for number, error in _told(lines, found, errors).items() if error.kind == CAUSE}
    for number in [number for number, error in told.items() if error.standing == FAINT]:
        faint = told.pop(number)
        if reports and _compiled(_CALLS_ITSELF_ERROR).match(lines.bare[number]):  # which says more than a report does
            told[number] = faint._replace(standing=LAST)
    return told


def cause_of_another(lines: Lines, claims: Mapping[int, KnownError], errors: Sequence[KnownError], shared: bool) -> dict[int, KnownError]:
    """Where several processes write, and all that is known is what came of a failure: the first exception before that which may have been
    it. Who has caught it, and has ended for it or will, writes it like one that goes on. shared: whether it is known that several do, and
    that what failed may have ended by an exception."""
    if not claims or any(error.kind == CAUSE for error in claims.values()) or not (shared or _of_several(lines)):
        return {}
    reports = {number for number, error in claims.items() if error.standing == REPORT}
    for _, own in tracebacks(lines, reports):
        for number in (each.endings[-1] for each in own[:-1]):
            error = None if number in claims or _compiled(_WARNS).search(lines.above(number)) else of_exception(lines.bare[number], errors)
            if error and error.kind == CAUSE and not counted_on(lines.said, number, own[-1].endings[0]):
                return {number: error}
    return {}


def _of_several(lines: Lines) -> bool:
    """By what a launcher says that the program has started, of a rank that was not killed."""
    text = "\n".join(lines.told)
    said = [found[0] for found in _compiled(_SPAWNED).finditer(text)] or [each.said for each in reported(text)]
    killed = [_compiled(_BY_SIGNAL).search(each) for each in said if not each.endswith(_TOLD)]
    return bool(killed) and not killed[-1]


def wrong_after(lines: Lines, number: int, errors: Sequence[KnownError]) -> bool:
    """Whether a later line tells of anything that went wrong."""
    return any(each > number for each in _told(lines, _since_work(lines), errors))


def at_work_after(lines: Lines, number: int) -> bool:
    """Whether a later line shows the process at work."""
    message = figures_of_message(lines.said, number, lines.told)
    behind = range(number + 1, len(lines.told))
    later = [lines.told[each][:_LONGEST].lower() if lines.said[each] and each not in message else "" for each in behind]
    bars = [bar["at"] if bar else "" for bar in map(_compiled(BAR).search, later)]
    if len({*bars} - {""}) == 1:  # drawn once more as it was
        later = [line for line, bar in zip(later, bars) if not bar]
    asked = _Asked(later)
    return any(asked.says(_AT_WORK, line) and not _compiled(f"{NOTE}|{PARTING}").search(line) for line in later)


def _told(lines: Lines, found: Sequence[tuple[int, str]], errors: Sequence[KnownError]) -> dict[int, KnownError]:
    """By their words alone; a logger's level stands in what was told before the line itself."""
    general = [error for error in errors if error.standing in (WORDS, LAST, FAINT)]
    asked = _Asked([lines.told[number][:_LONGEST] for number, _ in found])
    told = {number: asked.first(general, text) or asked.first(general, lines.told[number][:_LONGEST]) for number, text in found}
    return {number: error for number, error in told.items() if error}


def _since_work(lines: Lines) -> list[tuple[int, str]]:
    """The last lines, up to one that shows the program at work, without those that it survives and what libraries say as they end."""
    found: list[tuple[int, str]] = []
    said = lines.said
    help_text = _describes_options(said)
    filled = list(islice((number for number in range(len(said) - 1, -1, -1) if said[number].strip()), _MOST_LINES))
    asked = _Asked([lines.told[number][:_LONGEST] for number in filled])
    small_asked = _Asked([lines.told[number][:_LONGEST].lower() for number in filled])
    again = _drawn_again([lines.told[number][:_LONGEST] for number in filled])
    for number in filled:
        line, told = (_behind_bar(text[:_LONGEST], again) for text in (said[number], lines.told[number]))
        small = told.lower()
        if again and not small.strip():
            continue
        parts = _compiled(PARTING).search(small)
        if small_asked.says(_AT_WORK, small) and not _compiled(_WITH_LEVEL).match(line):
            if not parts:
                break
            continue  # finished with exit code 1
        if _compiled(_CODE_ALONE).match(small):
            continue
        passes = asked.says(_PASSES, told) and not _compiled(_FATAL).match(line)
        if (small_asked.says(_SURVIVED, small) or passes) and "NCCL WARN" not in told:
            continue
        if asked.says(_TELLS, told) and not small_asked.says(_ENDS, small):
            if parts:
                continue
            break
        goes_on = line[: 1 if help_text else _INDENTED].isspace()  # from a line above it
        if not goes_on and not lines.framed(number):  # the process survived that traceback
            found.append((number, line))
    return found


def _drawn_again(filled: Sequence[str]) -> str:
    """How far a progress bar was that was drawn once more at the end, as it was; "" where there is none. filled: the last line first."""
    bars = [bar["at"] for bar in map(_compiled(BAR).search, filled) if bar][:2]
    return bars[0] if len(bars) == 2 and bars[0] == bars[1] else ""


def _behind_bar(line: str, at: str) -> str:
    """What stands behind a bar which was drawn there as far as that; the whole line where there is none."""
    bar = _compiled(WHOLE_BAR).search(line) if at else None
    return line[bar.end() :] if bar and bar["at"] == at else line


def _describes_options(said: Sequence[str]) -> bool:
    """Whether it has a program's help, of which errors are no part."""
    return sum(1 for line in said if _compiled(_OPTION).match(line)) >= _FEWEST_OPTIONS


def _named(line: str, errors: Sequence[KnownError]) -> KnownError | None:
    exception = _compiled(_EXCEPTION).search(line)
    if not exception or not exception.start():
        return None
    inner = line[exception.start() :]
    return next((error for error in errors if any(text in inner for text in error.needed) and _compiled(error.pattern).search(inner)), None)


class _Asked:
    """Some lines, of which patterns are asked: most of what stands beside each other in these needs a text that no line has."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._text = "\n".join(lines)
        self._possible: dict[str, list[str]] = {}

    def first(self, errors: Sequence[KnownError], line: str) -> KnownError | None:
        return next((error for error in errors if self.says(error.pattern, line)), None)

    def says(self, pattern: str, line: str) -> bool:
        if pattern not in self._possible:
            each_alone = alternatives(pattern)
            self._possible[pattern] = [each for each in each_alone if any(text in self._text for text in needed(each))]
        return any(any(text in line for text in needed(each)) and _compiled(each).search(line) for each in self._possible[pattern])


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


_USAGE = ("usage: ", "Usage: ")
_SPAWNED = r"torch\.multiprocessing\.spawn\.\w+: process \d{1,7} terminated with (?:exit code|signal) \w+"
_BY_SIGNAL = r"(?:killed by|terminated with) signal "
_TOLD = (" signal 15", " signal SIGTERM")
_WARNS = r"\bWARN(?:ING)?\b"
_CODE_ALONE = rf"\W{{0,8}}{CODE}\W{{0,8}}$"
_OPTION = r"[ \t]{1,8}--?[A-Za-z]"
_CALLS_ITSELF_ERROR = r"(?:ERROR|Error|error|FATAL)(?: \w{1,20})?:"
_WITH_LEVEL = r"(?:ERROR|FATAL|CRITICAL)(?:(?: \w{1,20})?: [A-Za-z]|:[\w.-]{1,80}:)"
_FATAL = r"(?:ERROR|FATAL|CRITICAL)\b"  # of abseil: FATAL Flags parsing error: flag --data=None: ...
_EXCEPTION = r"\b(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception): ?\S"
# Of lines in small letters: what a process survives, what it does while it is at work, and what it does when it ends.
_SURVIVED = "|".join(
    (
        r"^handled\b|\bhandled:|\bmay (?:result in|lead to)\b|\bwarn(?:ing|ings)?\b|warning:|\bdeprecat|\bnote:|\bhint:|\boptional\b",
        r"\bagain$|\bagain in\b|\banew\b|\boom_score|\b0 missed|numpy 2\.0|\battempt \d",
        r"\bretry|\bretries\b|\bignor(?:e|ed|ing)\b|\bskip|\bfall(?:ing|s)? ?back|\bfallback|\binstead\b|won.t be",
        r"will (?:be|use|try|proceed|continue|retry|not be)",
        r"\bgo(?:ing|es)? on\b|\bproceed|continu(?:e|ing) (?:without|any)|\busing (?:\w{1,12} ){0,2}(?:cpu|default|internal|local)",
        r"\bdisabl(?:ed|ing)\b|if you would like|\bnewly\b|\b(?:0|no|zero) (?:errors?|fail|exceptions?)",
        r"(?:errors?|failed|failures?|exceptions?|killed)(?: \w{1,20})?[^\w\n]{1,3}0\b",
        r"err(?:or)?s?(?: rate)?[ :=]{1,3}\d{0,4}(?:\.\d|%|e-)|already been registered|register cu\w{2,5} factory|call to cuinit",
        r"but you have|not a git repository|dubious ownership|job control|terminal process group|help message|error messages$",
        r"dependency (?:resolver|conflicts)|load (?:image python extension|dynamic library)|dlerror: ",
        r"parse the list of possible processors",
    )
)
_PASSES = "|".join(
    (
        r"(?:^|: |\[)W\d{0,8} |^[ \t]+raise |^[ \t]+File |^[ \t]+at |\.{5}|[:=] ?(?:True|False|None|null)\b",
        r"^ {0,8}[A-Za-z][\w ]{1,40} {2,40}\d{1,12}$|^[a-z]{1,20}(?:_[a-z]{1,20}){1,4}: [A-Za-z]{1,20}$",  # counts, and settings
        r"PMIX ERROR: ERROR in file \S{0,200}gds",
        r"NCCL INFO|^debug\d: |^salloc: |your current branch|\] code 404|cannot modify limit|^ {1,8}Configure options|^\[\w{1,12} @ 0x",
        r"^(?:/\S{1,60}/)?(?:rm|mkdir|ls|cat|grep|find|chmod|chown|mesg|tput|stty|lspci|which|ldconfig\S{0,5}|libgomp|OMP|libpng): ",
    )
)
_AT_WORK = "|".join(
    (
        rf"\b(?<!of ){METRIC}",
        r"\b(?:saved|saving|finished|completed?|success|succeeded|successful|successfully|done|passed|loaded|collected)\b",
        r"^(?:load|writ|read|tokeniz|download|compil|process|evaluat|generat|comput|prepar|build|creat|fetch|restor|resum)ing\b",
        r"\d ?%|\bgo(?:es|ing) on\b|\bis (?:taken|used)$|^served\b|not used here|^start(?:ed|ing)?\b|running on (?:the )?cpus?\b",
        r"\bexit (?:status|code) 0\b",
        r"100%|\d(?:it|s|samples|tokens)/s\b",
    )
)
_TELLS = r"(?:^|[ \t\[(])(?:INFO|DEBUG|NOTICE|TRACE)\b|(?:^|: |\[)[IDV]\d{0,8} "
_ENDS = r"exit|kill|terminat|shut|abort|fail|error|stop|destroy|signal|clos|clean|\.cc:\d{1,6} -> \d"
