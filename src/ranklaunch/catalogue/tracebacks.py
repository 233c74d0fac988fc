"""Where an output has the tracebacks of Python, and which of them the program did not survive.

An exception says why a program ended only if the program did not go on after it: its traceback is the last one of the process, or part
of it, as that which it was raised from is. The tracebacks of launchers, and of what Python ignores while it ends, are no last ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ranklaunch.typed import NamedTuple

_MOST_LINES_OF_MESSAGE = 40
_MOST_LINES_OF_FRAMES = 200
BEGINS = "Traceback (most recent call last):"


class Lines:
    """An output, line by line. told: without colours. bare: also without what launchers and loggers put before a line."""

    def __init__(self, text: str) -> None:
        plain = _pattern(_COLOUR).sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        self.told = plain.split("\n")
        self.bare = _pattern(_PREFIX).sub("", plain).split("\n")
        self.tagged = _pattern(_TAGGED).search(plain) is not None

    @functools.cached_property
    def said(self) -> list[str]:
        """bare, with nothing where a traceback quotes a line of the program: what is raised there is in the line that ends it."""
        if not any(_FRAME_NEEDS in line for line in self.bare):
            return self.bare
        is_frame = _pattern(_FRAME).match
        quoted = {number + 1 for number, line in enumerate(self.bare) if is_frame(line)}
        return ["" if number in quoted and line[:1].isspace() else line for number, line in enumerate(self.bare)]

    def framed(self, number: int) -> bool:
        """Whether a line names the exception below the frames of a traceback."""
        above = self.bare[max(0, number - 4) : number] if _pattern(_NAMES).match(self.bare[number]) else []
        return bool(above) and above[-1][:1].isspace() and any(_FRAME_NEEDS in line for line in above)

    def begin(self, number: int) -> int:
        """The number of the line with which a traceback begins. number: of the line below it that names its exception; -1 where that
        stands below none."""
        above = range(number - 1, max(-1, number - 1 - _MOST_LINES_OF_FRAMES), -1) if self.framed(number) else ()
        return next((each for each in above if self.bare[each].startswith(BEGINS)), -1)

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
        for number, line in enumerate(self.told):
            prefix = _pattern(_PREFIX).match(line)
            tag = _pattern(_TAG).search(prefix[0]) if prefix else None
            groups.setdefault(tag[0].strip() if tag else "", []).append(number)
        return groups


class Traceback(NamedTuple):
    """One exception with those that it was raised from. endings: the lines that name them. message: the lines that go on from there.
    frames: the lines that name a file."""

    endings: tuple[int, ...]
    message: tuple[int, ...]
    frames: tuple[int, ...]


def last_tracebacks(lines: Lines, reports: Collection[int]) -> Iterator[tuple[Sequence[int], Traceback]]:
    """For each process that has one: the numbers of its lines, and its last traceback. reports: lines with a launcher's exception."""
    for group in lines.groups():
        own = [each for each in _tracebacks(group, lines.bare) if each.endings[-1] not in reports]
        if own:
            yield group, own[-1]


def _tracebacks(group: Iterable[int], bare: Sequence[str]) -> Iterator[Traceback]:
    endings: list[int] = []
    message: list[int] = []
    frames: list[int] = []
    block: list[int] = []  # of frames, up to the next ending
    in_frames = in_panel = chained = ignored = False
    left = 0  # lines that may still belong to the message
    is_frame = _pattern(_FRAME).match
    for number in group:
        line = bare[number]
        if is_frame(line) or (in_panel and line.startswith("╰")):
            in_frames, in_panel, left = True, False, 0
            block.append(number)
        elif in_frames and (not line or line[0] in " \t"):
            continue
        elif in_frames:
            if endings and not chained:
                yield Traceback(tuple(endings), tuple(message), tuple(frames))
                endings, message, frames = [], [], []
            if not ignored and not any(_REPLACED in bare[each] for each in block):
                endings.append(number)
                frames += block
                left = _MOST_LINES_OF_MESSAGE
            in_frames = chained = ignored = False
            block = []
        elif line.startswith("╭"):  # rich draws a panel around the frames
            in_panel, left = BEGINS[:-1] in line, 0
        elif line.startswith(CHAINED):
            chained, left = True, 0
        elif line.startswith(IGNORED):
            ignored, left = True, 0
        elif left and line and not line.startswith("Traceback"):
            message.append(number)
            left -= 1
        else:
            left = 0
    if endings:
        yield Traceback(tuple(endings), tuple(message), tuple(frames))


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.MULTILINE)


_COLOUR = r"\x1b\[[0-?]*[ -/]*[@-~]"
_FRAME = r'[ \t]*File "[^"\n]*", line \d+(?:, in |$)'
_NAMES = r"[A-Za-z_][\w.]{0,400}(?::|$)"
_FRAME_NEEDS = 'File "'
CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
    "Original Traceback (most recent call last)",
)
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
    r"\[?[EWIF]\d{3,4} \d\d:\d\d:\d\d[.\d]{0,12} +(?:\d{1,10} +)?[\w./-]{1,120}(?::\d{1,6})?\] ?",  # glog, and PyTorch's own
    r"(?:ERROR|WARNING|INFO|CRITICAL) (?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[?[\w./-]{1,80}:\d{1,6}\] ?)?",  # vLLM
)
_TAG = "|".join(_TAGS)
_TAGGED = f"^(?:{'|'.join(_TIMES)})*(?:{_TAG})"
_PREFIX = f"^(?:{'|'.join((*_TAGS, *_TIMES))})+"
