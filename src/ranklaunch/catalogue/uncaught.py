"""Whether an output ends with an exception that nobody caught, as Python prints it itself or as PyTorch's hook marks each line of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ranklaunch.catalogue import layouts
from ranklaunch.catalogue.survival import LOGGED, PARTING, counted_on
from ranklaunch.catalogue.tracebacks import BEGINS, CHAINED, HOOKED, IGNORED, NAMES, OF_A_PART, OF_A_THREAD, without_marks

CERTAIN, LIKELY, OF_THREAD = "certain", "likely", "of a thread"
_MARKED = re.compile(rf"((?P<one>{HOOKED})(?P=one){{0,3}})(?:Original )?{re.escape(BEGINS)}$")  # again for each new process group
_HOOK = re.compile(f"^(?:{HOOKED}){{1,4}}")  # again for each new process group
_BY_CPP = re.compile(r"\[[IWEF][0-9]{3,8} |terminate called")  # what may stand behind
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PARTING = re.compile(PARTING)
_OF_PROGRAM = re.compile(r'  File "[^"]*", line [0-9]+, in (?:<module>|_run_module_as_main)$')  # the frame with which Python begins one
_LEVEL = r"\b(?:ERROR|WARN(?:ING)?|CRITICAL|FATAL)\b|^[EWF][0-9]{4,8} "
_PANEL, _PANEL_ENDS = "╭", "╰"  # that rich draws around the frames
MOST_OF_MESSAGE = 12  # lines that are not indented
MOST_BEHIND_THREAD = 40  # of steps, with what the thread had brought before


def plain(text: str) -> str:
    """Without colours, and without what a launcher or a filter of the user's has put before each line."""
    return without_marks(_COLOUR.sub("", text), but=HOOKED)


def ends_by_exception(text: str, rank: int, most: int = 1, threads: bool = False) -> tuple[str, str]:
    """LIKELY, where a program might have caught and printed it and gone on, or CERTAIN; and its words, with those of the exceptions that it
    was raised from. Both are "" where the last words are no traceback. rank: whose output it is. most: lines that are not indented, of the
    message of one that is likely: behind what was caught, the program may go on to say something. threads: OF_THREAD is asked for too, of
    an exception that has ended a thread, and no program."""
    lines = [line for line in plain(text).splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.endswith(BEGINS)]
    while begins and lines[begins[-1] - 1].startswith(IGNORED):
        lines = lines[: begins.pop() - 1]
    if not begins:
        return "", ""
    marked = _MARKED.search(lines[begins[-1]])
    mark = marked[1] if marked else ""
    bare = [line[len(mark) :] if line.startswith(mark) else line for line in lines]
    behind = [number for number in range(begins[-1] + 1, len(bare)) if bare[number][:1].strip()]
    told = [number for number in behind if not (_BY_CPP.match(bare[number]) or _is_parting(bare, number, behind[0]))]
    first = begins[-1]
    while (before := [number for number in begins if number < first]) and _goes_on(bare, first):
        first = before[-1]
    if first and bare[first - 1].startswith(OF_A_THREAD):
        return _of_thread(lines, bare, first, told) if threads and len(told) <= MOST_BEHIND_THREAD else ("", "")
    if not told or not re.match(NAMES, bare[told[0]]):
        return "", ""
    if counted_on(bare, told[0], len(bare)):
        return "", ""
    how = CERTAIN if mark.startswith(f"[rank{rank}]: ") and _is_of_hook(lines[first : told[0] + 1], mark) else LIKELY
    if len(told) > (MOST_OF_MESSAGE if how == CERTAIN else most) or (first and how == LIKELY and re.search(LOGGED, bare[first - 1])):
        return "", ""
    return how, "\n".join(lines[first:])


def _is_parting(bare: Sequence[str], number: int, first: int) -> bool:
    """But for the line that names the exception, which may tell of another process's code, as that of subprocess does."""
    names = number == first and bare[number - 1][:1].isspace()
    return not names and bool(_PARTING.search(bare[number].lower()))


def _of_thread(lines: Sequence[str], bare: Sequence[str], first: int, told: Sequence[int]) -> tuple[str, str]:
    """Without what the others say while Python writes it. told: the lines that are not indented, from the last traceback on."""
    end = next((number for number in told if re.match(NAMES, bare[number]) and bare[number - 1][:1].isspace()), -1)
    said = [lines[number] for number in range(first, end + 1) if number == end or number not in told]
    return (OF_THREAD, "\n".join(said)) if said else ("", "")


def _is_of_hook(said: Sequence[str], mark: str) -> bool:
    """Whether it has the form of what PyTorch's hook writes. said: up to the line that names the exception. Who prints what it has caught
    may put the same mark before the first line, or before all."""
    begin, *rest = said
    marked = begin.endswith(mark + BEGINS) and all(line.startswith(mark) and line != mark for line in rest)
    return marked and begins_as_program([BEGINS, *(line[len(mark) :] for line in rest)])


def begins_as_program(said: Sequence[str]) -> bool:
    """Whether its last traceback begins where Python began the program, and not in a function that has caught the exception."""
    begin = next((number for number in range(len(said) - 2, -1, -1) if said[number] == BEGINS), -1)
    return begin >= 0 and bool(_OF_PROGRAM.match(said[begin + 1]))


def was_caught(text: str) -> bool:
    """Whether the last traceback of a text was printed by a function that has caught the exception: Python itself writes those of a program
    from its own module on, and names the thread or process that another has ended. Who has drawn a panel, only a logger's line tells."""
    return _by_function(*_last(text))


def _by_function(above: str, first: str) -> bool:
    return bool(first) and not (first == _PANEL or _OF_PROGRAM.match(first) or above.startswith(OF_A_PART))


def was_printed(text: str) -> bool:
    """The same, or that it has ended a thread or a process beside, or that a logger's line stands above it."""
    above, first = _last(text)
    return _by_function(above, first) or above.startswith(OF_A_PART) or bool(first and re.search(_LEVEL, above))


def above(text: str) -> str:
    """The line above the last traceback of a text."""
    return _last(text)[0]


def _last(text: str) -> tuple[str, str]:
    """The line above the last traceback of a text, and its first frame, or _PANEL; "" where there is none."""
    bare = ["", *bare_lines(text)]
    for number in range(len(bare) - 2, 0, -1):
        if bare[number] == BEGINS:
            return bare[number - 1], bare[number + 1]
        if layouts.begins_panel(bare[number].lstrip()):
            return bare[number - 1], _PANEL
    return "", ""


def without_mark(line: str) -> str:
    """Without that which PyTorch's hook puts before each line."""
    return _HOOK.sub("", line.strip()).strip()


def bare_lines(text: str) -> list[str]:
    """The lines as Python writes them, without marks."""
    return [_HOOK.sub("", line) for line in plain(text).split("\n")]


def parted(text: str, caught: bool = False) -> Iterator[tuple[str, str]]:
    """An output at each exception that has ended a program of Python, the last first: up to the line that names it, and what stands
    behind. caught: also at those that a function, or Python itself of a thread or process, has caught and printed, or that stand below a
    panel of rich."""
    lines, bare = text.split("\n"), bare_lines(text)
    panels = _below_panels(bare, lines) if caught else ()
    last = len(bare)  # where the exception behind begins
    for begin in range(len(bare) - 2, -1, -1):
        end = begin if begin in panels else -1
        if bare[begin] == BEGINS and (caught or _OF_PROGRAM.match(bare[begin + 1])):
            end = next((number for number in range(begin + 1, len(bare)) if bare[number][:1].strip()), -1)
        if end >= 0 and re.match(NAMES, bare[end]) and not _is_chained(bare, end, last):
            yield "\n".join([*lines[: end + 1], ""]), "\n".join(lines[end + 1 :])
        last = begin if bare[begin] == BEGINS or layouts.begins_panel(bare[begin]) else last


def _is_chained(bare: Sequence[str], end: int, last: int) -> bool:
    """Whether the exception that a line names is told as one that another was raised from, or that tells of another."""
    filled = [line for line in bare[end + 1 : last] if line]
    return bool(filled) and (filled[0].startswith(CHAINED) or (last < len(bare) and filled[-1].startswith(CHAINED)))


def _below_panels(bare: list[str], lines: list[str]) -> set[int]:
    """The numbers of the lines that name an exception below a panel of frames, each of which then has the whole message."""
    if not any(_PANEL in line for line in bare):
        return set()
    bare[:] = layouts.without_columns("\n".join(bare)).split("\n")
    return {number for number in layouts.join(bare, lines) if number and bare[number - 1].startswith(_PANEL_ENDS)}


def _goes_on(bare: Sequence[str], begin: int) -> bool:
    """Whether a traceback belongs to the one above it: it was raised from that, or tells where another process raised it."""
    above = bare[begin - 1] or bare[begin - 2]
    return above.startswith(CHAINED) or bare[begin].startswith(CHAINED)
