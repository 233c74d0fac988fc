"""Choice of the best entry for a process's end, by its last output.

1. Each line belongs to the first entry that matches it.
2. General entries are tried on the last traceback of each process and, if nothing else is known, on the last lines.
3. Findings are dropped if the program continued its work afterwards.
4. ROWS chooses the best of the remaining findings; in one row the earliest line wins.

A pattern stays within one line: no shipped pattern matches a line end.
"""

from __future__ import annotations

import functools
import re
import signal
from bisect import bisect_left, bisect_right
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
from ranklaunch.showing import in_lines

# Lines of an output, and Python's tracebacks

LONGEST = 65536  # last characters of an output
MOST_LINES = 3000  # last lines of these
BEGINS = "Traceback (most recent call last):"
HOOKED = r"\[rank([0-9]{1,7})\]: "  # prefix of PyTorch's hook for uncaught exceptions
CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs")  # the second before Python 3.10
BESIDE = ("Exception in thread ", "Process ", "future: <")  # exception of a thread, process or task: the main program goes on


class Line(NamedTuple):
    """One line of output. written: as written by the process, without colours. text: also without timestamps and other prefixes
    of launchers and loggers. process: the prefix that names the process, "" for none. quoted: True for frames of a traceback,
    and for exceptions that Python ignored."""

    number: int
    written: str
    text: str
    process: str = ""
    quoted: bool = False

    def may_be_of(self, process: str) -> bool:
        """Return False for a line of another process. A line without a prefix may be from any process."""
        return self.process == process or not (self.process and process)


class Traceback(NamedTuple):
    """Exception, with the earlier ones of its chain. begin: number of the first line. above: text of the line above. ends: numbers of
    the lines with the names of the exceptions, the uncaught one last. of_child: the exception ended a child of the program."""

    begin: int
    above: str
    ends: tuple[int, ...]
    of_child: bool = False


class Output(NamedTuple):
    """Lines and tracebacks, both in the order of the text; tracebacks by their last line."""

    lines: list[Line]
    tracebacks: list[Traceback]


def end_of(text: str) -> str:
    """Return the last LONGEST characters and MOST_LINES lines."""
    return "\n".join(in_lines(text[-LONGEST:]).rsplit("\n", MOST_LINES)[-MOST_LINES:])


def _last_end(traceback: Traceback) -> int:
    return traceback.ends[-1]


def read(text: str) -> Output:
    """Split a text into lines, and find its tracebacks."""
    plain = in_lines(_line_pattern(_COLOUR).sub("", text))
    mark = _mark(plain)
    lines = [_line(number, written, mark) for number, written in enumerate(plain.split("\n"))]
    if len({line.process for line in lines} - {""}) == 1:
        lines = [line._replace(process="") for line in lines]
    processes: dict[str, list[Line]] = {}
    for line in lines:
        processes.setdefault(line.process, []).append(line)
    tracebacks = [traceback for of_process in processes.values() for traceback in _tracebacks(of_process, lines)]
    return Output(lines, sorted(tracebacks, key=_last_end))


def last_exception(text: str) -> str:
    """Return the line with the name and message of the main program's last uncaught exception; "" for none."""
    output = read(end_of(text))
    ends = [traceback.ends[-1] for traceback in output.tracebacks if not traceback.above.startswith(BESIDE)]
    return with_message(output.lines, ends[-1], output.lines[ends[-1]].text.strip()) if ends else ""


def with_message(lines: list[Line], number: int, line: str) -> str:
    """Return a line of an exception. If it ends with a colon and the next line is indented, append the next line."""
    below = lines[number + 1].text if number + 1 < len(lines) else ""
    return f"{line} {below.strip()}" if line.endswith(":") and below[:1].isspace() and below.strip() else line


def _mark(text: str) -> str:
    """Return a pattern for the prefix that a filter of the user, such as `sed "s/^/[$RANK] /"` or ts, puts before each line; "" for none.
    The prefix is taken from the last traceback."""
    before, begins, behind = text.rpartition(BEGINS)
    mark = before.rpartition("\n")[2].partition("[rank")[0].removesuffix("Original ") if begins else ""
    is_known = len(mark) > _LONGEST_MARK or _line_pattern(_PREFIX).fullmatch(mark) or not mark.strip()
    pattern = "" if is_known else re.sub(r"\d+", r"\\d{1,20}", re.escape(mark))
    return f"^{pattern}" if pattern and re.match(rf"\n{pattern}(?: |\[rank)", behind) else ""


def _line(number: int, written: str, mark: str) -> Line:
    bare = _line_pattern(mark).sub("", written, count=1) if mark else written
    prefix = _line_pattern(_PREFIX).match(bare)
    if not prefix:
        return Line(number, written, bare)
    tag = _line_pattern(_TAG).search(prefix[0])
    return Line(number, written, bare[prefix.end() :], tag[0].strip() if tag else "")


def _tracebacks(of_process: list[Line], lines: list[Line]) -> Iterator[Traceback]:
    """Yield the tracebacks in the lines of one process. Mark their quoted lines in `lines`."""
    reading = _Reading()
    for line in of_process:
        if line.text.startswith(_RAISED_AGAIN) and reading.chain:  # the line above only says that an exception was caught elsewhere
            wrapper = reading.chain.ends[-1]
            lines[wrapper] = lines[wrapper]._replace(quoted=True)
        traceback, quoted = reading.read(line)
        if quoted:
            lines[line.number] = line._replace(quoted=True)
        if traceback:
            yield traceback
    if reading.chain:
        yield reading.chain


class _Reading:
    """Parser of one process's lines. chain: the last traceback; further exceptions may be chained to it. _begun: True within the frames of
    a traceback."""

    def __init__(self) -> None:
        self.chain: Traceback | None = None
        self._begun = self._chained = self._ignored = self._of_child = False
        self._begin, self._above, self._last = 0, "", ""

    def read(self, line: Line) -> tuple[Traceback | None, bool]:
        """Read a line. Return the previous traceback if this line ends a new one, and True if the line is quoted."""
        text = line.text
        if text.lstrip().startswith(_PANEL):
            if _TITLE in text:
                self._begin_at(line)
            return None, True
        finished, quoted = self._take(line)
        self._last = text if text.strip() else self._last
        return finished, quoted

    def _take(self, line: Line) -> tuple[Traceback | None, bool]:
        text = line.text
        if text.endswith(BEGINS) or (not (self._begun or self.chain) and _line_pattern(_FRAME).match(text)):
            self._begin_at(line)
            return None, True
        if not self._begun:
            return None, text[:1].isspace() and _line_pattern(_WARNING).search(self._last) is not None
        if text[:1].strip() or _line_pattern(_INDENTED_END).match(text):
            self._begun = False
            is_named = not self._ignored and _line_pattern(_NAMES).match(text.strip())
            return self._end_at(line) if is_named else None, self._ignored
        self._of_child = self._of_child or _SPAWNED in text
        return None, True

    def _begin_at(self, line: Line) -> None:
        self._begun, self._begin, self._above = True, line.number, self._last
        self._chained = (
            line.text.startswith(_RAISED_AGAIN) or self._above.startswith(CHAINED) or bool(_line_pattern(_MEMBER).match(self._above))
        )
        self._ignored = self._above.startswith(IGNORED)
        self._of_child = self._above.startswith(_OF_CHILD)

    def _end_at(self, line: Line) -> Traceback | None:
        if self._chained and self.chain:
            self.chain = self.chain._replace(ends=(*self.chain.ends, line.number))
            return None
        finished, self.chain = self.chain, Traceback(self._begin, self._above, (line.number,), self._of_child)
        return finished


@functools.cache
def _line_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_COLOUR = r"\x1b\[[0-?]*[ -/]*[@-~]"
_FRAME = r'[ \t]*File "[^"\n]*", line \d+(?:, in |$)'
_NAMES = r"[A-Za-z_][\w.]{0,400}(?::|$)"  # line with the name of an exception
_INDENTED_END = r"\s+[A-Za-z_][\w.]{0,200}(?:Error|Exception): "
_WARNING = r":\d{1,6}: \w{1,60}Warning: "  # the next line is a quoted line of the program
_PANEL = ("│", "╭", "╰", "└")  # rich draws these around frames, loguru below values
_TITLE = " Traceback"
_RAISED_AGAIN = "Original Traceback"  # PyTorch raises an exception of its own process or thread again
_OF_CHILD = ("Process ", "Exception in initializer:")  # multiprocessing and its pools
_SPAWNED = ", in spawn_main"  # frame of a child process that fails at its start
_MEMBER = r"\+-\+?-+ \d"  # line above each exception of a group
_TAGS = (
    r"\[(?:rank ?|default)?\d{1,6}\]:? ?",  # torchrun, PyTorch, ranklaunch
    r"\[std(?:err|out)\]:? ?",
    r"[a-z]{1,20}/\d{1,6} (?:\[\d{1,6}\]:)?",  # TorchX
    r" {0,12}\| (?=\[rank)",
    r"\[[a-z]{1,20}\d{1,6}(?:\|\d{1,6})?\]:? ?",  # TorchX, torchrun with roles
    r"\[\d{1,6},\d{1,6}\]<std[a-z]{2,4}>:? ?",  # mpirun --tag-output
    r"\d{1,6}: ",  # srun --label
    r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}: |[a-z][a-z0-9]{0,40}-[a-z0-9.-]{1,60}: ",  # pdsh
    r"[a-z][\w.-]{0,60} {1,4}\| ",  # Docker Compose
    r"\([\w ./=-]{1,60}pid=\d{1,10}[^)\n]{0,40}\) ?",  # Ray
)
_TIMES = (
    r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?:? ?",
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T -]\d\d:\d\d:\d\d[.,\d]{0,14}(?:Z|[+-]\d\d:?\d\d)?\]?(?: -)?:? ?",
    r"\[?[EWIF]\d{3,8} \d\d:\d\d:\d\d[.\d]{0,12} +(?:\d{1,10} +)?[\w./-]{1,120}(?::\d{1,6})?\] ?",  # glog, and PyTorch's own
    r"(?:ERROR|WARNING|INFO|CRITICAL) (?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[?[\w./-]{1,80}:\d{1,6}\] ?)?",  # vLLM
)
_MARGIN = r" {1,60}(?:\+ (?=Exception Group)|\| ?|(?=\+-))"  # margin of exceptions in a group
_TAG = "|".join(_TAGS)
_LONGEST_MARK = 80
_MOST_PREFIXES = 16  # the regex engine needs several hundred bytes for each
_PREFIX = f"(?:{'|'.join((*_TAGS, *_TIMES, _MARGIN))}){{1,{_MOST_PREFIXES}}}"


# Signs of work: lines of steps, of success, and harmless lines that sound like a failure

_LONGEST = 600  # characters of a line that are searched
_MOST_LINES = 40  # last nonempty lines that are searched
_FEWEST_COUNTS = 3  # lines of a count


def shows_work(line: Line) -> bool:
    """Return True for a line of a program at work: no line above it can be the last message of a failure."""
    small = _small(line)
    if _has(_ENDED, small):
        return False
    if _has(_WORK, small) and not _line_pattern(_CALLED_ERROR).match(line.text):
        return True
    return _has(_BELOW_WARNING, line.written[:_LONGEST]) and not _has(_WRONG, small)


def is_harmless(line: Line) -> bool:
    """Return True for a line about a problem that programs survive, or about a process that has ended."""
    small, written = _small(line), line.written[:_LONGEST]
    if "NCCL WARN" in written:
        return False
    if _has(_ENDED, small) and (_has(_WORK, small) or _has(_BELOW_WARNING, written)):
        return True
    return (
        _has(_HARMLESS, small)
        or (_has(_HARMLESS_AS_WRITTEN, written) and not _line_pattern(_FATAL).match(line.text))
        or _has(_CODE_ALONE, small)
    )


def warns(line: Line) -> bool:
    """Return True if the program calls a failure a warning, or says that it goes on."""
    return _has(_GOES_ON, line.written[:_LONGEST]) and "NCCL WARN" not in line.written


def is_parting(line: Line) -> bool:
    """Return True for a line of a tracker, shell or script about a process that has ended."""
    return _has(_ENDED, _small(line))


def tried_again(lines: Sequence[Line], number: int) -> bool:
    """Return True if this line or a later one announces another try, and more lines follow."""
    behind = _behind(lines, number)
    return bool(behind) and any(_has(_TRIED_AGAIN, _small(line)) for line in (lines[number], *behind[:-1]))


def went_on(lines: Sequence[Line], number: int, is_raised: bool, is_light: bool) -> bool:
    """Return True if the end of an output shows work after the line of this number.

    is_raised: the line is an exception; a program may log a line or two after it before the exit. is_light: the failure is so
    uncertain that any calm last line counts as work.
    """
    behind = _behind(lines, number)
    last = behind[-_MOST_LINES:]
    if any(map(_goes_well, last)) or sum(map(_informs, last)) >= (_FEWEST_COUNTS if is_raised else 1):
        return True
    of_program = [line for line in behind if not is_parting(line)]
    end = _small(of_program[-1]) if of_program and is_light else ""
    return _has(_PLAIN, end) and not _has(_WRONG, end) and not _has(_HINT, end)


def _behind(lines: Sequence[Line], number: int) -> list[Line]:
    return [line for line in lines[number + 1 :] if line.text.strip() and line.may_be_of(lines[number].process)]


def _goes_well(line: Line) -> bool:
    small = _small(line)
    if line.text[:1].isspace() or _has(_BAR, small) or _has(_ITEM, small):
        return False
    if _has(_HANDLED, small):
        return True
    return _has(_WENT_WELL, small) and not _has(_WRONG, small) and not _has(_ENDED, small)


def _informs(line: Line) -> bool:
    """Return True for a line at the level INFO of the program's logger, without words of failures."""
    text, small = line.written[:_LONGEST], _small(line)
    return _has(_INFO_ALONE, text) and not (_has(_BY_LAUNCHER, text) or _has(_WRONG, small) or _has(_ENDED, small))


class Count(NamedTuple):
    """Lines that differ only in their numbers, which increase, as in lines of steps. lines: their numbers in the output."""

    first: Line
    lines: list[int]

    def goes_on(self, after: Line, before: int, shared: bool) -> bool:
        """Return True if the count continues between a line and the line number `before`.

        A count that begins right below the line is a list in its message. shared: a line or two may be from another process, so at
        least _FEWEST_COUNTS are needed.
        """
        between = self.lines[bisect_right(self.lines, after.number) : bisect_left(self.lines, before)]
        enough = _FEWEST_COUNTS if shared else 1
        return len(between) >= enough and self.first.may_be_of(after.process) and self.lines[0] != after.number + 1


def counts(lines: Sequence[Line]) -> list[Count]:
    """Return all counts of an output."""
    series: dict[tuple[str, str], list[int]] = {}
    last: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        text = "" if line.quoted else line.text[:_LONGEST].lower()
        numbers = [int(number) for number in _line_pattern(_NUMBER).findall(text)]
        shape = line.process, _line_pattern(_NUMBER).sub("0", text) if numbers else ""
        if numbers > last.get(shape, []):
            series.setdefault(shape, []).append(line.number)
            last[shape] = numbers
    counted = [(shape, numbers) for (_, shape), numbers in series.items() if len(numbers) >= _FEWEST_COUNTS]
    return [Count(lines[numbers[0]], numbers) for shape, numbers in counted if not (_has(_WRONG, shape) or _has(_NO_COUNT, shape))]


def _small(line: Line) -> str:
    return line.written[:_LONGEST].lower()


def _has(pattern: str, text: str) -> bool:
    return _line_pattern(pattern).search(text) is not None


# In lower case, unless the comment says otherwise.

_CODE = r"\b(?:rc|(?:exit|return)[ _-]?(?:code|status|value))\b[ :=]{1,3}-?[1-9]\d{0,2}"
_METRIC = (
    r"(?:step|epoch|iter|iteration|batch|(?:train|val|eval|avg|mean|test)?_?(?:loss|acc|accuracy)|lr)s?\b['\"]?[ :=\[#/(]{1,4}['\"]?\d"
)
_DONE = r"saved|finished|completed|succeeded|successfully|trained|recovered|restored|resumed?|reconnected|written to"
_THERE = r"up|ready|back|alive|available|reachable|healthy|online"
# Lines of trackers, profilers, shells and scripts about a process that has ended.
_ENDED = "|".join(
    (
        r"^(?:wandb|comet\w*|mlflow|neptune|swanlab|clearml|scalene|memray)\b|^\[neptune\]|^set the environment variable hydra_full_error",
        r"^[\d.]+user [\d.]+system |^\d+inputs\+\d+outputs |^command (?:exited with|terminated by) |^\t[a-z][a-z ():/]{4,60}: [\"\d]",
        r"^(?:[\d/]{10} [\d:]{8} info )?(?:connection|server|handleinform\w+|processoutgoing\w+): (?:.+ id=\d+\(|is shut|all c|listener c)",
        r"^\[info\] distributed\(.{0,200}\] event base dispatch success!|^warning: all log messages before absl::initializelog\(\)",
        r"^generating '[^']*\.qdstrm'|^\[\d/\d\] \[=*\d{1,3}%\]|^={9} (?:target application|error summary)\b",
        r"^extension modules: |^ {1,12}\d{1,10} done {2,40}\| ",  # Python's handler of faults; bash, of the rest of a pipe
        rf"{_CODE}\b",
    )
)
_CODE_ALONE = rf"^\W{{0,8}}{_CODE}\W{{0,8}}$"
# Words of failures, and of a process at its exit.
_WRONG = "|".join(
    (
        r"fail|error|exception|exit(?! (?:status|code) 0)|abort|kill|terminat|cancel|unable|cannot|could not|signal|crash|refused",
        rf"lost|stop|timed? ?out|\bplease\b|\b(?:not|never|in)(?: \w{{1,12}})? (?:{_DONE}|{_THERE})\b",
        r"emergency|dump|traceback|clean(?:ing|ed)? ?up|destroy|shut|clos|releas|tear|report|finali[sz]|\breset\b",
        r"^(?:while|when|during|after|before|in|at|for|on) ",  # circumstances in the message below an exception
    )
)
_BAR = r"\d%\||\d(?:it/s|s/it)\b"  # progress bar, which may be drawn once more at the exit
_ITEM = r"^- [a-z][a-z _]{1,40}: \d{1,20}$"  # item of a list of numbers, such as Ray's "- objects restored: 0"
# Lines behind a failure that show recovery.
_WENT_WELL = "|".join(
    (
        rf"\b{_METRIC}|^\d+ of \d+ |: \d+ of \d+\b|\d/\d{{1,9}}\b.*\beta\b|\blevel['\"]?[=:] ?['\"]?info\b",
        rf"\b(?:{_DONE})\b|\b(?:is|are) (?:now )?(?:{_THERE})\b|^(?:all )?(?:done|ok|passed|success)\b|\bexit (?:status|code) 0\b",
        r"\bgo(?:es|ing) on\b|\b(?:is|are) (?:taken|used)$|\bfall(?:s|ing) back\b|\bcontinu(?:es|ing) (?:without|with|on|from)\b",
        r"\bskipp(?:ed|ing)\b|\ball \w{1,20} (?:read|written|loaded|sent|received|processed)$",
    )
)
_HANDLED = r"^handled\b|\bhandled:"
_TRIED_AGAIN = r"\bwill (?:be retried|be restarted|restart)\b|\bretrying\b|\bagain in \d|\bonce more\b|- try \d"
# A calm last line: plain text, without a hint about a failure.
_PLAIN = r"^(?:[a-z0-9{(>]|\[(?![\w.-]+:\d))"
_HINT = r"0x[0-9a-f]|\b(?:type|consider|check|see|try|usage|help|run|hint|note)\b|\byou (?:need|should|may|might|can)\b|:\d+(?: \w+)?$"
# Lines that sound like failures but are harmless.
_HARMLESS = "|".join(
    (
        rf"{_HANDLED}|\bwarn(?:ing|ings)?\b|warning:|\bdeprecat|\bnote:|\bhint:|\boptional\b|\bmay (?:result in|lead to)\b",
        r"\bagain$|\bagain in\b|\banew\b|\battempt \d|\bretry|\bretries\b|\bignor(?:e|ed|ing)\b|\bskip|\bfall(?:ing|s)? ?back|\binstead\b",
        r"\bgo(?:ing|es)? on\b|continu(?:e|ing) (?:without|any)|\bdisabl(?:ed|ing)\b|will (?:use|try|proceed|continue|retry|not be)",
        r"\b(?:0|no|zero) (?:errors?|fail|exceptions?)|\b0 missed|already been registered|call to cuinit|numpy 2\.0",
        r"(?:errors?|failed|failures?|exceptions?|killed)(?: \w{1,20})?[^\w\n]{1,3}0\b",
        r"err(?:or)?s?(?: rate)?[ :=]{1,3}\d{0,4}(?:\.\d|%|e-)",
        r"not a git repository|your current branch|job control|^salloc: |load (?:image python extension|dynamic library)",
    )
)
# Not in lower case: levels below an error, lines of other languages' tracebacks, counts, settings, and tools in scripts.
_HARMLESS_AS_WRITTEN = "|".join(
    (
        r"(?:^|: |\[)W\d{0,8} |NCCL INFO|PMIX ERROR: ERROR in file \S{0,200}gds|^[ \t]+(?:raise|File|at) |[:=] ?(?:True|False|None|null)\b",
        r"^ {0,8}[A-Za-z][\w ]{1,40} {2,40}\d{1,12}$|^[a-z]{1,20}(?:_[a-z]{1,20}){1,4}: [A-Za-z]{1,20}$|^ {1,8}Configure options",
        r"^(?:/\S{1,60}/)?(?:rm|mkdir|ls|cat|grep|find|chmod|chown|mesg|tput|stty|lspci|which|ldconfig\S{0,5}|libgomp|OMP): ",
    )
)
_WORK = "|".join(
    (
        rf"\b(?<!of ){_METRIC}|\d ?%|\d(?:it|s|samples|tokens)/s\b",
        r"\b(?:saved|saving|finished|completed?|success|succeeded|successful|successfully|done|passed|loaded|collected)\b",
        r"^(?:load|writ|read|tokeniz|download|compil|process|evaluat|generat|comput|prepar|build|creat|fetch|restor|resum)ing\b",
        r"\bgo(?:es|ing) on\b|\bis (?:taken|used)$|^served\b|^start(?:ed|ing)?\b|\bexit (?:status|code) 0\b",
    )
)
# Not in lower case: levels of loggers, and prefixes of errors and warnings.
_INFO_ALONE = r"(?:^|[ \t\[(])INFO\b"
_BELOW_WARNING = r"(?:^|[ \t\[(])(?:INFO|DEBUG|NOTICE|TRACE)\b|(?:^|: |\[)[IDV]\d{0,8} "
_BY_LAUNCHER = r"elastic|launch|torchrun|ray\b|NCCL|horovod|sending"
_FATAL = r"(?:ERROR|FATAL|CRITICAL)\b"  # abseil, for example: FATAL Flags parsing error: flag --data=None: ...
_CALLED_ERROR = r"[\w.]{0,80}(?:Error|Exception): |(?:ERROR|FATAL|CRITICAL)(?:(?: \w{1,20})?: [A-Za-z]|:[\w.-]{1,80}:)"
_GOES_ON = (
    r"\bWARN(?:ING)?\b|\w{1,40}Warning: |\[warn(?:ing)? *\]|\blevel\W{1,4}warn(?:ing)?\b"
    r"|(?i:(?<!after )\bretrying\b|\b(?:skipp|ignor|continu)ing\b|\bfalling back\b|\b(?:skipped|ignored)\b)"
)
_NUMBER = r"(\d{1,15})(?:\.\d{1,15})?"
_NO_COUNT = r"^\s+[a-z]|nccl |0x[0-9a-f]|^#\d|^frame\b|\brank\b|\bwait"  # lines that differ in numbers, but count no steps


# The entry that explains the end

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
_OF_WARNINGS = 5  # index of the row for errors in a warning: the program went on
_MOST_OF_ENTRY = 400  # last lines with a needed text that are searched for an entry
_MOST_LAST = 40  # last nonempty lines that may explain the end
_MOST_FAINT = 12  # last nonempty lines that are searched for FAINT entries
_INDENTED = 8  # columns of a line that continues another one
_LONGEST_WORDS = 600  # characters of a line that are searched for general words
_LONGEST_LINE = 500  # characters of a finding's line
_MOST_OF_MESSAGE = 40  # lines of a message behind an exception
_BY_SHELL = r"(?:\S{1,80}: )?line \d{1,6}: "
# torchrun may restart its ranks. Patterns of its report of a failure, of its log lines, and of its final report.
_REPORTS = r"failed \(exitcode: -?\d+\) local_rank: \d.*\n"
_LOGGED = r"[EWI]\d{4} |\[\d{4}-|[A-Z]{4,8}:torch"
_BOX = "ChildFailedError"
_NOT_RUN = (126, 127)  # exit codes of a shell whose last command could not be run
_OF_SIGNALS = range(129, 129 + 64)  # exit codes
_BY_SIGKILL = 128 + signal.SIGKILL
_KILLED = "process-killed"


class Finding(NamedTuple):
    """Known error in a line. line: without colours; of a very long line, the part around the match. number: of the line, from 0."""

    error: KnownError
    line: str
    number: int = 0


def find(
    text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False, code: int | None = None
) -> Finding | None:
    """Return the best finding for the end of a process by its output, None for none.

    errors: all entries; () for the shipped ones. by_itself: False for a process that was signalled: general entries for last
    lines do not count then. shared: several ranks write into the output. code: exit code, None if unknown.
    """
    return next(iter(findings(end_of(text), errors, by_itself, shared, code)), None) if text.strip() else None


def findings(
    text: str, errors: Sequence[KnownError] = (), by_itself: bool = True, shared: bool = False, code: int | None = None
) -> list[Finding]:
    """Return all findings in a text, the best first. Parameters are those of find()."""
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
    best_first = sorted((number != end, _row(error, output.lines[number]), number) for number, error in matches.items())
    matched = ((number, matches[number]) for *_, number in best_first)
    return [Finding(error, _shown(output.lines, number, error), skipped + number) for number, error in matched]


def _since_restart(text: str) -> str:
    """Return the output since torchrun's last restart of its ranks, shown by lines of ranks behind a report; else all of it."""
    *_, behind = _compiled(_REPORTS).split(text)
    line = next((line for line in behind.split("\n") if line.strip() and not _compiled(_LOGGED).match(line)), "")
    return behind if line and not line.endswith(BEGINS) and _BOX not in behind else text


def peers(text: str, kind: str) -> tuple[int, ...]:
    """Return the ranks in the last message of this kind: the ranks that failed for CAUSE, that did not answer for CONSEQUENCE."""
    patterns = (pattern for error in shipped() if error.kind == kind for pattern in error.peers)
    matches = [match for pattern in patterns for match in _compiled(pattern).finditer(end_of(text))]
    last = max(matches, key=re.Match.start, default=None)
    return tuple(map(int, re.findall(r"\d{1,7}", last[1]))) if last else ()


def _row(error: KnownError, line: Line) -> int:
    """Return the index of an entry's row in ROWS; for a cause in a warning, at least _OF_WARNINGS."""
    row = next(row for row, (kinds, standings) in enumerate(ROWS) if error.kind in kinds and error.standing in standings)
    return max(row, _OF_WARNINGS) if error.kind == CAUSE and warns(line) else row


def _leaves_open(error: KnownError) -> bool:
    return error.kind == CONSEQUENCE and error.standing in (VAGUE, REPORT, AFTERMATH)


def _may_be_killed(error: KnownError) -> bool:
    """Return False for an error that cannot explain SIGKILL: an exception, the loss of a peer, and an error that repeats at each start."""
    if error.kind == CONSEQUENCE:
        return error.name == _KILLED
    return error.standing not in GENERAL and error.retry != NO


def _by_line(output: Output, errors: Sequence[KnownError]) -> Matches:
    """Return the first entry that matches each line. Users' entries are also tried on lines with their prefixes, as users see them."""
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
    """Index of lines for the search of many texts. Most texts occur nowhere, so few lines are searched for a pattern."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._whole = "\n".join(lines)
        self._words = {*_compiled(r"\w+").findall(self._whole)}
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]

    def having(self, text: str) -> Iterator[int]:
        """Yield the numbers of the lines that contain a text. The inner words of the text must be words of the lines, so most texts need no
        search."""
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
    """Add uncaught exceptions without an entry. Drop errors that were caught before an exception ended the process."""
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
    """Return the tracebacks of each process, thread and child process. The last one of each is uncaught.

    If several ranks write into the output (a launcher's report shows this too), each traceback is a group of its own.
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
    """Return True for a survivable error above the exception that ended the process."""
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
    """Return general entries for the last lines, back to the last line of work and above the first report of a launcher. If there are other
    findings, return causes only."""
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
    """Drop failures after which the program continued its work. Stops are kept."""
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
    """Return True if the program continued its work after its last failure. failures: numbers of lines, the last first.

    A launcher's report is not overridden by later lines of a script. After an exception in an output that ranks share, later lines may be
    from other ranks.
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
    """Return the number of the first line with a launcher's report; the number of lines if there is none."""
    return min((number for number, error in matches.items() if error.standing == REPORT), default=len(output.lines))


def _is_light(text: str, error: KnownError) -> bool:
    """Return True for an uncertain failure: any calm line behind it shows that the program went on, like a script."""
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
    """Compile a pattern whose ^ matches at each line."""
    return re.compile(pattern, re.MULTILINE)
