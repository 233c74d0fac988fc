"""The last output of a process, line by line, and the tracebacks of Python in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ranklaunch.showing import in_lines

LONGEST = 65536  # characters, of the end
MOST_LINES = 3000
BEGINS = "Traceback (most recent call last):"
HOOKED = r"\[rank([0-9]{1,7})\]: "  # before each line of what PyTorch's hook for exceptions that nobody caught writes
CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs")  # the latter before Python 3.10
BESIDE = ("Exception in thread ", "Process ", "future: <")  # a thread, process or task: the main program goes on


class Line(NamedTuple):
    """One line. written: as the process wrote it, without colours. text: also without timestamps and other prefixes of launchers and
    loggers. process: the prefix that tells processes apart. quoted: frames of a traceback, and exceptions that Python ignored."""

    number: int
    written: str
    text: str
    process: str = ""
    quoted: bool = False

    def may_be_of(self, process: str) -> bool:
        """Return False for a line of another process. Some lines have no prefix that tells whose they are."""
        return self.process == process or not (self.process and process)


class Traceback(NamedTuple):
    """One exception, with those that it was raised from. begin: number of the first line. above: the text above. ends: numbers of the
    lines that name the exceptions, the uncaught one last. of_child: it ended a process that the program had started."""

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


def read(text: str) -> Output:
    """Split a text into lines, and find its tracebacks."""
    plain = in_lines(_compiled(_COLOUR).sub("", text))
    mark = _mark(plain)
    lines = [_line(number, written, mark) for number, written in enumerate(plain.split("\n"))]
    if len({line.process for line in lines} - {""}) == 1:
        lines = [line._replace(process="") for line in lines]
    processes: dict[str, list[Line]] = {}
    for line in lines:
        processes.setdefault(line.process, []).append(line)
    tracebacks = [traceback for own in processes.values() for traceback in _tracebacks(own, lines)]
    return Output(lines, sorted(tracebacks, key=lambda traceback: traceback.ends[-1]))


def last_exception(text: str) -> str:
    """Return the line that names the last uncaught exception of the main program, with its message; "" if there is none."""
    output = read(end_of(text))
    ends = [traceback.ends[-1] for traceback in output.tracebacks if not traceback.above.startswith(BESIDE)]
    return with_message(output.lines, ends[-1], output.lines[ends[-1]].text.strip()) if ends else ""


def with_message(lines: list[Line], number: int, line: str) -> str:
    """Append the next line of an exception's message where the first ends with a colon and the next is indented."""
    below = lines[number + 1].text if number + 1 < len(lines) else ""
    return f"{line} {below.strip()}" if line.endswith(":") and below[:1].isspace() and below.strip() else line


def _mark(text: str) -> str:
    """Return a pattern of what a filter of the user's, such as `sed "s/^/[$RANK] /"` or ts, put before each line, as seen at the last
    traceback."""
    before, begins, behind = text.rpartition(BEGINS)
    mark = before.rpartition("\n")[2].partition("[rank")[0].removesuffix("Original ") if begins else ""
    is_known = len(mark) > _LONGEST_MARK or _compiled(_PREFIX).fullmatch(mark) or not mark.strip()
    pattern = "" if is_known else re.sub(r"\d+", r"\\d{1,20}", re.escape(mark))
    return f"^{pattern}" if pattern and re.match(rf"\n{pattern}(?: |\[rank)", behind) else ""


def _line(number: int, written: str, mark: str) -> Line:
    bare = _compiled(mark).sub("", written, count=1) if mark else written
    prefix = _compiled(_PREFIX).match(bare)
    if not prefix:
        return Line(number, written, bare)
    tag = _compiled(_TAG).search(prefix[0])
    return Line(number, written, bare[prefix.end() :], tag[0].strip() if tag else "")


def _tracebacks(own: list[Line], lines: list[Line]) -> Iterator[Traceback]:
    """Yield the tracebacks in the lines of one process, and mark all `lines` that these quote."""
    reading = _Reading()
    for line in own:
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
    """State of reading the lines of one process. chain: the last traceback, to which more exceptions may be chained. begun: within the
    frames of one."""

    def __init__(self) -> None:
        self.chain: Traceback | None = None
        self._begun = self._chained = self._ignored = self._of_child = False
        self._begin, self._above, self._last = 0, "", ""

    def read(self, line: Line) -> tuple[Traceback | None, bool]:
        """Return the traceback before this line's, if the line ends a new one, and whether the line is quoted."""
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
        if text.endswith(BEGINS) or (not (self._begun or self.chain) and _compiled(_FRAME).match(text)):
            self._begin_at(line)
            return None, True
        if not self._begun:
            return None, text[:1].isspace() and _compiled(_WARNING).search(self._last) is not None
        if text[:1].strip() or _compiled(_INDENTED_END).match(text):
            self._begun = False
            is_named = not self._ignored and _compiled(_NAMES).match(text.strip())
            return self._end_at(line) if is_named else None, self._ignored
        self._of_child = self._of_child or _SPAWNED in text
        return None, True

    def _begin_at(self, line: Line) -> None:
        self._begun, self._begin, self._above = True, line.number, self._last
        self._chained = (
            line.text.startswith(_RAISED_AGAIN) or self._above.startswith(CHAINED) or bool(_compiled(_MEMBER).match(self._above))
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
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_COLOUR = r"\x1b\[[0-?]*[ -/]*[@-~]"
_FRAME = r'[ \t]*File "[^"\n]*", line \d+(?:, in |$)'
_NAMES = r"[A-Za-z_][\w.]{0,400}(?::|$)"  # the line that names an exception
_INDENTED_END = r"\s+[A-Za-z_][\w.]{0,200}(?:Error|Exception): "
_WARNING = r":\d{1,6}: \w{1,60}Warning: "  # above a line of the program that Python quotes
_PANEL = ("│", "╭", "╰", "└")  # that rich draws around frames, and loguru below values
_TITLE = " Traceback"
_RAISED_AGAIN = "Original Traceback"  # by PyTorch, of what a process or a thread of its own has raised
_OF_CHILD = ("Process ", "Exception in initializer:")  # of multiprocessing, and of its pools
_SPAWNED = ", in spawn_main"  # frame of a process that fails as it is spawned
_MEMBER = r"\+-\+?-+ \d"  # above each exception of a group
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
_MARGIN = r" {1,60}(?:\+ (?=Exception Group)|\| ?|(?=\+-))"  # of exceptions in a group
_TAG = "|".join(_TAGS)
_LONGEST_MARK = 80
_MOST_PREFIXES = 16  # the engine keeps some hundred bytes of each
_PREFIX = f"(?:{'|'.join((*_TAGS, *_TIMES, _MARGIN))}){{1,{_MOST_PREFIXES}}}"
