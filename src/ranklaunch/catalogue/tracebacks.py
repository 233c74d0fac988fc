"""Where an output has the tracebacks of Python, and which of them the program did not survive.

An exception says why a program ended only if the program did not go on after it: its traceback is the last one of the process, or part
of it, as that which it was raised from is. The tracebacks of launchers, and of what Python ignores while it ends, are no last ones.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile

from ranklaunch.catalogue import layouts
from ranklaunch.catalogue.survival import may_go_on
from ranklaunch.showing import in_lines
from ranklaunch.typed import NamedTuple

_MOST_LINES_OF_MESSAGE = 40
_MOST_LINES_OF_FRAMES = 200
BEGINS = "Traceback (most recent call last):"
HOOKED = r"\[rank([0-9]{1,7})\]: "  # before each line of what PyTorch's hook for exceptions that nobody caught writes
_LONGEST_MARK = 80  # characters
_MOST_MARKS = 64  # that are looked at


class Lines:
    """An output, line by line, without colours. written: as it was, but for the frames of a traceback in one line. told: without the
    user's own marks. bare: also without what launchers and loggers put before a line, and without the margin of exceptions in a group."""

    def __init__(self, text: str) -> None:
        written = _pattern(_IN_ONE_LINE).sub(_without_frames, in_lines(_pattern(_COLOUR).sub("", text)))
        self.written = written.split("\n")
        plain = without_marks(written)
        marked = plain != written
        if _OF_SHELL in plain:
            plain = _pattern(_COMMANDS).sub(lambda found: found[1] + "\n" * found[2].count("\n"), plain)
        self.told = plain.split("\n")
        bare = _pattern(_PREFIX).sub("", plain)
        bare = _pattern(_MARGIN).sub("", bare) if _GROUP in bare else bare
        self.bare = layouts.without_columns(bare).split("\n")
        self._joined = layouts.join(self.bare, self.told) if any(mark in bare for mark in layouts.MARKS) else {}
        if _BAR in bare:  # one that was drawn last has no line of its own
            self.bare = [BEGINS if _BAR in line and line.endswith(BEGINS) else line for line in self.bare]
        cut = without_marks(written, cut=True) if marked else written  # the 0: of rank0: tells processes apart, as that of srun does
        self.tagged = _pattern(_TAGGED).search(cut) is not None
        self._with_tags = cut.split("\n")

    @functools.cached_property
    def said(self) -> list[str]:
        """bare, with nothing where a traceback quotes lines of the program, or its values as rich, loguru and pydantic do: what is raised
        there is in the line that ends it."""
        shown = {*layouts.within(self.bare), *layouts.of_fields(self.bare), *layouts.below_warnings(self.bare)}
        if not shown and not any(_FRAME_NEEDS in line for line in self.bare):
            return self.bare
        is_frame, is_value = _pattern(_FRAME).match, _pattern(_VALUE).match
        quoted = {number + 1 for number, line in enumerate(self.bare) if is_frame(line)}
        return [
            "" if number in shown or (number in quoted and line[:1].isspace()) or is_value(line) else line
            for number, line in enumerate(self.bare)
        ]

    def framed(self, number: int) -> bool:
        """Whether a line names the exception below the frames of a traceback, or one of a group that was never raised and has none."""
        if number in self._joined:
            return True
        above = self.bare[max(0, number - 4) : number] if _pattern(NAMES).match(self.bare[number]) else []
        if above and _pattern(_MEMBER).match(above[-1]):
            return True
        return bool(above) and above[-1][:1].isspace() and any(_FRAME_NEEDS in line for line in above)

    def begin(self, number: int) -> int:
        """The number of the line with which a traceback begins. number: of the line below it that names its exception; -1 where that
        stands below none."""
        above = range(number - 1, max(-1, number - 1 - _MOST_LINES_OF_FRAMES), -1) if self.framed(number) else ()
        return next((each for each in above if self.bare[each].startswith((BEGINS, _GROUP)) or layouts.begins_panel(self.bare[each])), -1)

    def last_of_a_process(self, before: int) -> int:
        """The number of the line that names the last exception by which a process has ended that the program had started; -1: none."""
        begin = next((each for each in range(before - 1, -1, -1) if self._begins_process(each)), before)
        return next((each for each in range(begin + 1, before) if self.framed(each)), -1)

    def _begins_process(self, number: int) -> bool:
        """Whether a traceback of one begins there: with its name above, or, where it failed as it was spawned, in Python's own code."""
        if self.bare[number] != BEGINS:
            return False
        named = number > 0 and self.bare[number - 1].startswith(OF_A_PROCESS)
        return named or any(_SPAWNED in line for line in self.bare[number + 1 : number + 4])

    def above(self, number: int) -> str:
        """What stands above the traceback, with those that its exception was raised from. number: of the line that names the exception."""
        while number > 0 and (begin := self.begin(number)) >= 0:
            number = self._filled_above(begin)
            if number >= 0 and not self.bare[number].startswith(CHAINED):
                return self.told[number]
            number = self._filled_above(number)
        return ""

    def with_message(self, number: int, line: str) -> str:
        """The line that names an exception, with the next line of its message where that begins with an empty line, or where the first
        ends with a colon: RuntimeError: Error(s) in loading state_dict for Net: Missing key(s). Others are as told_below has them."""
        stop = self._joined.get(number, number + 1)
        goes_on = (line.endswith((":", *layouts.OPENING)) and not line.endswith(BEGINS)) or layouts.has_fields(line)
        if not (goes_on and stop and self.framed(number)):
            return line
        of_process = next(group for group in self.groups() if group[bisect_left(group, number) :][:1] == [number])
        after = bisect_left(of_process, stop)
        if below := layouts.told_below(line, [self.bare[each] for each in of_process[after : after + _MOST_LINES_OF_FRAMES]]):
            return below
        if line.endswith(layouts.OPENING):
            return line
        most = 1 if " " in self.bare[number].strip() else _MOST_LINES_OF_MESSAGE
        of_message = takewhile(lambda each: self._may_be_of_message(each, number), of_process[after : after + most])
        first = next((each for each in of_message if _pattern(_WORD).search(self.bare[each])), -1)
        return f"{line} {layouts.unwrapped(self.bare, self.told, first, number - 1)}".strip() if first >= 0 else line

    def _may_be_of_message(self, number: int, after: int) -> bool:
        is_another = self.bare[number].startswith((BEGINS, _PANEL, *CHAINED, *OF_A_PART, *IGNORED))
        return not is_another and may_go_on(self.said, self.told, number, after)

    def _filled_above(self, number: int) -> int:
        return next((each for each in range(number - 1, -1, -1) if self.bare[each].strip()), -1)

    def groups(self) -> Iterable[list[int]]:
        """The numbers of the lines of each process, as far as tags tell them apart."""
        return self._by_tag.values()

    def processes(self) -> Iterable[list[int]]:
        """The same, but where there is one tag alone, lines without it are of that process too: PyTorch puts it before its own."""
        return self.groups() if len(self._by_tag.keys() - {""}) > 1 else [list(range(len(self.told)))]

    @functools.cached_property
    def _by_tag(self) -> dict[str, list[int]]:
        if not self.tagged:
            return {"": list(range(len(self.told)))}
        groups: dict[str, list[int]] = {}
        for number, line in enumerate(self._with_tags):
            prefix = _pattern(_PREFIX).match(line)
            tag = _pattern(_TAG).search(prefix[0]) if prefix else None
            groups.setdefault(tag[0].strip() if tag else "", []).append(number)
        return groups


class Traceback(NamedTuple):
    """One exception with those that it was raised from, or that it is a group of. endings: the lines that name them. message: the lines
    that go on from there. frames: the lines that name a file. members: of the endings, those of a group's exceptions."""

    endings: tuple[int, ...]
    message: tuple[int, ...]
    frames: tuple[int, ...]
    members: tuple[int, ...] = ()


def at_fault(lines: Sequence[str]) -> int:
    """The number of the line with which Python's handler of faults tells where the program was, and -1 where it tells nothing, or that the
    program had ended by then: an exception that nobody catches leaves no module at the bottom of the main thread's stack."""
    begin = next((number for number in range(len(lines) - 1, -1, -1) if lines[number].startswith(_FAULT)), -1)
    return begin if begin >= 0 and any(map(_pattern(_IN_MODULE).match, lines[begin:])) else -1


def tracebacks(lines: Lines, reports: Collection[int], of_one: bool = False) -> Iterator[tuple[Sequence[int], Sequence[Traceback]]]:
    """For each process that has one: the numbers of its lines, and its tracebacks. reports: lines with a launcher's exception. of_one: one
    rank has written it."""
    for group in lines.processes() if of_one else lines.groups():
        own = [each for each in _tracebacks(group, lines.bare) if each.endings[-1] not in reports]
        if own:
            yield group, own


def last_exception(text: str) -> str:
    """The line that names the last exception below a traceback, of the program itself, else of a process that it has started, and of no
    thread's; "" where there is none."""
    lines = Lines(text)
    ends = [own[-1].endings[-1] for _, own in tracebacks(lines, ())]
    of_main = [number for number in ends if (begin := lines.begin(number)) >= 0 and not lines.bare[begin - 1].startswith(OF_A_PART)]
    number = max(of_main) if of_main else lines.last_of_a_process(len(lines.bare))
    return lines.with_message(number, lines.bare[number].strip()) if number >= 0 else ""


def _tracebacks(group: Iterable[int], bare: Sequence[str]) -> Iterator[Traceback]:
    reading = _Reading(bare)
    for number in group:
        if reading.ends(number):
            yield from reading.whole()
            reading.begin_anew()
        reading.read(number)
    yield from reading.whole()


class _Reading:
    """Of the lines of one process, the traceback that it is in, or that was its last."""

    def __init__(self, bare: Sequence[str]) -> None:
        self._bare = bare
        self._is_frame = _pattern(_FRAME).match
        self._block: list[int] = []  # of frames, up to the next ending
        self._in_frames = self._in_panel = self._chained = self._ignored = False
        self._headed = False  # a traceback has begun since the last ending
        self._left = 0  # lines that may still belong to the message
        self.begin_anew()

    def begin_anew(self) -> None:
        self._endings: list[int] = []
        self._message: list[int] = []
        self._frames: list[int] = []
        self._members: list[int] = []
        self._in_group = False

    def whole(self) -> Iterator[Traceback]:
        if self._endings:
            yield Traceback(tuple(self._endings), tuple(self._message), tuple(self._frames), tuple(self._members))

    def ends(self, number: int) -> bool:
        """Whether this line names an exception that has nothing to do with those before."""
        return self._names(self._bare[number]) and not self._chained

    def read(self, number: int) -> None:
        line = self._bare[number]
        if self._is_of_frame(line):
            self._in_frames, self._in_panel, self._left = True, False, 0
            self._block.append(number)
        elif self._names(line):
            self._take_block(number)
        elif not self._in_frames or line[:1] not in ("", " ", "\t"):
            self._in_frames, self._block = False, []  # the message had frames in it
            self._read_outside(number, line)

    def _is_of_frame(self, line: str) -> bool:
        return bool(self._is_frame(line)) or (self._in_panel and line.startswith("╰"))

    def _names(self, line: str) -> bool:
        """Whether it stands below frames, and is none of the source that these quote. Frames with no beginning above them may be part of a
        message, as where torch.compile says "from user code:"; what stands below those is an exception only if it looks like one."""
        below = self._in_frames and line[:1] not in ("", " ", "\t") and not self._is_of_frame(line)
        return below and (self._headed or not self._endings or _pattern(NAMES).match(line) is not None)

    def _take_block(self, number: int) -> None:
        if not self._ignored and not any(_REPLACED in self._bare[each] for each in self._block):
            self._take(number, self._in_group)
            self._frames += self._block
        self._in_frames = self._chained = self._ignored = self._headed = False
        self._block = []

    def _take(self, number: int, of_group: bool) -> None:
        self._endings.append(number)
        self._members += [number] * of_group
        self._left = _MOST_LINES_OF_MESSAGE

    def _read_outside(self, number: int, line: str) -> None:
        left, self._left = self._left, 0
        self._headed = self._headed or BEGINS[:-1] in line or layouts.begins_panel(line) or line.startswith(CHAINED)
        if line.startswith(_PANEL):
            self._in_panel = layouts.begins_panel(line)
        elif line.startswith(CHAINED):
            self._chained = True
        elif self._endings and line.startswith("+-"):  # in front of each exception of a group, and at its end
            self._chained = self._in_group = _pattern(_MEMBER).match(line) is not None
            if line.startswith(_OPENS) and self._endings[-1:] == self._members[-1:]:
                self._members.pop()  # a group itself, which says nothing that its own members do not
        elif self._was_never_raised(number, line):
            self._take(number, True)
        elif line.startswith(IGNORED):
            self._ignored = True
        elif left and line and not line.startswith("Traceback"):
            self._message.append(number)
            self._left = left - 1

    def _was_never_raised(self, number: int, line: str) -> bool:
        """Whether it names an exception of a group that has no frames."""
        first = self._chained and self._in_group and self._bare[number - 1].startswith("+-")
        return first and bool(_pattern(NAMES).match(line))


def _without_frames(found: re.Match[str]) -> str:
    """What ends a traceback in one line: the frames quote lines of the program, which say nothing of what happened."""
    pieces = re.split(r"(?:\\r)?\\n", found[0])
    is_end = _pattern(NAMES).match
    ends = [number for number, piece in enumerate(pieces) if number and pieces[number - 1][:1] == " " and is_end(piece)]
    return " ".join(filter(None, map(str.strip, pieces[ends[-1] :]))) if ends else found[0]


def without_marks(text: str, but: str = "", cut: bool = False) -> str:
    """Text without what a filter of the user's, such as `sed "s/^/[$RANK] /"`, put before each line, as is seen where a traceback begins.
    but: a pattern of marks that stay; else those of launchers and loggers, which tell processes apart. cut: also one that begins within a
    word."""
    kept = _pattern(but or _ANY_PREFIX)
    rest = _pattern(rf"(?:{_MARGIN_BEFORE if _GROUP in text else ''}Original )?")
    tried: set[str] = set()
    shapes: dict[str, None] = {}
    at = text.rfind(BEGINS)
    while at >= 0 and len(tried) < _MOST_MARKS:
        *_, before = text[max(0, at - _LONGEST_MARK) : at].rpartition("\n")
        for mark in (before, _mark_of_frame(text, at + len(BEGINS))):
            shape = "" if mark in tried else _shape(mark[: _known_from(mark, kept, rest, cut)])
            if shape.strip("\\ ") and shape not in shapes and _is_before_frame(text, at + len(BEGINS), shape):
                shapes[shape] = None
            tried.add(mark)
        at = text.rfind(BEGINS, 0, at)
    return re.sub(rf"^(?:{'|'.join(shapes)})", "", text, flags=re.MULTILINE) if shapes else text


def without_prefixes(text: str) -> tuple[list[str], list[str]]:
    """Its lines without the user's own marks, and also without what launchers and loggers put before a line."""
    told = without_marks(text)
    return told.split("\n"), _pattern(_PREFIX).sub("", told).split("\n")


def _known_from(mark: str, kept: re.Pattern[str], rest: re.Pattern[str], cut: bool) -> int:
    """Where the marks begin that end it, each of which is looked at once: there are many ways to tell some of them apart."""
    known = {number for number in range(len(mark) + 1) if rest.fullmatch(mark, number)}
    for number in range(len(mark) - 1, -1, -1):
        within = number and mark[number - 1].isalnum() and mark[number].isalnum()
        found = kept.match(mark, number) if cut or not within else None
        if found and found.end() > number and found.end() in known:
            known.add(number)
    return min(known)


def _shape(mark: str) -> str:
    """A pattern of what differs from it in numbers alone."""
    return re.sub(r"\d+", r"\\d{1,20}", re.escape(mark))


def _mark_of_frame(text: str, at: int) -> str:
    """What stands before the frame in the next line, and begins the line below it too. Before the traceback, there may be more in its line,
    such as a bar that was being drawn."""
    frame = re.match(rf"\n(.{{1,{_LONGEST_MARK}}}?)  {_FRAME_NEEDS}", text[at : at + 2 * _LONGEST_MARK])
    end = text.find("\n", at + 1) + 1 if frame else 0
    return frame[1] if frame and end and re.match(_shape(frame[1]), text[end : end + 2 * _LONGEST_MARK]) else ""


def _is_before_frame(text: str, at: int, shape: str) -> bool:
    """Whether the next line has the mark too, and a frame or an exception of a group behind it."""
    found = re.match(rf"\n{shape}(.*)", text[at : at + 4 * _LONGEST_MARK])
    line = _pattern(_PREFIX).sub("", found[1]) if found else ""
    return line.lstrip(" \t|+-").startswith(_FRAME_NEEDS)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.MULTILINE)


# As loggers that write JSON have it, and repr.
_IN_ONE_LINE = re.escape(BEGINS) + r'(?:\\r)?\\n(?: *File \\"(?:[^"\\\n]|\\.)*| *File "(?:[^\'\\\n]|\\.)*)'
_COLOUR = r"\x1b\[[0-?]*[ -/]*[@-~]"
_FRAME = r'[ \t]*File "[^"\n]*", line \d+(?:, in |$)'
_VALUE = r"[ \t]{1,80}[│└]"
NAMES = r"[A-Za-z_][\w.]{0,400}(?::|$)"
_WORD = r"\w"
_PANEL = "╭"  # that rich draws around the frames
_FAULT = "Fatal Python error: "
_IN_MODULE = r'  File "[^"\n]*", line \d+ in <module>$'
_FRAME_NEEDS = 'File "'
_SPAWNED = ", in spawn_main"
_GROUP = "Exception Group Traceback (most recent call last):"
_MARGIN = r"^ {1,60}(?:\+ (?=Exception Group)|\| ?|(?=\+-))"
_MARGIN_BEFORE = r" {0,60}\+ Exception Group | {0,60}\| |"
_BAR = "%|"
# What bash says of the others in a pipe of which a process has died: the commands of a loop have lines of their own.
_OF_SHELL = " Done "
_COMMANDS = r"(^ {1,12}\d{1,10} Done {2,40}\| .*)((?:\n[ \t].*){0,200}\n(?:done|fi|esac|[})]).*)$"
_MEMBER = r"\+-\+?-+ \d"
_OPENS = "+-+-"  # the first of a group
RAISED_AGAIN = "Original Traceback (most recent call last)"  # by PyTorch, of what a process or a thread of its own has raised
CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
    RAISED_AGAIN,
)
OF_A_PROCESS = "Process "  # of multiprocessing
OF_A_THREAD = "Exception in thread "
OF_A_PART = (OF_A_THREAD, OF_A_PROCESS)  # the others go on
IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs")  # the latter before Python 3.10
# NumPy refuses a module that was built for another NumPy: C code prints that, and goes on or raises an exception of its own.
_REPLACED = "/numpy/core/_multiarray_umath.py"
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
_TAG = "|".join(_TAGS)
_MOST_PREFIXES = 16  # the engine keeps some hundred bytes of each
_TAGGED = f"^(?:{'|'.join(_TIMES)}){{0,{_MOST_PREFIXES}}}(?:{_TAG})"
_ANY_PREFIX = "|".join((*_TAGS, *_TIMES))
_PREFIX = f"^(?:{_ANY_PREFIX}){{1,{_MOST_PREFIXES}}}"
