"""From the last output of a process to the entry that explains its end best.

1. Each line belongs to the first entry that matches.
2. The last traceback of each process, and where nothing else is known the last lines, are matched with entries for words of any program.
3. Findings after which the program worked on are dropped.
4. ROWS chooses the best of the rest; of several in one row the earliest line wins.

No pattern matches the end of a line.
"""

from __future__ import annotations

import functools
import re
import signal
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from ranklaunch.catalogue.entry import (
    AFTERMATH,
    CAUSE,
    CONSEQUENCE,
    FAINT,
    GENERAL,
    LAST,
    NO,
    REPORT,
    STOPPED,
    UNCAUGHT,
    USUAL,
    VAGUE,
    WAIT,
    WORDS,
    KnownError,
)
from ranklaunch.catalogue.known import shipped
from ranklaunch.catalogue.output import (
    BEGINS,
    BESIDE,
    HOOKED,
    Line,
    Output,
    Traceback,
    counts,
    end_of,
    is_harmless,
    read,
    shows_work,
    tried_again,
    warns,
    went_on,
    with_message,
)
from ranklaunch.showing import in_lines

Matches = dict[int, KnownError]  # by the line's number

# Kinds and standings of entries, the best row first.
ROWS = (
    ((CAUSE,), (USUAL,)),
    ((CAUSE,), (VAGUE, REPORT, WORDS, UNCAUGHT, LAST)),
    ((CONSEQUENCE, STOPPED), (USUAL,)),
    ((CONSEQUENCE, STOPPED), (VAGUE, REPORT, WORDS, LAST)),
    ((CAUSE, CONSEQUENCE, STOPPED), (WAIT, FAINT)),
    ((CAUSE, CONSEQUENCE, STOPPED), (AFTERMATH,)),
)
_OF_WARNINGS = 5  # row of an error in a warning: the program went on
_MOST_OF_ENTRY = 400  # lines that have a text that an entry needs, the last
_MOST_LAST = 40  # lines that are not empty: what stands before them is no last word
_MOST_FAINT = 12  # of those, where the words are faint
_INDENTED = 8  # columns, of a line that goes on from another
_LONGEST_WORDS = 600  # characters of a line in which general words are searched
_LONGEST_LINE = 500  # characters of a finding, for people
_MOST_OF_MESSAGE = 40  # lines behind an exception
_BY_SHELL = r"(?:\S{1,80}: )?line \d{1,6}: "
# Of torchrun, which may start its ranks again: its report of a failure, the lines that it logs, the last report.
_REPORTS = r"failed \(exitcode: -?\d+\) local_rank: \d.*\n"
_LOGGED = r"[EWI]\d{4} |\[\d{4}-|[A-Z]{4,8}:torch"
_BOX = "ChildFailedError"
_NOT_RUN = (126, 127)  # exit codes of a shell whose last command could not be run
_OF_SIGNALS = range(129, 129 + 64)  # exit codes
_BY_SIGKILL = 128 + signal.SIGKILL
_KILLED = "process-killed"


class Finding(NamedTuple):
    """number: of the line, from 0. line: without colours; the part that matched of a very long line."""

    error: KnownError
    line: str
    number: int = 0


def find(
    text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False, code: int | None = None
) -> Finding | None:
    """Return the entry that explains best why the process with this output ended, if any.

    errors: all entries, if not the shipped ones. by_itself: False for a process that was told to end: words of no entry do not count.
    shared: several ranks write into the output. code: exit code, if known.
    """
    return next(iter(findings(end_of(text), errors, by_itself, shared, code)), None) if text.strip() else None


def findings(
    text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False, code: int | None = None
) -> list[Finding]:
    """Return all findings of a text, the best first."""
    errors = errors or shipped()
    text = in_lines(text)
    last_round = _since_restart(text)
    skipped = text.count("\n", 0, len(text) - len(last_round))
    output = read(last_round)
    matches = _by_traceback(output, _by_line(output, errors), errors, shared)
    matches = _without_survived(output, matches, shared)
    if by_itself and all(_leaves_open(error) or warns(output.lines[number]) for number, error in matches.items()):
        matches.update(_last_words(output, matches, errors))
        matches = _without_survived(output, matches, shared)
    if code in _OF_SIGNALS:
        matches = {number: error for number, error in matches.items() if not warns(output.lines[number])}
    if code == _BY_SIGKILL:
        matches = {number: error for number, error in matches.items() if _may_be_killed(error)}
    end = max((line.number for line in output.lines if line.text.strip()), default=0) if code in _NOT_RUN else -1
    best_first = sorted(matches.items(), key=lambda match: (match[0] != end, _row(match[1], output.lines[match[0]]), match[0]))
    return [Finding(error, _shown(output.lines, number, error), skipped + number) for number, error in best_first]


def _since_restart(text: str) -> str:
    """Return the output since a launcher last started its ranks again: other lines than its own follow its report of a failure."""
    *_, behind = _compiled(_REPORTS).split(text)
    line = next((line for line in behind.split("\n") if line.strip() and not _compiled(_LOGGED).match(line)), "")
    return behind if line and not line.endswith(BEGINS) and _BOX not in behind else text


def peers(text: str, kind: str) -> tuple[int, ...]:
    """Return the ranks named by the last message of this kind. A consequence names ranks that did not answer, a cause ranks that failed."""
    patterns = (pattern for error in shipped() if error.kind == kind for pattern in error.peers)
    matches = [match for pattern in patterns for match in _compiled(pattern).finditer(end_of(text))]
    last = max(matches, key=lambda match: match.start(), default=None)
    return tuple(map(int, re.findall(r"\d{1,7}", last[1]))) if last else ()


def _row(error: KnownError, line: Line) -> int:
    """Return the index of an entry's row in ROWS; that of warnings at least for a cause in a warning."""
    row = next(row for row, (kinds, standings) in enumerate(ROWS) if error.kind in kinds and error.standing in standings)
    return max(row, _OF_WARNINGS) if error.kind == CAUSE and warns(line) else row


def _leaves_open(error: KnownError) -> bool:
    return error.kind == CONSEQUENCE and error.standing in (VAGUE, REPORT, AFTERMATH)


def _may_be_killed(error: KnownError) -> bool:
    """Return False for what ends no process by SIGKILL: an exception, the loss of a peer, and what would come again."""
    if error.kind == CONSEQUENCE:
        return error.name == _KILLED
    return error.standing not in GENERAL and error.retry != NO


def _by_line(output: Output, errors: Sequence[KnownError]) -> Matches:
    """Return the first entry that matches each line. Users write patterns for lines as they see them, with prefixes."""
    known = {*map(id, shipped())}
    bare = _Texts(["" if line.quoted else line.text for line in output.lines])
    written = _Texts(["" if line.quoted else line.written for line in output.lines])
    matches: Matches = {}
    for error in errors:
        if error.standing in GENERAL:
            continue
        for texts in (bare,) if id(error) in known else (bare, written):
            for number in sorted({number for needed in error.needed for number in texts.having(needed)})[-_MOST_OF_ENTRY:]:
                if number not in matches and _compiled(error.pattern).search(texts.lines[number]):
                    matches[number] = error
    return matches


class _Texts:
    """Lines that are searched for many texts: most are nowhere, so that few lines are searched for a pattern."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._whole = "\n".join(lines)
        self._words = {*_compiled(r"\w+").findall(self._whole)}
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]

    def having(self, text: str) -> Iterator[int]:
        """Yield the numbers of the lines that have a text. Its inner words are words of the line: most texts need no search."""
        is_possible = self._words.issuperset(_inner_words(text))
        place = self._whole.find(text) if is_possible else -1
        while 0 <= place < self._starts[-1]:
            number = bisect_right(self._starts, place) - 1
            yield number
            place = self._whole.find(text, self._starts[number + 1])


@functools.cache
def _inner_words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"(?<=\W)\w+(?=\W)", text))


def _by_traceback(output: Output, matches: Matches, errors: Sequence[KnownError], shared: bool) -> Matches:
    """Add the uncaught exceptions that no entry knows; drop what was caught before an exception ended the process."""
    result = dict(matches)
    of_children = {end for traceback in output.tracebacks if traceback.of_child for end in traceback.ends}
    for *caught, uncaught in _by_process(output, matches, shared):
        error = _of_exception(output.lines[uncaught.ends[-1]].text.strip(), errors)
        if error and matches.keys().isdisjoint(uncaught.ends) and not _has_known_message(output, uncaught, matches):
            result[uncaught.ends[-1]] = error
        known = [result[end] for end in uncaught.ends if end in result]
        survived = {number for number in result.keys() - of_children if _is_survived(output, number, result[number], uncaught)}
        if any(error.kind == CAUSE for error in known):
            survived.update(end for traceback in caught for end in traceback.ends)
        result = {number: error for number, error in result.items() if not known or number not in survived}
    return result


def _by_process(output: Output, matches: Matches, shared: bool) -> Iterable[list[Traceback]]:
    """Return the tracebacks of each process, thread and child process: the last one is uncaught.

    If ranks write into the same output, as where a launcher reports a failure, each traceback stands alone.
    """
    reports = {number for number, error in matches.items() if error.standing == REPORT}
    groups: dict[tuple[object, ...], list[Traceback]] = {}
    for traceback in output.tracebacks:
        end = traceback.ends[-1]
        key = output.lines[end].process, traceback.of_child, traceback.above.startswith(BESIDE), end if shared or reports else -1
        if end not in reports:
            groups.setdefault(key, []).append(traceback)
    return groups.values()


def _is_survived(output: Output, number: int, error: KnownError, uncaught: Traceback) -> bool:
    """Return True for an error that programs survive, above the exception that ended the process."""
    line, begin = output.lines[number], output.lines[uncaught.begin]
    is_survivable = error.survivable or bool(_compiled(_BY_SHELL).match(line.text))
    return is_survivable and line.process == begin.process and number < begin.number


def _has_known_message(output: Output, traceback: Traceback, matches: Mapping[int, KnownError]) -> bool:
    end = output.lines[traceback.ends[-1]]
    stop = min((each.begin for each in output.tracebacks if each.begin > end.number), default=len(output.lines))
    below = output.lines[end.number + 1 : min(stop, end.number + _MOST_OF_MESSAGE)]
    return any(line.process == end.process and line.number in matches and matches[line.number].standing == USUAL for line in below)


def _of_exception(text: str, errors: Sequence[KnownError]) -> KnownError | None:
    uncaught = next(error for error in errors if error.standing == UNCAUGHT)
    if not _compiled(uncaught.pattern).search(text):
        return None
    words = _first(text, [error for error in errors if error.standing == WORDS])
    return words if words and words.kind != CAUSE else uncaught


def _last_words(output: Output, matches: Matches, errors: Sequence[KnownError]) -> Matches:
    """Return what the last lines say by their words, back to the last line of work; beside other findings only causes, and only above the
    first report of a launcher."""
    general = [error for error in errors if error.standing in (WORDS, LAST, FAINT)]
    raised = {end for traceback in output.tracebacks for end in traceback.ends}
    last = [line for line in output.lines[: _first_report(output, matches)] if line.text.strip()][-_MOST_LAST:]
    words: Matches = {}
    for place, line in enumerate(takewhile(_is_no_work, reversed(last))):
        if line.number in raised or line.number in matches or not _may_be_last_word(line):
            continue
        error = _first(line.text, general) or _first(line.written, general)
        if error and (place < _MOST_FAINT or error.standing != FAINT) and not (matches and error.kind != CAUSE):
            words[line.number] = error
    return words


def _is_no_work(line: Line) -> bool:
    return not shows_work(line)


def _may_be_last_word(line: Line) -> bool:
    return not (line.quoted or line.text[:_INDENTED].isspace() or is_harmless(line))


def _first(text: str, errors: Iterable[KnownError]) -> KnownError | None:
    return next((error for error in errors if _compiled(error.pattern).search(text[:_LONGEST_WORDS])), None)


def _without_survived(output: Output, matches: Matches, shared: bool) -> Matches:
    """Drop failures behind which the program worked on. A stop is none."""
    failures = sorted((number for number, error in matches.items() if error.kind != STOPPED), reverse=True)
    if failures and _went_on(output, matches, failures, shared):
        return {number: error for number, error in matches.items() if error.kind == STOPPED}
    all_counts, remaining = counts(output.lines) if failures else [], dict(matches)
    before = _first_report(output, matches)
    for number in failures:
        if not matches[number].device_fault and any(count.goes_on(output.lines[number], before, shared) for count in all_counts):
            del remaining[number]
        else:
            before = number
    return remaining


def _went_on(output: Output, matches: Matches, failures: Sequence[int], shared: bool) -> bool:
    """Return True if the program worked on behind its last failure. failures: numbers of lines, the last first.

    Behind its launcher's report a script may say how well it ended. Of an exception in an output of several ranks, other ranks may have
    written what follows.
    """
    last = failures[0]
    is_raised = last in {traceback.ends[-1] for traceback in output.tracebacks}
    hooked = _compiled(HOOKED).match(output.lines[last].written)
    if (shared or hooked) and is_raised:
        return False
    if tried_again(output.lines, last):
        return True
    is_light = not is_raised and all(_is_light(output.lines[number].text, matches[number]) for number in failures)
    return matches[last].standing != REPORT and went_on(output.lines, last, is_raised, is_light)


def _first_report(output: Output, matches: Matches) -> int:
    """Return the number of the line in which a launcher first reports a failure, that behind the last line for none."""
    return min((number for number, error in matches.items() if error.standing == REPORT), default=len(output.lines))


def _is_light(text: str, error: KnownError) -> bool:
    """Return True if any calm line behind this one shows that the program went on, as a script does after a command."""
    return error.survivable or error.standing in (*GENERAL, VAGUE) or bool(_compiled(_BY_SHELL).match(text))


def _shown(lines: list[Line], number: int, error: KnownError) -> str:
    line = with_message(lines, number, lines[number].written.strip())
    if len(line) <= _LONGEST_LINE:
        return line
    match = _compiled(error.pattern).search(line)
    start = max(0, match.start() - 80) if match else 0
    return line[start : start + _LONGEST_LINE]


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
