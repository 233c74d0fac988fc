"""Of an output in which failures follow each other, as of a script that goes on, or of a program whose own launcher has failed, what is
told: one of them, or both."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from ranklaunch import errors
from ranklaunch.catalogue.entry import AFTERMATH, CAUSE, CONSEQUENCE, FAINT, GENERAL, LAST, NO, USUAL
from ranklaunch.catalogue.layouts import below_warnings
from ranklaunch.catalogue.parts import ENOUGH, with_part, without_late_parts
from ranklaunch.catalogue.scripts import LOGGED_BY_TORCHRUN, Report, reported, since_launcher_went_on, tells_only_that
from ranklaunch.catalogue.search import AFTER_THAT, BEFORE_THAT, LAST_LINE, LOST_CHILDREN, Finding, is_of, is_of_program
from ranklaunch.catalogue.survival import WHOLE_BAR, is_own, shows_steps, stepped, warns, went_well
from ranklaunch.catalogue.tracebacks import last_exception
from ranklaunch.catalogue.uncaught import above, parted, plain, was_caught, was_printed, without_mark
from ranklaunch.showing import in_lines, last_line
from ranklaunch.typed import NamedTuple

_NOT_RUN = (126, 127)  # exit codes of a shell that could not run a command
_MOST_BEHIND = 12  # lines that a script may say after its launcher has failed, and have done no more
_OF_SIGNALS = range(129, 129 + 64)  # codes that say of which signal it was
_BY_SIGKILL, _BY_SIGABRT = 128 + signal.SIGKILL, 128 + signal.SIGABRT
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGPIPE)
_OF_CRASHES = frozenset(128 + number for number in _CRASHES)
_CALLS_ITSELF_ERROR = r"(?:\S{1,80}: )?(?:ERROR|Error|error|FATAL|CRITICAL)\b[^\n:]{0,20}:"
_ERROR = r"(?:^|[ \t\[(|\"'])(?:ERROR|CRITICAL|FATAL)\b|\[(?:error|critical|fatal) *\]|\blevel\W{1,4}(?:error|critical|fatal)\b"
_IN_C = r"\.(?:cc?|cpp|cxx|cu|h|hpp|go|rs):[0-9]"  # a library logs that
_SAVES = r"(?i)sav(?:ed|ing)|writ|checkpoint|dump"
_BY_EXCEPTION = " exited with code 1"
_SEEN = 200  # characters of a last line
_SAYS_NOTHING = r"(?:AssertionError|RuntimeError|Exception|SystemError)$"  # as of `assert code == 0`
_BEFORE = f"{BEFORE_THAT}, its launcher had failed: "
_BEFORE_THAT, _AFTER_THAT = f"{BEFORE_THAT}: ", f"{AFTER_THAT}: "


class _End(NamedTuple):
    """Of a process. code: with which it ended. ask: tells what entries know of a text. is_python: it is a program, and no script. alone:
    there is no other rank."""

    code: int | None
    ask: Callable[[str], Finding | None]
    is_python: bool
    alone: bool


_LOGGED, _PRINTED = "logged", "printed"


class _Turn(NamedTuple):
    """An output up to the line that names a failure, and what stands behind. how: that is no exception, but a line that a program has
    LOGGED or PRINTED of it, and may have gone on."""

    before: str
    behind: str
    how: str = ""

    def was_printed(self) -> bool:
        return self.how == _LOGGED or (not self.how and was_printed(self.before))

    def was_caught(self) -> bool:
        return bool(self.how) or was_caught(self.before)

    def warns(self) -> bool:
        """Whether the program, or the logger above an exception, says that it goes on."""
        return warns(plain(self.last) if self.how else above(self.before))

    def names(self, found: Finding) -> bool:
        """Whether it is what the last line names."""
        return bool(self.how) or _has(plain(self.last), found)

    @property
    def last(self) -> str:
        return self.before.rstrip().rpartition("\n")[2]


def in_turn(text: str, code: int | None, ask: Callable[[str], Finding | None], is_python: bool, alone: bool) -> Finding | None:
    """A script goes on after what it has started: of two failures the last may be what ended it. Where it ended as one does of which a
    command cannot be run, that is the last line; behind what a launcher of its own reports, its own words count. code: with which it ended.
    ask: tells what entries know of a text. is_python: it is a program that mostly tells of its launcher's failure there, in words of its
    own: both are told then. alone: there is no other rank."""
    text, end = since_launcher_went_on(_with_bars_apart(text)), _End(code, ask, is_python, alone)
    earlier = without_late_parts(text)
    return _in_turn(earlier, end) or (_in_turn(text, end) if earlier != text else None)


def _in_turn(text: str, end: _End) -> Finding | None:
    last = text.rstrip().rpartition("\n")[2]
    missed = end.ask(last) if end.code in _NOT_RUN else None
    if missed and missed.error.kind == CAUSE:
        return missed
    reports = reported(text)
    return _of_launcher(text, reports, end) if reports else with_part(_of_two(text, end), text, end.code, end.ask)


def _with_bars_apart(text: str) -> str:
    """With each progress bar in a line of its own, as it is drawn over the one before."""
    lines = in_lines(text)
    return re.sub(rf"(?m)({WHOLE_BAR})(?=[^\s\]])", r"\1\n", lines) if "%|" in lines else lines


def of_several(text: str, code: int | None, ask: Callable[[str], Finding | None]) -> Finding | None:
    """Of what several ranks have written, one of which has ended with this code: where what is known was caught, or is of no such end."""
    text = _with_bars_apart(text)
    found = ask(text)
    turn = next(iter(_turns(text, found)), None) if found and code else None
    if not found or not turn or not (turn.names(found) and (turn.was_printed() or code != 1)):
        return found
    return _of_two(text, _End(code, ask, is_python=True, alone=False))


def _of_launcher(text: str, reports: Sequence[Report], end: _End) -> Finding | None:
    """Of what the last of its launchers reports, and of what was said behind that."""
    code, ask, is_python = end.code, end.ask, end.is_python
    report, behind = reports[-1], text[reports[-1].end :].strip()
    begin = _begin_of_last(text, reports)
    finding = ask(text[begin : report.end])
    if not finding or finding.error.kind != CAUSE:
        finding = _shortly_before(text[begin : report.begin], report, ask) or finding
    known_why, soon = finding and finding.error.kind == CAUSE, _said(behind) <= _MOST_BEHIND
    if code in _OF_SIGNALS and report.code != code:  # no launcher's failure is why another process was killed
        return ask(f"{behind}\n") if behind else None
    later = ask(f"{behind}\n") if behind else None
    why_later = later if later and later.error.kind == CAUSE and not _says_only_that(later) else None
    both = known_why and soon and not report.begun
    if why_later and not both:
        return why_later
    if finding and both and is_python and (told := _with_own_words(finding, why_later, behind)):
        return told
    if finding and both and why_later and not is_python:
        first = code == (report.code or 1) and not last_exception(behind)
        return why_later if shows_steps(behind) else _both(finding, why_later, first, _BEFORE)
    if not soon:
        return ask(text)
    if shows_steps(behind):  # it had got over it
        return later
    another = behind and code and report.code not in (None, code) and code != 1  # with which scripts end after any failure
    return None if another and not known_why else finding


def _shortly_before(text: str, report: Report, ask: Callable[[str], Finding | None]) -> Finding | None:
    """An exception that has ended a program of Python, a few lines before a launcher reports of such an end: where its peers have written
    these, it has not gone on. text: up to the report."""
    before, behind = next(parted(text), ("", "")) if report.said.endswith(_BY_EXCEPTION) else ("", "")
    finding = ask(before) if before and _said(behind) <= _MOST_BEHIND else None
    return finding if finding and finding.error.kind == CAUSE else None


def _said(text: str) -> int:
    """How many lines, without those that go on from others."""
    return sum(1 for line in text.split("\n") if line[:1].strip())


def _of_two(text: str, end: _End) -> Finding | None:
    """Of a program of Python, or a script that has started one, with an exception, and then another failure, as of what was to tell
    somebody of the first, or of what came after one that was caught: both."""
    found = end.ask(text)
    again = _since_last_try(text, found) if found else ""
    if again and (later := _of_two(again, end)):
        return later
    if not found or end.code in _OF_SIGNALS:
        return found and _of_signal(text, found, end)
    for turn in _turns(text, found):
        is_later = _has(turn.behind, found) and not turn.names(found)
        if not is_later and not _own_last_line(turn.behind):  # of the last exception, with nothing behind it
            continue
        first = end.ask(turn.before)
        if not first or (is_later and (end.is_python or first.error.kind != CAUSE)):
            break
        if not is_later:
            return _with_last_words(found, turn, end)
        if _said(turn.behind) > _MOST_BEHIND or shows_steps(turn.behind) or turn.was_caught():
            break
        if first.line == found.line:
            break
        if found.error.kind != CAUSE:  # what failed first may have been got over, where a peer can have been lost
            return _both(first, found, end.alone)
        if last_exception(turn.behind) and not _says_only_that(found):  # of a program that was started later
            return _both(first, found, of_first=False)
        return _both(first, found, end.code == 1)
    return _with_last_error(found, text)


def _turns(text: str, found: Finding) -> Sequence[_Turn]:
    """The last line in which a program tells of what was found; else its exceptions, the last first, from the one that was found on."""
    told = _told(text, found)
    if told and (told.how == _LOGGED or next(parted(told.before, caught=True), None) is None):
        return [told]
    turns = [_Turn(*each) for each in parted(text, caught=True)]
    first = next((number for number, turn in enumerate(turns) if turn.names(found)), 0)
    return turns[first:]


def _since_last_try(text: str, found: Finding) -> str:
    """What stands behind the last but one of the exceptions of a sort that were caught, as where a program tries again; else ""."""
    if found.error.standing != USUAL:
        return ""
    turns = (_Turn(*each) for each in parted(text, caught=True))
    same = (turn for turn in turns if turn.names(found) or is_of(found.error, plain(turn.last)))
    return next((turn.behind for turn in islice(same, 1, None) if turn.was_printed()), "")


def _told(text: str, found: Finding) -> _Turn | None:
    """What libraries and machines tell of may well be why a program fails of something else."""
    lines, said = text.split("\n"), plain(text).split("\n") if is_of_program(found.error) else []
    first = next((number for number, line in enumerate(said) if _has(line, found)), len(said))
    quoted = {*below_warnings(said)}
    behind = [number for number in range(first, len(said)) if _may_be_told(said, number, quoted)]
    same = [number for number in behind if _has(said[number], found) or is_of(found.error, said[number])]
    logged = [number for number in same if warns(said[number]) or re.search(_ERROR, said[number])]
    last = max(logged or (same if behind[:1] == [first] else ()), default=-1)
    rest = ["" if number in quoted else line for number, line in enumerate(lines)][last + 1 :]
    how = _LOGGED if last in logged else _PRINTED
    return _Turn("\n".join([*lines[: last + 1], ""]), "\n".join(rest), how) if last >= 0 else None


def _may_be_told(said: Sequence[str], number: int, quoted: Collection[int]) -> bool:
    """By a program, and neither in a traceback nor by a library. quoted: lines of the program that stand below warnings."""
    line, above = said[number], said[number - 1] if number else ""
    of_frames = above[:1].isspace() and number - 1 not in quoted and not re.match(WHOLE_BAR, above)
    is_source = line[:1].isspace() or line.startswith("│")
    return bool(line) and not of_frames and not is_source and not re.search(_IN_C, line)


def when_told(text: str, ask: Callable[[str], Finding | None]) -> Finding | None:
    """Of a process that was told to end, or is about to: where an exception was ending it, and it had caught another before, both."""
    text = _with_bars_apart(text)
    found = ask(text)
    for turn in _turns(text, found) if found else ():
        if found and turn.names(found) and turn.was_printed() and _ends_by_exception(turn.behind):
            later = ask(f"{turn.behind}\n")
            told = later and later.error.kind in (CAUSE, CONSEQUENCE) and not _says_only_that(later)
            return _both(found, later, of_first=False) if later and told else found
    return found


def _ends_by_exception(behind: str) -> bool:
    """Whether one has ended a program of Python there, or stands there last."""
    return any(not (was_printed(before) and _own_last_line(rest)) for before, rest in parted(behind, caught=True))


def _says_only_that(found: Finding) -> bool:
    """That something has failed, and not what."""
    return found.error.standing in GENERAL and tells_only_that(found.line)


def _has(text: str, found: Finding) -> bool:
    line = found.line.strip()[:ENOUGH]
    return bool(line) and line in text


def _with_last_error(found: Finding, text: str) -> Finding:
    """Words that no entry knows, with the last line where that calls itself an error too."""
    last = _own_last_line(text) if found.error.standing in (LAST, FAINT) and found.error.kind == CAUSE else ""
    is_another = re.match(_CALLS_ITSELF_ERROR, last) and not tells_only_that(last) and last.strip()[:ENOUGH] not in found.line
    return _with_line(found, last) if is_another else found


def _with_last_words(found: Finding, turn: _Turn, end: _End) -> Finding:
    """What was found of a turn, with what was said behind it where that tells of a failure, or the exception was not what ended Python,
    as its exit code, or who has printed it, says. What else stands there of code 1 may yet be of its message."""
    over, last, printed = stepped(turn.before, turn.behind), _own_last_line(turn.behind), turn.was_printed()
    ended = (printed or end.is_python) and _ends_by_exception(turn.behind)  # of which a program has one
    caught, is_cause = printed or ended or end.code not in (None, 1), found.error.kind == CAUSE
    if turn.how == _PRINTED and not (end.is_python and is_cause):
        return found
    if not last or not (over or caught or (is_cause and (not end.is_python or re.match(_CALLS_ITSELF_ERROR, last)))):
        return found
    later = _of_two(f"{_without_last_bar(turn.behind)}\n", end)
    if later and (later.error.name in LOST_CHILDREN or _has(found.line, later)):  # which a child had failed of; the end of its message
        return found
    if later and later.error.kind == CAUSE and (over or not _says_only_that(later)):
        if later.error == found.error and (printed or ended):  # once more, as is tried again
            return later
        went_on = over or (ended and turn.how != _PRINTED) or turn.warns() or went_well(turn.behind)
        return _both(found, later, end.code == 1 and not went_on if is_cause else not end.alone)
    if later and later.error.kind == CONSEQUENCE and ended:  # of a peer's end, most likely
        return _both(found, later, end.alone)
    return found if not (caught and is_cause) or tells_only_that(last) else _with_line(found, last)


def _of_signal(text: str, found: Finding, end: _End) -> Finding | None:
    """Of one that a signal has ended: SIGKILL comes from outside, and neither an exception is why nor what would come again. By others a
    process may end on its way out, for the exception, as its shell says in the next line."""
    turn = next(iter(_turns(text, found)), None)
    killed = end.code == _BY_SIGKILL or bool(turn and _is_from_outside(end.code, turn))
    if not turn or not turn.names(found) or turn.how == _PRINTED:
        of_start = found.error.kind == CAUSE and (found.error.retry == NO or found.error.standing in GENERAL)
        return None if killed and of_start else found
    goes_on = bool(_own_last_line(turn.behind))
    printed = turn.was_printed()
    asks = goes_on and (killed or printed or not end.is_python or stepped(turn.before, turn.behind))
    later = _of_two(f"{turn.behind}\n", end) if asks else None
    if later and later.error.kind == CAUSE and later.error.standing not in ((AFTERMATH, FAINT) if printed else GENERAL):
        return _both(found, later, not (killed or printed) and turn.behind.strip().startswith(later.line.strip()))
    said_by_shell = later and later.error.kind != CAUSE and later.line.strip() in _own_last_line(turn.behind)  # of SIGKILL
    if later and (said_by_shell or (later.error.kind == CONSEQUENCE and printed and later.error.standing not in GENERAL)):
        return _both(found, later, of_first=False)
    return None if killed else found


def _is_from_outside(code: int | None, turn: _Turn) -> bool:
    """Whether a signal came so, of which no turn is why that was got over. A program may log what it aborts for, and crash on its way out
    after an exception."""
    if turn.how == _LOGGED:
        return code != _BY_SIGABRT or turn.warns()
    return turn.was_printed() and code not in _OF_CRASHES


def last_failure(text: str, code: int) -> tuple[str, str]:
    """What stands last of failures that the program seems to have got over, and which it is: an exception, or what a logger calls an error.
    What came long before may be so indeed, but of code 1, with which Python ends by an exception."""
    text = _with_bars_apart(text)
    lines, exception = text.split("\n"), _last_exception(text)
    raised = _last_with(lines, re.escape(exception[:ENOUGH])) if exception else -1
    logged = _last_with(lines, _ERROR)
    if logged > raised and _is_near(lines, logged):
        return "its last error", lines[logged].strip()
    return ("its last exception", exception) if exception and (code == 1 or _is_near(lines, raised)) else ("", "")


def _last_with(lines: Sequence[str], pattern: str) -> int:
    return next((number for number in range(len(lines) - 1, -1, -1) if re.search(pattern, lines[number])), -1)


def _is_near(lines: Sequence[str], number: int) -> bool:
    """Whether little stands behind this line, and no steps but what tells of what is saved."""
    behind = lines[number + 1 :]
    steps = (line for line in behind if shows_steps(line) and not re.search(_SAVES, line))
    return number >= 0 and _said("\n".join(behind)) <= _MOST_BEHIND and not any(steps)


def _last_exception(text: str) -> str:
    """The last one that is of no launcher: one behind what such reports, else one before."""
    text = since_launcher_went_on(text)
    reports = reported(text)
    parts = (text[reports[-1].end :], text[: reports[-1].begin]) if reports else (text,)
    return next(filter(None, map(last_exception, parts)), "")


def _own_last_line(text: str) -> str:
    return last_line([*filter(is_own, map(without_mark, text.split("\n")))])


def _without_last_bar(text: str) -> str:
    """tqdm draws it once more as a program ends, also behind what it ended for."""
    lines = text.rstrip().split("\n")
    while lines and re.fullmatch(WHOLE_BAR, lines[-1].rstrip()):
        lines.pop()
    return "\n".join(lines)


def _with_line(found: Finding, last: str) -> Finding:
    return found._replace(line=f"{found.line}{LAST_LINE}: {errors.quoted((last.strip(),))[0][:_SEEN]}")


def _both(first: Finding, later: Finding, of_first: bool, before: str = _BEFORE_THAT) -> Finding:
    """Both of two failures. of_first: it is the first that the exit code is of. Where the later is told with another already, that is
    enough."""
    if _BEFORE_THAT in later.line or _AFTER_THAT in later.line:
        return later
    if of_first:
        return first._replace(line=f"{first.line}{_AFTER_THAT}{without_mark(later.line)}")
    return later._replace(line=f"{later.line.strip()}{before}{without_mark(first.line)}")


def _with_own_words(before: Finding, later: Finding | None, behind: str) -> Finding | None:
    """What a program says itself, where that is more than that something has failed, with what its launcher failed of before."""
    if later:
        return None if re.match(_SAYS_NOTHING, later.line.strip()) else later._replace(line=f"{later.line}{_BEFORE}{before.line}")
    last = "" if shows_steps(behind) else _own_last_line(behind)
    if not last or tells_only_that(last) or re.match(_SAYS_NOTHING, last):
        return None
    return _with_line(before, last)


def _begin_of_last(text: str, reports: Sequence[Report]) -> int:
    """Where that begins which the last report may be of: behind the one before it."""
    pairs = zip(reports[-2::-1], reports[:0:-1])
    return next((before.end for before, after in pairs if _went_on_after(before, text[before.end : after.begin])), 0)


def _went_on_after(report: Report, behind: str) -> bool:
    """Whether another launcher has been started since. behind: what was said up to its report."""
    if not report.whole:
        return behind.count("\n") > 1
    return any(line.strip() and not re.match(LOGGED_BY_TORCHRUN, line) for line in behind.split("\n"))
